package chaos

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/sink"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// confirmed is what a relay logs when a stop has seen its last confirm.
const confirmed = "everything received is settled and confirmed"

// embedded is a relay in this process, as a program that imports it would run
// it.
type embedded struct {
	*relay.Relay
	cancel context.CancelFunc
	done   chan error
}

// embed starts one for a site.
func embed(t *testing.T, s *rig.Site, out *sink.Kafka, log io.Writer) *embedded {
	t.Helper()
	stream, err := pgconn.ParseConfig(s.DB.DSN())
	if err != nil {
		t.Fatal(err)
	}
	query, err := pgx.ParseConfig(s.DB.DSN())
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(relay.Config{
		Relay: "default", Slot: s.Slot(), Publication: "outbox_relay_pub", Schema: "public", Table: "outbox", SentAt: "sent_at",
		Mapping: decode.Mapping{ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
			Payload: "payload", Headers: "headers", CreatedAt: "created_at", Status: "status"},
	}, relay.Deps{Stream: cdc.Config{Conn: stream}, Store: store.Config{Conn: query}, Sink: out, Logger: zerolog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &embedded{Relay: r, cancel: cancel, done: make(chan error, 1)}
	go func() { e.done <- r.Run(ctx) }()
	t.Cleanup(cancel)
	return e
}

// stop ends it and wants that to be clean.
func (e *embedded) stop(t *testing.T) {
	t.Helper()
	e.cancel()
	select {
	case err := <-e.done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the relay did not stop")
	}
}

// TestTwoHundredSessions proves that a start confirms nothing that it has not
// read, and a stop loses and repeats nothing: two hundred relays follow each
// other in one process, each is stopped right after a commit, whether it has
// read that row, sent it, or not.
// Case F52 of docs/guarantees.md.
func TestTwoHundredSessions(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	out, err := sink.New(sink.Config{Brokers: s.Kafka.Brokers(), Logger: zerolog.Nop(), Slot: s.Slot(), ClientOptions: []kgo.Opt{kgo.MetadataMinAge(50 * time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	tr := s.Truth(t)
	conn := s.DB.Conn(t)
	const sessions = 200
	log, carried := &rig.Log{}, 0
	for i := range sessions {
		e := embed(t, s, out, log)
		rig.Eventually(t, patience, "streaming", func() bool { return e.Status().State == relay.Streaming })
		exec(t, conn, fmt.Sprintf(`insert into public.outbox (aggregate_id, payload) values ('k%d', '%d')`, i%5, i))
		if i%4 == 3 { // some are stopped when the row is on its way
			rig.Eventually(t, patience, "the row is read", func() bool { st := e.Status(); return st.HeldRows > 0 || s.Count(t, "status = 0") == "0" })
		}
		e.stop(t)
		if s.Count(t, "status = 0") != "0" {
			carried++
		}
	}
	e := embed(t, s, out, log)
	s.Settled(t)
	e.stop(t)
	if n := strings.Count(log.String(), confirmed); n < sessions*9/10 { // a busy server may take longer than a stop waits
		t.Errorf("%d of %d stops saw their last confirm", n, sessions)
	}
	t.Logf("%d rows were left to the next session", carried)
	if carried == 0 {
		t.Error("no row was left to a next session: no stop has come before the end of a row")
	}
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Rows != sessions || rep.Published != sessions || rep.Waiting != 0 || rep.Duplicates != 0 {
		t.Fatalf("%d rows, %d published, %d waiting, %d repeated", rep.Rows, rep.Published, rep.Waiting, rep.Duplicates)
	}
}

// TestTwentyProcesses proves the same of the built program and SIGTERM.
func TestTwentyProcesses(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	const processes = 20
	for range processes {
		p := s.Start(t)
		p.Ready()
		s.Insert(t, "k")
		p.Stop()
	}
	p := s.Start(t)
	s.Settled(t)
	p.Ready()
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Rows != processes || rep.Published != processes || rep.Waiting != 0 || rep.Duplicates != 0 {
		t.Fatalf("%d rows, %d published, %d waiting, %d repeated", rep.Rows, rep.Published, rep.Waiting, rep.Duplicates)
	}
}
