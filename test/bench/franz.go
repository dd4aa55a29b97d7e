package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzSpec tells the client alone what to produce.
type franzSpec struct {
	Brokers []string
	Topic   string
	Codec   string
	Rows    int
	Bytes   int
}

// runFranz lets the Kafka client alone produce as many records of the same
// size to the same broker: the ceiling of everything behind the sink.
func runFranz(ctx context.Context, b *bench, rows int) (sample, error) {
	topic, err := b.kafka.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	c, err := startSelf(b.dir, "franz", franzSpec{Brokers: b.kafka.brokers, Topic: topic, Codec: b.o.codec, Rows: rows, Bytes: b.o.payload})
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	s, err := followFranz(c, b.kafka.pid, rows)
	if err != nil {
		return s, err
	}
	if err := c.stop(); err != nil {
		return s, err
	}
	return s, b.kafka.deleteTopic(ctx, topic)
}

// followFranz lets the child begin and measures until it is done.
func followFranz(c *child, broker, rows int) (sample, error) {
	var up struct{} // said when it is connected
	if err := c.hear(&up); err != nil {
		return sample{}, err
	}
	m := &meter{relay: c.pid(), broker: broker}
	if err := m.begin(time.Now()); err != nil {
		return sample{}, err
	}
	var done struct{} // said when every record was acknowledged
	if err := c.hear(&done); err != nil {
		return sample{}, err
	}
	return m.end(time.Now(), rows)
}

// warmRows is how many records a fresh Kafka gets before anything is measured:
// its machine code is made while it works.
const warmRows = 300_000

// franzChild produces and says how long it took.
func franzChild(ctx context.Context, spec franzSpec, say func(any) error) error {
	codec, err := kgoCodec(spec.Codec)
	if err != nil {
		return err
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(spec.Brokers...), kgo.DefaultProduceTopic(spec.Topic),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(codec),
		kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(1_000_000))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	if err := say(struct{}{}); err != nil {
		return err
	}
	if err := produceAll(ctx, c, spec); err != nil {
		return err
	}
	if err := say(struct{}{}); err != nil {
		return err
	}
	<-ctx.Done() // the parent reads our books first
	return nil
}

func produceAll(ctx context.Context, c *kgo.Client, spec franzSpec) error {
	value := make([]byte, spec.Bytes)
	for i := range value {
		value[i] = 'a' + byte(i*7%26)
	}
	headers := []kgo.RecordHeader{
		{Key: "outbox-id", Value: []byte("00000000-0000-0000-0000-000000000000")}, {Key: "outbox-type", Value: []byte("OrderPlaced")},
		{Key: "outbox-position", Value: []byte("00000001/00000000/00000000/000000")}, {Key: "content-type", Value: []byte("application/json")},
		{Key: "source", Value: []byte("bench")}, {Key: "schema", Value: []byte("order.v1")},
	}
	var acked atomic.Int64
	var failed atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
			return
		}
		acked.Add(1)
	}
	for i := range spec.Rows {
		v := make([]byte, len(value)) // the relay copies each row too
		copy(v, value)
		c.Produce(context.Background(), &kgo.Record{Key: strconv.AppendInt(nil, int64(i%10007), 10), Value: v, Headers: headers}, done)
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	if n := acked.Load(); n != int64(spec.Rows) {
		return fmt.Errorf("%d records acknowledged, want %d", n, spec.Rows)
	}
	return nil
}

func kgoCodec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("unknown codec %q", name)
}
