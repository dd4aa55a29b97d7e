package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/twmb/franz-go/pkg/kgo"
)

// floorSpec tells the floor's process what to carry.
type floorSpec struct {
	DSN, Slot string
	Brokers   []string
	Topic     string
}

// floorChild is the least that carries a row: the replication connection read
// with pgconn and pglogrepl, and one produce a row without linger. It keeps no
// position, decides nothing and confirms once a second.
func floorChild(ctx context.Context, spec floorSpec) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(spec.Brokers...), kgo.DefaultProduceTopic(spec.Topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	cfg, err := pgconn.ParseConfig(spec.DSN)
	if err != nil {
		return err
	}
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pglogrepl.StartReplication(ctx, conn, spec.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", fmt.Sprintf("publication_names '%s'", publication)}})
	if err != nil {
		return err
	}
	f := &floor{client: c, conn: conn}
	for ctx.Err() == nil {
		if err := f.turn(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// floor belongs to one goroutine, except failed.
type floor struct {
	client       *kgo.Client
	conn         *pgconn.PgConn
	key, payload int // places of the columns
	received     pglogrepl.LSN
	said         time.Time
	failed       atomic.Pointer[error]
}

func (f *floor) turn(ctx context.Context) error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	if time.Since(f.said) > time.Second {
		f.said = time.Now()
		if err := pglogrepl.SendStandbyStatusUpdate(ctx, f.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: f.received}); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	raw, err := f.conn.ReceiveMessage(limited)
	if pgconn.Timeout(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if e, ok := raw.(*pgproto3.ErrorResponse); ok {
		return pgconn.ErrorResponseToPgError(e)
	}
	m, ok := raw.(*pgproto3.CopyData)
	if !ok || m.Data[0] != pglogrepl.XLogDataByteID {
		return nil
	}
	x, err := pglogrepl.ParseXLogData(m.Data[1:])
	if err != nil {
		return err
	}
	f.received = max(f.received, x.WALStart)
	return f.message(x.WALData)
}

func (f *floor) message(data []byte) error {
	m, err := pglogrepl.Parse(data)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *pglogrepl.RelationMessage:
		for i, c := range m.Columns {
			switch c.Name {
			case "message_key":
				f.key = i
			case "payload":
				f.payload = i
			}
		}
	case *pglogrepl.InsertMessage:
		r := &kgo.Record{Key: m.Tuple.Columns[f.key].Data, Value: m.Tuple.Columns[f.payload].Data}
		f.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				f.failed.CompareAndSwap(nil, &err)
			}
		})
	}
	return nil
}
