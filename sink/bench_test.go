package sink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// BenchmarkPublish measures rows through Publish, and the same rows through a
// plain loop around the client, to one kfake broker in this process: 500-byte
// values that compress about two to one, 12 partitions, four headers. The
// difference of the two is what the sink costs.
func BenchmarkPublish(b *testing.B) {
	for _, codec := range []string{"none", "lz4"} {
		b.Run("client/"+codec, func(b *testing.B) { benchClient(b, codec) })
		b.Run("sink/"+codec, func(b *testing.B) { benchSink(b, codec) })
	}
}

// processTime is the processor time that this process has used. Beside other
// work on the machine it says more than the clock.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCost(b *testing.B, before time.Duration) {
	b.ReportMetric(float64(processTime(b)-before)/float64(b.N), "cpu-ns/row")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func benchCluster(b *testing.B) []string {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(12, "bench"), kfake.BlackholeProduce())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c.ListenAddrs()
}

func benchEvents() []*outbox.Event {
	events := make([]*outbox.Event, 4096)
	for i := range events {
		value := make([]byte, 500)
		for j := range value {
			value[j] = byte('a' + rand.IntN(16)*(j%2))
		}
		events[i] = &outbox.Event{
			Position: outbox.Position{Timeline: 1, Commit: outbox.LSN(i) << 8, Index: i % 10}, CommitTime: time.Now(),
			ID: fmt.Sprintf("0192f3a0-0000-7000-8000-%012d", i), AggregateType: "order", Type: "order.created",
			AggregateID: fmt.Sprintf("customer-%d", i%1000), HasAggregate: true, Topic: "bench",
			ContentType: "application/json", Payload: value, Headers: "{}", CreatedAt: time.Now(),
		}
	}
	return events
}

// window is how many rows may be in flight, as the relay's span bounds them.
const window = 50_000

func benchClient(b *testing.B, name string) {
	chosen, _ := codec(name)
	client, err := kgo.NewClient(kgo.SeedBrokers(benchCluster(b)...), kgo.ProducerBatchCompression(chosen),
		kgo.MaxBufferedRecords(window), kgo.ProducerLinger(0), kgo.DisableClientMetrics(), kgo.StopProducerOnDataLossDetected(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	events := benchEvents()
	var failed atomic.Int64
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	b.ReportAllocs()
	cpu := processTime(b)
	b.ResetTimer()
	for i := range b.N {
		e := events[i%len(events)]
		client.Produce(context.Background(), &kgo.Record{
			Topic: "bench", Partition: int32(partitionOf(e.AggregateID, 12)), Key: []byte(e.AggregateID), Value: e.Payload, Timestamp: e.CreatedAt,
			Headers: []kgo.RecordHeader{
				{Key: headerID, Value: []byte(e.ID)}, {Key: headerType, Value: []byte(e.Type)},
				{Key: headerPosition, Value: e.Position.Append(nil)}, {Key: headerContentType, Value: []byte(e.ContentType)},
			},
		}, promise)
	}
	if err := client.Flush(context.Background()); err != nil || failed.Load() > 0 {
		b.Fatal(err, failed.Load())
	}
	b.StopTimer()
	reportCost(b, cpu)
}

func benchSink(b *testing.B, codec string) {
	k, err := New(Config{Brokers: benchCluster(b), Codec: codec})
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	events := benchEvents()
	var acked, failed atomic.Int64
	room := make(chan struct{}, 1)
	s, err := k.NewSession(context.Background(), SessionOptions{
		Report: func(o outbox.Outcome) {
			if o.Verdict != outbox.Acked {
				failed.Add(1)
			}
			if acked.Add(1)%1024 == 0 {
				select {
				case room <- struct{}{}:
				default:
				}
			}
		},
		Interrupted: func(err error) { b.Error(err) },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	cpu := processTime(b)
	b.ResetTimer()
	for i := range b.N {
		s.Publish(outbox.Ticket(i+1), events[i%len(events)])
		for i%256 == 0 && int64(i)-acked.Load() >= window {
			<-room
		}
	}
	s.Kick()
	for acked.Load() < int64(b.N) {
		time.Sleep(100 * time.Microsecond)
	}
	b.StopTimer()
	if failed.Load() > 0 {
		b.Fatal(failed.Load(), "not acked")
	}
	reportCost(b, cpu)
}

// BenchmarkOneRow measures the way there and back of a single row, which is
// the latency of a quiet system.
func BenchmarkOneRow(b *testing.B) {
	e := benchEvents()[0]
	b.Run("client", func(b *testing.B) {
		client, err := kgo.NewClient(kgo.SeedBrokers(benchCluster(b)...), kgo.ProducerLinger(0), kgo.DisableClientMetrics())
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		for b.Loop() {
			if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: "bench", Value: e.Payload}).FirstErr(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sink", func(b *testing.B) {
		k, err := New(Config{Brokers: benchCluster(b)})
		if err != nil {
			b.Fatal(err)
		}
		defer k.Close()
		acked := make(chan outbox.Verdict, 1)
		s, err := k.NewSession(context.Background(), SessionOptions{Report: func(o outbox.Outcome) { acked <- o.Verdict }})
		if err != nil {
			b.Fatal(err)
		}
		ticket := outbox.Ticket(0)
		for b.Loop() {
			ticket++
			s.Publish(ticket, e)
			s.Kick()
			if v := <-acked; v != outbox.Acked {
				b.Fatal(v)
			}
		}
	})
}
