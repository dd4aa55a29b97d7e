package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/sink"
	"github.com/outboxrelay/outbox-relay/store"
)

// relaySpec is all that differs from a relay's defaults.
type relaySpec struct {
	DSN       string
	Slot      string // also the relay's name, so that each slot has a position row of its own
	Brokers   []string
	Topic     string
	WriteBack string
	Codec     string
	Gulp      time.Duration
	Profile   string // file for a CPU profile, in-process only; "": none
}

// buildRelay builds the binary that is measured.
func buildRelay(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "outbox-relay")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/outboxrelay/outbox-relay/cmd/outbox-relay").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building outbox-relay: %w\n%s", err, out)
	}
	return path, nil
}

// startRelay starts a relay: the binary, or the same parts in a child of this
// program.
func (b *bench) startRelay(spec relaySpec) (*child, error) {
	if b.o.inProcess {
		if b.o.profile != "" {
			b.profiles++
			spec.Profile = filepath.Join(b.o.profile, fmt.Sprintf("relay-%03d-%s.prof", b.profiles, spec.WriteBack))
		}
		return startSelf(b.dir, "relay", spec)
	}
	path := filepath.Join(b.dir, spec.Slot+".yaml")
	if err := os.WriteFile(path, spec.file(), 0o600); err != nil {
		return nil, fmt.Errorf("writing the relay's configuration: %w", err)
	}
	cmd := exec.Command(b.relay, "run", "--config", path)
	for _, v := range os.Environ() { // nothing of this shell's may configure it
		if !strings.HasPrefix(v, "OUTBOX_RELAY_") && !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "DATABASE_URL=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return start(b.dir, "outbox-relay", cmd)
}

// file is the configuration of the binary.
func (s relaySpec) file() []byte {
	text := func(v any) string {
		b, err := json.Marshal(v) // JSON is YAML
		if err != nil {
			panic(fmt.Sprintf("bench: encoding %v: %v", v, err))
		}
		return strings.ReplaceAll(string(b), "$", "$$")
	}
	return fmt.Appendf(nil, `relay: {name: %s}
postgres: {replication: %s}
slot: {name: %s, gulp: %s}
publication: {name: %s}
kafka: {brokers: %s, codec: %s}
route: {topics: {bench: %s}}
write_back: {mode: %s}
listen: {probes: ""}
log: {format: json}
`, text(s.Slot), text(s.DSN), text(s.Slot), s.Gulp, text(publication), text(s.Brokers), text(s.Codec), text(s.Topic), text(s.WriteBack))
}

// relayChild is the relay inside a child of this program, with the defaults of
// the configuration file.
func relayChild(ctx context.Context, spec relaySpec) error {
	if spec.Profile != "" {
		f, err := os.Create(spec.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	stream, err := pgconn.ParseConfig(spec.DSN)
	if err != nil {
		return err
	}
	query, err := pgx.ParseConfig(spec.DSN)
	if err != nil {
		return err
	}
	log := zerolog.New(os.Stderr).With().Timestamp().Logger().Level(zerolog.InfoLevel)
	out, err := sink.New(sink.Config{Brokers: spec.Brokers, Codec: spec.Codec, Logger: log, Slot: spec.Slot,
		Route: sink.Route{Topics: map[string]string{"bench": spec.Topic}}})
	if err != nil {
		return err
	}
	defer out.Close()
	m := mapping()
	m.RowKey = nil // the relay fills it
	r, err := relay.New(relay.Config{
		Relay: spec.Slot, Slot: spec.Slot, Publication: publication, Schema: "public", Table: "outbox", SentAt: "sent_at",
		Mapping: m, WriteBack: relay.WriteBack(spec.WriteBack),
	}, relay.Deps{Stream: cdc.Config{Conn: stream, Gulp: spec.Gulp, Logger: log}, Store: store.Config{Conn: query}, Sink: out, Logger: log})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// relayRun is one throughput run of a relay.
type relayRun struct {
	broker    *broker
	link      string
	writeBack string
	copies    int // records more than rows that the topic may hold
}

// runRelay lets a relay publish the whole backlog.
func runRelay(ctx context.Context, b *bench, l *backlog, r relayRun) (sample, error) {
	if err := l.reset(ctx); err != nil {
		return sample{}, err
	}
	slot, err := l.freshSlot(ctx, l.base)
	if err != nil {
		return sample{}, err
	}
	topic, err := r.broker.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	l.dirty = r.writeBack != "off"
	began := time.Now()
	c, err := b.startRelay(relaySpec{DSN: l.dsn(r.link), Slot: slot, Brokers: r.broker.brokers, Topic: topic,
		WriteBack: r.writeBack, Codec: b.o.codec, Gulp: b.o.gulp})
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	s, err := l.follow(ctx, c, slot, began, r.broker.pid)
	if err != nil {
		return s, err
	}
	return s, l.finishRun(ctx, c, r, topic, slot)
}

// finishRun ends the relay, verifies the run and removes what it used.
func (l *backlog) finishRun(ctx context.Context, c *child, r relayRun, topic, slot string) error {
	if err := c.stop(); err != nil {
		return err
	}
	if err := l.verify(ctx, r, topic); err != nil {
		return err
	}
	if err := l.dropSlot(ctx, slot); err != nil {
		return err
	}
	return r.broker.deleteTopic(ctx, topic)
}

// follow measures from the slot being taken until its confirmed position has
// passed the last row.
func (l *backlog) follow(ctx context.Context, c *child, slot string, began time.Time, brokerPid int) (sample, error) {
	ctx, stop := c.while(ctx)
	defer stop()
	pid, at, err := l.waitTaken(ctx, slot)
	if err != nil {
		return sample{}, err
	}
	m := &meter{relay: c.pid(), walsender: pid, broker: brokerPid}
	if err := m.begin(at); err != nil {
		return sample{}, err
	}
	over, err := l.waitConfirmed(ctx, slot, l.last)
	if err != nil {
		return sample{}, err
	}
	s, err := m.end(over, l.rows)
	s.Startup = at.Sub(began).Seconds()
	return s, err
}

// verify makes sure that the run did what was measured: every row once in the
// topic, and shown as SENT where it should be.
func (l *backlog) verify(ctx context.Context, r relayRun, topic string) error {
	n, err := r.broker.count(ctx, topic)
	if err != nil {
		return err
	}
	if n != l.rows+r.copies {
		return fmt.Errorf("the topic holds %d records, want %d", n, l.rows+r.copies)
	}
	if r.writeBack == "off" {
		return nil
	}
	if n, err = ask[int](ctx, l.database, "select count(*) from public.outbox where status = 2"); err != nil {
		return err
	}
	if n != l.rows {
		return fmt.Errorf("%d rows are SENT, want %d", n, l.rows)
	}
	return nil
}
