package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// bench is one invocation. It belongs to one goroutine.
type bench struct {
	o        options
	progress *progress
	dir      string // of logs and configurations
	relay    string // path of the binary; "" in-process
	pg       *pgserver.Server
	kafka    *broker // the real one; nil when no scenario needs it
	profiles int     // written so far
	cells    []*cell // measured, in the order of the table
}

// cell is one line of the table: a scenario on a shape and a link.
type cell struct {
	scenario string
	shape    int // rows in a transaction
	link     string
	rate     int // rows a second wanted; 0: as fast as it goes
	run      func(context.Context) (sample, error)

	samples []sample
	loads   []float64 // load average before each
	err     error     // of a run; the cell is not run again
}

// measure does everything there is to do. What was measured before an error
// is kept.
func (b *bench) measure(ctx context.Context) (err error) {
	if b.dir, err = tempDir(); err != nil {
		return err
	}
	if b.o.profile != "" {
		if err := os.MkdirAll(b.o.profile, 0o755); err != nil {
			return fmt.Errorf("making the directory of profiles: %w", err)
		}
	}
	if err := b.startServers(ctx); err != nil {
		return err
	}
	var errs []error
	if b.o.peer != "" || b.o.wantsAny("raw", "null", "kfake", "kafka-off", "kafka-status", "franz", "outage", "kill") {
		for _, shape := range b.o.shapes {
			errs = append(errs, b.measureBacklog(ctx, shape))
		}
	}
	if b.o.wantsAny("latency", "restart") && ctx.Err() == nil {
		errs = append(errs, b.measureLatency(ctx))
	}
	for _, c := range b.cells {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name(), c.err))
		}
	}
	return errors.Join(errs...)
}

func (b *bench) startServers(ctx context.Context) (err error) {
	if b.o.wantsAny("kfake", "kafka-off", "kafka-status", "outage", "kill", "latency", "restart") && !b.o.inProcess {
		if b.relay = b.o.relay; b.relay == "" {
			b.progress.say("building outbox-relay")
			if b.relay, err = buildRelay(ctx, b.dir); err != nil {
				return err
			}
		}
	}
	b.progress.say("starting servers")
	if b.pg, err = startServer(ctx); err != nil {
		return err
	}
	if b.o.peer != "" || b.o.wantsAny("kafka-off", "kafka-status", "franz", "outage", "kill", "latency", "restart") {
		if b.kafka, err = startKafka(ctx); err != nil {
			return err
		}
		if _, err = runFranz(ctx, b, warmRows); err != nil {
			return fmt.Errorf("warming Kafka up: %w", err)
		}
	}
	return nil
}

// close stops the servers and removes the directory.
func (b *bench) close() {
	if b.kafka != nil {
		b.kafka.close()
	}
	if b.pg != nil {
		_ = b.pg.Close() // its directories go with this process in any case
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// measureBacklog loads one backlog and runs its scenarios over it.
func (b *bench) measureBacklog(ctx context.Context, shape int) error {
	add, _ := b.progress.bar(b.o.rows, fmt.Sprintf("writing %d rows, %d in a transaction", b.o.rows, shape))
	l, err := loadBacklog(ctx, b, shape, add)
	if err != nil {
		return err
	}
	var cells []*cell
	for _, link := range b.o.links {
		cells = append(cells, b.throughput(l, link)...)
		cells = append(cells, b.peerCells(l, link)...)
	}
	if shape == b.o.shapes[0] && b.o.wants("franz") {
		cells = append(cells, &cell{scenario: "franz", link: tcp,
			run: func(ctx context.Context) (sample, error) { return runFranz(ctx, b, b.o.rows) }})
	}
	b.rounds(ctx, cells)
	return l.drop(context.WithoutCancel(ctx))
}

// throughput lists the scenarios of a backlog over a link.
func (b *bench) throughput(l *backlog, link string) []*cell {
	var cells []*cell
	add := func(family, scenario string, run func(context.Context) (sample, error)) {
		if b.o.wants(family) {
			cells = append(cells, &cell{scenario: scenario, shape: l.shape, link: link, run: run})
		}
	}
	relay := func(r relayRun) func(context.Context) (sample, error) {
		r.link = link
		return func(ctx context.Context) (sample, error) {
			if r.broker != nil {
				return runRelay(ctx, b, l, r)
			}
			fake, err := startKfake(b.dir)
			if err != nil {
				return sample{}, err
			}
			defer fake.close()
			r := r
			r.broker = fake
			return runRelay(ctx, b, l, r)
		}
	}
	null := func(s nullRun) func(context.Context) (sample, error) {
		s.link = link
		return func(ctx context.Context) (sample, error) { return runNull(ctx, b, l, s) }
	}
	add("raw", "raw", func(ctx context.Context) (sample, error) { return runRaw(ctx, b, l, link) })
	add("null", "null", null(nullRun{}))
	if link == tcp && b.o.gulp > 0 {
		add("null", "null-gulps", null(nullRun{gulp: b.o.gulp}))
	}
	add("kfake", "kfake-off", relay(relayRun{writeBack: "off"}))
	add("kafka-off", "kafka-off", relay(relayRun{broker: b.kafka, writeBack: "off"}))
	add("kafka-status", "kafka-status", relay(relayRun{broker: b.kafka, writeBack: "status"}))
	if link == b.o.links[0] {
		off := relayRun{broker: b.kafka, link: link, writeBack: "off"}
		add("outage", "outage", func(ctx context.Context) (sample, error) { return runOutage(ctx, b, l, off) })
		add("kill", "kill", func(ctx context.Context) (sample, error) { return runKill(ctx, b, l, off) })
	}
	return cells
}

// measureLatency runs what needs a quiet outbox.
func (b *bench) measureLatency(ctx context.Context) error {
	d, err := createDatabase(ctx, b.pg, "bench_latency")
	if err != nil {
		return err
	}
	link := b.o.links[0]
	startRelay := func(slot, topic string) (*child, error) {
		return b.startRelay(relaySpec{DSN: d.dsn(link), Slot: slot, Brokers: b.kafka.brokers, Topic: topic,
			WriteBack: b.o.writeBack, Codec: b.o.codec, Gulp: b.o.gulp})
	}
	startFloor := func(slot, topic string) (*child, error) {
		return startSelf(b.dir, "floor", floorSpec{DSN: d.dsn(link), Slot: slot, Brokers: b.kafka.brokers, Topic: topic})
	}
	var cells []*cell
	if b.o.wants("latency") {
		for _, rate := range b.o.rates {
			latency := func(scenario string, reader func(slot, topic string) (*child, error)) *cell {
				return &cell{scenario: fmt.Sprintf("%s-%d", scenario, rate), shape: 1, link: link, rate: rate,
					run: func(ctx context.Context) (sample, error) { return runLatency(ctx, b, d, rate, reader) }}
			}
			cells = append(cells, latency("floor", startFloor), latency("latency", startRelay))
			cells = append(cells, b.peerLatency(d, rate)...)
		}
	}
	if b.o.wants("restart") {
		cells = append(cells, &cell{scenario: "restart", shape: 1, link: link,
			run: func(ctx context.Context) (sample, error) { return runRestart(ctx, b, d, startRelay) }})
	}
	b.rounds(ctx, cells)
	return d.drop(context.WithoutCancel(ctx))
}

// rounds runs the cells in turn, again and again.
func (b *bench) rounds(ctx context.Context, cells []*cell) {
	b.cells = append(b.cells, cells...)
	add, now := b.progress.bar(len(cells)*b.o.repeat, fmt.Sprintf("%d scenarios, %d times", len(cells), b.o.repeat))
	for round := range b.o.repeat {
		for _, c := range cells {
			if c.err != nil || ctx.Err() != nil {
				continue
			}
			now(fmt.Sprintf("%s (%d/%d)", c.name(), round+1, b.o.repeat))
			load := load1()
			limited, cancel := context.WithTimeoutCause(ctx, b.o.limit, fmt.Errorf("not done within %v", b.o.limit))
			s, err := c.run(limited)
			cancel()
			add(1)
			if err != nil {
				c.err = err
				continue
			}
			c.samples, c.loads = append(c.samples, s), append(c.loads, load)
		}
	}
}

func (c *cell) name() string {
	if c.shape == 0 {
		return c.scenario
	}
	return fmt.Sprintf("%s %d/tx %s", c.scenario, c.shape, c.link)
}
