package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// probe is one latency run: rows written at a steady pace, one a transaction,
// and the times at which each was committed and consumed, by this process's
// clock. A row's number is its key.
type probe struct {
	rate     int
	warmUp   int         // rows before the measured ones
	sent     []time.Time // commit returned; zero: not written. Each is written by one writer
	got      []time.Time // the consumer had it; the consumer's alone
	written  atomic.Int64
	consumed atomic.Int64 // different rows
}

// insertProbe writes one row; its number is key and order at once.
const insertProbe = `insert into public.outbox (aggregate_type, aggregate_id, event_type, message_key, payload)
	values ('bench', $1::text, 'OrderPlaced', $1::text, bench_payload($2::bigint, $3::int))`

func newProbe(o options, rate int) *probe {
	total := int(float64(rate) * (o.warmUp + o.measure).Seconds())
	return &probe{rate: rate, warmUp: int(float64(rate) * o.warmUp.Seconds()), sent: make([]time.Time, total), got: make([]time.Time, total)}
}

// writers is how many connections a rate needs: one commits some 1,000 rows a
// second while others work.
func (p *probe) writers() int { return max(2, p.rate/400) }

// write writes all rows, each at its time. A writer that falls behind goes on
// without a pause; what is not written when the time is over is left out.
func (p *probe) write(ctx context.Context, d *database, payload int) error {
	n := p.writers()
	conns := make([]*pgx.Conn, n)
	for i := range conns {
		conn, err := d.pg.Connect(ctx, d.name)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		conns[i] = conn
	}
	errs := make([]error, n)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for row := i; row < len(p.sent) && errs[i] == nil; row += n {
				errs[i] = p.writeOne(ctx, conns[i], began, row, payload)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (p *probe) writeOne(ctx context.Context, conn *pgx.Conn, began time.Time, row, payload int) error {
	due := began.Add(time.Duration(row) * time.Second / time.Duration(p.rate))
	if wait := time.Until(due); wait > 0 {
		time.Sleep(wait)
	}
	if time.Since(began) > time.Duration(len(p.sent))*time.Second/time.Duration(p.rate) {
		return nil // the time is over
	}
	if _, err := conn.Exec(ctx, insertProbe, strconv.Itoa(row), row, payload); err != nil {
		return fmt.Errorf("writing row %d: %w", row, err)
	}
	p.sent[row] = time.Now()
	p.written.Add(1)
	return nil
}

// consume reads the topic from its start until ctx ends.
func (p *probe) consume(ctx context.Context, brokers []string, topic string) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		fetches := c.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consuming %s: %w", topic, err)
		}
		var bad error
		fetches.EachRecord(func(r *kgo.Record) {
			row, err := strconv.Atoi(string(r.Key))
			if err != nil || row < 0 || row >= len(p.got) {
				bad = fmt.Errorf("consuming %s: unexpected key %q", topic, r.Key)
				return
			}
			if p.got[row].IsZero() {
				p.got[row] = now
				p.consumed.Add(1)
			}
		})
		if bad != nil {
			return bad
		}
	}
}

// times are the latencies of the measured rows, rising, in milliseconds. Only
// after write and consume have returned.
func (p *probe) times() []float64 {
	var ms []float64
	for row := p.warmUp; row < len(p.sent); row++ {
		if !p.sent[row].IsZero() {
			ms = append(ms, float64(p.got[row].Sub(p.sent[row]).Microseconds())/1000)
		}
	}
	slices.Sort(ms)
	return ms
}

// quantile of rising values; 0 of none.
func quantile(rising []float64, q float64) float64 {
	if len(rising) == 0 {
		return 0
	}
	return rising[min(len(rising)-1, int(q*float64(len(rising))))]
}

// runLatency measures one rate. startReader starts what carries the rows from
// a slot to a topic: the relay, or the floor.
func runLatency(ctx context.Context, b *bench, d *database, rate int, startReader func(slot, topic string) (*child, error)) (sample, error) {
	slot, err := d.freshSlot(ctx, "")
	if err != nil {
		return sample{}, err
	}
	topic, err := b.kafka.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	c, err := startReader(slot, topic)
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	s, err := b.probeReader(ctx, d, probeTarget{child: c, slot: slot, topic: topic, rate: rate})
	if err != nil {
		return s, err
	}
	if err := c.stop(); err != nil {
		return s, err
	}
	if err := d.dropSlot(ctx, slot); err != nil {
		return s, err
	}
	return s, b.kafka.deleteTopic(ctx, topic)
}

// probeTarget is a running reader and where it reads and writes.
type probeTarget struct {
	child       *child
	slot, topic string
	rate        int
}

// deliveryLimit is how long after the last write everything must be consumed.
const deliveryLimit = 30 * time.Second

func (b *bench) probeReader(ctx context.Context, d *database, t probeTarget) (sample, error) {
	ctx, stop := t.child.while(ctx)
	defer stop()
	walsender, _, err := d.waitTaken(ctx, t.slot)
	if err != nil {
		return sample{}, err
	}
	p := newProbe(b.o, t.rate)
	consuming, stopConsumer := context.WithCancel(ctx)
	consumed := make(chan error, 1)
	go func() { consumed <- p.consume(consuming, b.kafka.brokers, t.topic) }()
	m := &meter{relay: t.child.pid(), walsender: walsender, broker: b.kafka.pid}
	err = m.begin(time.Now())
	if err == nil {
		err = p.write(ctx, d, b.o.payload)
	}
	if err == nil {
		err = p.awaitAll(ctx)
	}
	over := time.Now()
	stopConsumer()
	if err = errors.Join(err, <-consumed); err != nil {
		return sample{}, err
	}
	s, err := m.end(over, int(p.written.Load()))
	ms := p.times()
	s.P50, s.P99 = quantile(ms, .5), quantile(ms, .99)
	return s, err
}

func (p *probe) awaitAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deliveryLimit, errors.New("rows are missing"))
	defer cancel()
	err := poll(ctx, 5*time.Millisecond, func() (bool, error) { return p.consumed.Load() == p.written.Load(), nil })
	if err != nil {
		return fmt.Errorf("waiting for the consumer: %d of %d rows: %w", p.consumed.Load(), p.written.Load(), err)
	}
	return nil
}
