package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

const systemID = "7000000000000000001"

// scene is a fresh database with the relay's schema, and a table to relay.
type scene struct {
	t     *testing.T
	db    *harness.Database
	table store.Table
	mode  store.WriteBack
	log   zerolog.Logger

	lockTimeout time.Duration

	ticket outbox.Ticket
}

// defaultTable is the outbox of migrations.OutboxDDL.
func defaultTable() store.Table {
	return store.Table{Schema: "public", Name: "outbox", Key: []store.Column{{Name: "id", Type: "bigint"}},
		EventID: "event_id", Status: "status", SentAt: "sent_at"}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return sceneIn(t, harness.SharedPostgres(t, 0).CreateDatabase(t))
}

func sceneIn(t *testing.T, db *harness.Database) *scene {
	t.Helper()
	s := bareScene(t, db)
	ddl, err := migrations.OutboxDDL(migrations.OutboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ddl {
		db.Exec(t, d)
	}
	return s
}

// bareScene has the relay's schema only.
func bareScene(t *testing.T, db *harness.Database) *scene {
	t.Helper()
	if _, err := migrations.Up(t.Context(), parse(t, db.DSN())); err != nil {
		t.Fatal(err)
	}
	return &scene{t: t, db: db, table: defaultTable(), mode: store.WriteStatus, log: zerolog.Nop(),
		lockTimeout: 300 * time.Millisecond}
}

func parse(t testing.TB, dsn string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *scene) config() store.Config {
	return store.Config{Conn: parse(s.t, s.db.DSN()), Relay: "default", Slot: "outbox_relay", Table: s.table, Mode: s.mode, Logger: s.log,
		LockTimeout: s.lockTimeout}
}

// open gives a Store without a session.
func (s *scene) open() *store.Store {
	s.t.Helper()
	st, err := store.Open(s.t.Context(), s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = st.Close(s.t.Context()) })
	return st
}

// session gives a Store that owns the position row.
func (s *scene) session() *store.Store {
	s.t.Helper()
	st := s.open()
	s.takeOver(st)
	return st
}

func (s *scene) takeOver(st *store.Store) store.Owned {
	s.t.Helper()
	owned, err := st.TakeOver(s.t.Context(), store.Takeover{SystemID: systemID, Timeline: 1, Start: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	return owned
}

// insert adds n rows in one transaction and gives their events, whose
// commit position is commit.
func (s *scene) insert(n int, commit outbox.LSN) []*outbox.Event {
	s.t.Helper()
	conn := s.db.Conn(s.t)
	rows, err := conn.Query(s.t.Context(), `insert into public.outbox (aggregate_type, aggregate_id, event_type)
		select 'order', 'key ' || i, 'created' from generate_series(1, $1::int) i returning id::text, event_id::text`, n)
	if err != nil {
		s.t.Fatal(err)
	}
	events := make([]*outbox.Event, 0, n)
	var id, eventID string
	_, err = pgx.ForEachRow(rows, []any{&id, &eventID}, func() error {
		events = append(events, event(commit, len(events), eventID, id))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return events
}

// event gives an event whose row has this key.
func event(commit outbox.LSN, index int, eventID string, key ...string) *outbox.Event {
	rowKey, err := json.Marshal(key)
	if err != nil {
		panic(err)
	}
	return &outbox.Event{Position: outbox.Position{Timeline: 1, Commit: commit, Index: index}, RowKey: string(rowKey), ID: eventID,
		AggregateType: "order", AggregateID: fmt.Sprintf("key %d", index+1), HasAggregate: true, Type: "created"}
}

func record(e *outbox.Event, value string) *outbox.Record {
	key, _ := e.Key()
	return &outbox.Record{Topic: "orders", Timestamp: time.UnixMilli(1), Key: []byte(key), Value: []byte(value),
		Headers: []outbox.Header{{Key: "outbox-id", Value: []byte(e.ID)}}}
}

func (s *scene) acked(events ...*outbox.Event) []outbox.Outcome {
	var out []outbox.Outcome
	for _, e := range events {
		s.ticket++
		out = append(out, outbox.Outcome{Ticket: s.ticket, Event: e, Verdict: outbox.Acked})
	}
	return out
}

// refused gives a refusal that holds its key.
func (s *scene) refused(e *outbox.Event, detail string) outbox.Outcome {
	s.ticket++
	return outbox.Outcome{Ticket: s.ticket, Event: e, Verdict: outbox.Refused, Holds: true, Record: record(e, "value"),
		Refusal: outbox.Refusal{Class: outbox.ClassTooLarge, Code: "MESSAGE_TOO_LARGE", Detail: detail}}
}

func (s *scene) diverted(e *outbox.Event) outbox.Outcome {
	s.ticket++
	return outbox.Outcome{Ticket: s.ticket, Event: e, Verdict: outbox.Diverted, Holds: true, Record: record(e, "behind")}
}

func progress(lsn outbox.LSN) outbox.Progress { return outbox.Progress{Timeline: 1, LSN: lsn} }

// settle settles and fails the test on an error.
func (s *scene) settle(st *store.Store, lsn outbox.LSN, outcomes ...outbox.Outcome) store.Settled {
	s.t.Helper()
	done, err := st.Settle(s.t.Context(), store.Batch{Progress: progress(lsn), Outcomes: outcomes})
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

func (s *scene) drain(st *store.Store, limit int) int {
	s.t.Helper()
	n, err := st.DrainPending(s.t.Context(), limit)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// want compares the single value of a query.
func (s *scene) want(want, query string, args ...any) {
	s.t.Helper()
	if got := s.db.Query1(s.t, query, args...); got != want {
		s.t.Errorf("%s\ngives %q, want %q", query, got, want)
	}
}

// statuses lists how many rows have which status, as "0:1 2:499".
const statuses = `select coalesce(string_agg(status || ':' || n, ' ' order by status), '') from (select status, count(*) n from public.outbox group by 1) s`

// counts leaves the LSN out of the comparison, which no test can foretell.
func (s *scene) counts(got, want store.Settled) {
	s.t.Helper()
	if got.LSN == 0 {
		s.t.Error("the commit's position is unknown")
	}
	got.LSN = 0
	if got != want {
		s.t.Errorf("settled %+v, want %+v", got, want)
	}
}

func mustExec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
