package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/verdict"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// readLimit bounds the reading of the topics: far more than a day's records in
// this process take.
const readLimit = 2 * time.Minute

// judge reads the table and then the topics from their beginning. The relay
// must have ended, so that neither changes any more.
func judge(ctx context.Context, conn *pgx.Conn, b *broker) (verdict.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	j := verdict.NewJudge()
	if err := readTable(ctx, conn, j); err != nil {
		return verdict.Result{}, err
	}
	if err := readTopics(ctx, b, j); err != nil {
		return verdict.Result{}, err
	}
	return j.Result(), nil
}

func readTable(ctx context.Context, conn *pgx.Conn, j *verdict.Judge) error {
	rows, err := conn.Query(ctx, `select event_id, aggregate_id, (convert_from(payload, 'UTF8')::json ->> 'seq')::bigint, status, payload from public.outbox`)
	if err != nil {
		return fmt.Errorf("reading the outbox: %w", err)
	}
	var (
		id      [16]byte
		row     verdict.Row
		status  outbox.Status
		payload []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &row.Aggregate, &row.Seq, (*int16)(&status), &payload}, func() error {
		row.ID, row.Sent, row.Payload = id, status == outbox.StatusSent, verdict.SumOf(payload)
		j.Row(row)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the outbox: %w", err)
	}
	return nil
}

// readTopics reads each partition up to its end.
func readTopics(ctx context.Context, b *broker, j *verdict.Judge) error {
	client, err := plainClient(b)
	if err != nil {
		return err
	}
	defer client.Close()
	left, err := ends(ctx, client)
	if err != nil {
		return err
	}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("reading the topics: %d partitions were not read to their end: %w", len(left), context.Cause(ctx))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			place := verdict.Place{Topic: r.Topic, Partition: r.Partition}
			end, ok := left[place]
			if !ok {
				return
			}
			id, _ := uuid.Parse(header(r, headerID)) // zero: the judge finds no row for it
			j.Record(verdict.Record{Place: place, ID: verdict.ID(id), Key: string(r.Key), Value: verdict.SumOf(r.Value)})
			if r.Offset+1 >= end {
				delete(left, place)
			}
		})
	}
	return nil
}

// ends gives the end offset of every partition that holds anything.
func ends(ctx context.Context, client *kgo.Client) (map[verdict.Place]int64, error) {
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topics()...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the ends of the topics: %w", err)
	}
	out := map[verdict.Place]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			out[verdict.Place{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	})
	return out, nil
}
