package relay_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/sink"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// These tests run whole sessions in process: a real Postgres, kfake, and the
// product's own parts between them.

// site is a database with an outbox, and a broker with the topic.
type site struct {
	db    *harness.Database
	kafka *harness.Kfake
	log   io.Writer // of the relay, every level; nil: the test's, from info on
}

const topic = "outbox.event.order"

func newSite(t *testing.T, pg *harness.Postgres) *site {
	t.Helper()
	s := &site{db: pg.CreateDatabase(t), kafka: harness.StartKfake(t, harness.KfakeOptions{})}
	s.kafka.CreateTopic(t, topic, 3, nil)
	ddl, err := migrations.OutboxDDL(migrations.OutboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, stmt := range ddl {
		s.db.Exec(t, stmt)
	}
	conn, err := pgx.ParseConfig(s.db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	return s
}

// insert commits one transaction with a row for each key.
func (s *site) insert(t *testing.T, keys ...string) {
	t.Helper()
	for _, k := range keys {
		s.db.Exec(t, `insert into public.outbox (aggregate_type, aggregate_id, event_type, payload) values ('order', $1, 'placed', 'hi')`, k)
	}
}

// slotName is unique in the server, since slots are the server's.
func (s *site) slotName() string { return "s_" + s.db.Name() }

func (s *site) config() relay.Config {
	return relay.Config{
		Relay: "default", Slot: s.slotName(), Publication: "outbox_relay_pub", Schema: "public", Table: "outbox", SentAt: "sent_at",
		OnMissing: "create",
		Mapping: decode.Mapping{ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
			Topic: "topic", Key: "message_key", Payload: "payload", ContentType: "content_type", Headers: "headers",
			DeliverAfter: "deliver_after", CreatedAt: "created_at", Status: "status"},
	}
}

// running is a relay in this process.
type running struct {
	*relay.Relay
	stop func() error
}

// start runs a relay; change may adjust its configuration. The test ends it
// if it has not been stopped.
func (s *site) start(t *testing.T, change func(*relay.Config)) *running {
	t.Helper()
	cfg := s.config()
	if change != nil {
		change(&cfg)
	}
	stream, err := pgconn.ParseConfig(s.db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	query, err := pgx.ParseConfig(s.db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel)
	if s.log != nil {
		log = zerolog.New(s.log)
	}
	out, err := sink.New(sink.Config{Brokers: s.kafka.Brokers(), Logger: log, Slot: cfg.Slot,
		ClientOptions: []kgo.Opt{kgo.MetadataMinAge(50 * time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(cfg, relay.Deps{Stream: cdc.Config{Conn: stream, Logger: log}, Store: store.Config{Conn: query}, Sink: out, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	var result error
	run := &running{Relay: r, stop: func() error {
		once.Do(func() {
			cancel()
			result = <-done
			out.Close()
		})
		return result
	}}
	t.Cleanup(func() { _ = run.stop() })
	return run
}

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *site) waitStatus(t *testing.T, status, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d rows with status %d", n, status), func() bool {
		return s.db.Query1(t, `select count(*) from public.outbox where status = $1`, status) == fmt.Sprint(n)
	})
}

// TestRowsReachKafkaAndAreMarked is the thread through the whole: committed
// rows arrive, are marked SENT, and the slot stands at the end.
func TestRowsReachKafkaAndAreMarked(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	r := s.start(t, nil)
	eventually(t, "streaming", func() bool { return r.Status().State == relay.Streaming })
	for range 10 {
		s.insert(t, "a", "b", "c")
	}
	s.waitStatus(t, 2, 30)
	if n := len(s.kafka.Dump(t, topic)); n != 30 {
		t.Fatalf("%d records, want 30", n)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestCleanRestartRepeatsNothing proves the confirm of the end LSN and the
// farewell: five stops and starts add no copy.
// Case F29 of docs/guarantees.md.
func TestCleanRestartRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	for i := range 5 {
		r := s.start(t, nil)
		eventually(t, "streaming", func() bool { return r.Status().State == relay.Streaming })
		s.insert(t, "a", "b")
		s.waitStatus(t, 2, 2*(i+1))
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(s.kafka.Dump(t, topic)); n != 2*(i+1) {
			t.Fatalf("round %d: %d records, want %d", i, n, 2*(i+1))
		}
	}
}
