package store_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: a committed batch survives a crash of the server even where the
// database says synchronous_commit = off. The writer that would flush
// such a commit by itself sleeps for 10 s.
func TestSettledSurvivesACrash(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{Settings: map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "0"}})
	s := sceneIn(t, p.CreateDatabase(t))
	s.db.Exec(t, `alter database `+s.db.Name()+` set synchronous_commit = off`)
	st := s.session()
	e := s.insert(2, 200)
	s.db.Exec(t, `checkpoint`)
	s.settle(st, 300, append(s.acked(e[0]), s.refused(e[1], "x"))...)
	p.Crash(t)
	p.Start(t)
	s.want("2:1 3:1", statuses)
	s.want("0/12C 1", `select lsn || ' ' || (select count(*) from outbox_relay.line_event) from outbox_relay.position`)
}

// Law: a server in fast shutdown ends the session with ErrServerStopping, at
// whatever call; and a server that starts up says the same.
func TestServerStopping(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{})
	s := sceneIn(t, p.CreateDatabase(t))
	calls := map[string]func(st *store.Store) error{
		"settle": func(st *store.Store) error {
			_, err := st.Settle(t.Context(), store.Batch{Progress: progress(300)})
			return err
		},
		"drain": func(st *store.Store) error { _, err := st.DrainPending(t.Context(), 1); return err },
		"ping":  func(st *store.Store) error { return st.Ping(t.Context()) },
		"lookup": func(st *store.Store) error {
			_, err := st.Lookup(t.Context(), []*outbox.Event{event(1, 0, "", "1")})
			return err
		},
	}
	for name, call := range calls {
		st := s.session()
		s.db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'outbox-relay store'`)
		if err := call(st); !errors.Is(err, store.ErrServerStopping) {
			t.Errorf("%s: %v, want ErrServerStopping", name, err)
		}
		if st.Usable() {
			t.Errorf("%s: the store calls itself usable", name)
		}
	}
	st := s.session()
	p.Stop(t, "fast")
	if err := calls["settle"](st); !errors.Is(err, store.ErrServerStopping) {
		t.Errorf("after the shutdown: %v, want ErrServerStopping", err)
	}
}

// cutConn is a connection that, once armed, passes one more write on and then
// answers nothing: the commit arrives, its answer does not.
type cutConn struct {
	net.Conn
	writes *atomic.Int64 // left before the cut; negative: never
}

func (c cutConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.writes.Add(-1) == 0 {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return n, err
}

// Law: a COMMIT without an answer is ErrCommitUnknown, whether it happened or
// not; a connection lost before it was sent is not. The quick way sends it with
// all the rest, the long way by itself.
func TestCommitWithoutAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcomes func(*scene) []outbox.Outcome
		least    int64 // writes
	}{
		"quick": {func(s *scene) []outbox.Outcome { return s.acked(s.insert(1, 200)...) }, 1},
		"long":  {func(s *scene) []outbox.Outcome { return []outbox.Outcome{s.refused(s.insert(1, 200)[0], "why")} }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			last := c.least - 1
			for n := int64(1); n <= 10; n++ {
				err, usable := s.cutAfter(n, c.outcomes(s))
				if err == nil {
					break
				}
				if last = n; usable {
					t.Errorf("cut after %d writes: the store calls itself usable", n)
				}
				if unknown := errors.Is(err, store.ErrCommitUnknown); unknown && n < c.least {
					t.Errorf("cut after %d writes: %v", n, err)
				} else if unknown {
					s.waitFor(`select lsn = '0/12C' from outbox_relay.position`)
					return
				}
			}
			t.Errorf("cut after up to %d writes, no commit was unknown", last)
		})
	}
}

// cutAfter settles over a connection that answers nothing after so many writes.
func (s *scene) cutAfter(writes int64, outcomes []outbox.Outcome) (err error, usable bool) {
	s.t.Helper()
	left := &atomic.Int64{}
	left.Store(-1)
	cfg := s.config()
	dial := cfg.Conn.DialFunc
	cfg.Conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return cutConn{conn, left}, err
	}
	st, err := store.Open(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = st.Close(s.t.Context()) }()
	s.takeOver(st)
	// Every statement is known to the server from here on.
	s.settle(st, 110, s.acked(s.insert(1, 200)...)...)
	s.settle(st, 120, s.refused(s.insert(1, 200)[0], "why"))
	left.Store(writes)
	_, err = st.Settle(s.t.Context(), store.Batch{Progress: progress(300), Outcomes: outcomes})
	return err, st.Usable()
}

// Law: a commit waits for a synchronous standby longer than the statement
// time-out allows, since cutting the wait short would not undo it; and one that was cancelled while
// it waited is unknown, although the server calls it a success.
func TestCommitWithoutStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{})
	s := sceneIn(t, p.CreateDatabase(t))
	cfg := s.config()
	cfg.StatementTimeout = 500 * time.Millisecond
	st, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close(context.Background())
	s.takeOver(st)
	s.settle(st, 110)
	s.db.Exec(t, `alter system set synchronous_standby_names = 'nobody'`)
	t.Cleanup(func() {
		s.db.Exec(t, `alter system reset synchronous_standby_names`)
		s.db.Exec(t, `select pg_reload_conf()`)
	})
	s.db.Exec(t, `select pg_reload_conf()`)
	s.waitFor(`select current_setting('synchronous_standby_names') = 'nobody'`)
	failed := make(chan error, 1)
	go func() {
		_, err := st.Settle(t.Context(), store.Batch{Progress: progress(300)})
		failed <- err
	}()
	s.waitFor(`select count(*) = 1 from pg_stat_activity where wait_event = 'SyncRep'
		and application_name = 'outbox-relay store' and state_change < now() - interval '1 second'`)
	s.db.Exec(t, `set synchronous_commit = local; select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`)
	if err := <-failed; !errors.Is(err, store.ErrCommitUnknown) {
		t.Errorf("settle: %v, want ErrCommitUnknown", err)
	}
}

// Law: an absent row is gone only when its writer is over for every snapshot:
// one that commits late still gets its status, one that rolled back or was
// deleted leaves the list.
func TestAbsentRowIsGoneOnlyWhenProven(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	writer := s.db.Conn(t)
	mustExec(t, writer, `begin`)
	late := insertedBy(t, writer)
	loser := s.db.Conn(t)
	mustExec(t, loser, `begin`)
	lost := insertedBy(t, loser)
	deleted := s.insert(1, 200)[0]
	s.db.Exec(t, `delete from public.outbox`)
	s.counts(s.settle(st, 300, s.acked(late, lost, deleted)...), store.Settled{Pending: 3})
	s.finds(st, []*outbox.Event{late, lost, deleted}, "[true true true]")
	if n := s.drain(st, 10); n != 0 {
		t.Fatalf("drained %d while the writers run", n)
	}
	mustExec(t, loser, `rollback`)
	mustExec(t, writer, `commit`)
	if n := s.drain(st, 10); n != 3 {
		t.Fatalf("drained %d, want 3", n)
	}
	s.want("2:1", statuses)
	s.want("0", `select count(*) from outbox_relay.pending_status`)
}

func insertedBy(t *testing.T, conn *pgx.Conn) *outbox.Event {
	t.Helper()
	var id, eventID string
	err := conn.QueryRow(t.Context(), `insert into public.outbox (aggregate_type, event_type) values ('a', 'b') returning id::text, event_id::text`).Scan(&id, &eventID)
	if err != nil {
		t.Fatal(err)
	}
	return event(200, 0, eventID, id)
}

// Law: an entry that the outbox refuses, and entries that stay locked, do not
// keep the others from being drained, whatever the limit.
func TestDrainGoesRound(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(20, 200)
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin; select from public.outbox for update`)
	s.counts(s.settle(st, 300, s.acked(e...)...), store.Settled{Pending: 20})
	mustExec(t, holder, `rollback; begin; select from public.outbox where id <= 10 for update`)
	s.db.Exec(t, `create function public.no() returns trigger language plpgsql as $$ begin if new.id = 15 then raise exception 'no'; end if; return new; end $$`)
	mustExec(t, holder, `rollback`)
	s.db.Exec(t, `create trigger no before update on public.outbox for each row execute function public.no()`)
	mustExec(t, holder, `begin; select from public.outbox where id <= 10 for update`)
	var n int
	for range 20 {
		n += s.drain(st, 3)
	}
	if n != 9 {
		t.Errorf("drained %d, want the 9 rows that are free and not refused", n)
	}
	mustExec(t, holder, `rollback`)
	for range 20 {
		n += s.drain(st, 3)
	}
	s.want("0:1 2:19", statuses)
}

// Law: error texts are cleaned to what the database's encoding holds; a NUL
// and characters that LATIN1 lacks fail nothing.
func TestLatin1Database(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{})
	boot := p.CreateDatabase(t)
	boot.Exec(t, `drop database if exists latin`)
	boot.Exec(t, `create database latin template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'`)
	cfg := parse(t, boot.DSN())
	cfg.Database = "latin"
	cfg.RuntimeParams["client_encoding"] = "UTF8" // for this test's own statements
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := migrations.Up(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	mustExec(t, conn, `create table public.outbox (id text primary key, status smallint not null default 0); insert into public.outbox values ('café')`)
	st, err := store.Open(t.Context(), store.Config{Conn: cfg, Relay: "r", Slot: "s", Mode: store.WriteStatus,
		Table: store.Table{Schema: "public", Name: "outbox", Key: []store.Column{{Name: "id"}}, Status: "status"}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close(context.Background())
	if _, err := st.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 1, Start: 1}); err != nil {
		t.Fatal(err)
	}
	e := event(200, 0, "", "café")
	e.AggregateID = "键"
	o := (&scene{t: t}).refused(e, "错误: café \x00 "+strings.Repeat("é", 3000))
	o.Refusal.Code, o.Record.Topic = "码\x00", "主题"
	done, err := st.Settle(t.Context(), store.Batch{Progress: progress(300), Outcomes: []outbox.Outcome{o}, Stop: "停\x00"})
	if err != nil || done.Shown != 1 || done.Lined != 1 {
		t.Fatalf("settled %+v, %v", done, err)
	}
	var code, detail, topic string
	err = conn.QueryRow(t.Context(), `select error_code, error_detail, topic from outbox_relay.line`).Scan(&code, &detail, &topic)
	if err != nil || code != "??" || !strings.HasPrefix(detail, "??: café ? éé") || len(detail) > 2048 || topic != "??" {
		t.Errorf("stored %q %q %q, %v", code, detail, topic, err)
	}
	owned, err := st.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 1})
	if err != nil || len(owned.Held) != 1 || owned.Held[0].Key != "键" {
		t.Errorf("held %+v, %v", owned.Held, err)
	}
}

// Law: the grants of the migrations suffice for everything a Store does.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	role := "store_" + s.db.Name()
	grants, err := migrations.Grants(migrations.GrantOptions{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range append([]string{`create role ` + role + ` login`}, grants...) {
		s.db.Exec(t, g)
	}
	t.Cleanup(func() { s.db.Exec(t, `drop owned by `+role+`; drop role `+role) })
	cfg := s.config()
	cfg.Conn.User = role
	st, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close(t.Context())
	s.takeOver(st)
	e := s.insert(3, 200)
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin; select from public.outbox where id = 3 for update`)
	s.counts(s.settle(st, 300, append(s.acked(e[0], e[2]), s.refused(e[1], "x"))...), store.Settled{Shown: 2, Pending: 1, Lined: 1})
	mustExec(t, holder, `rollback`)
	if n := s.drain(st, 10); n != 1 {
		t.Errorf("drained %d, want 1", n)
	}
	s.finds(st, e, "[true false true]")
}

// Law: methods may be called from any goroutine; a call that waits for its
// turn gives up with its context.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lockTimeout = 30 * time.Second
	st := s.session()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				if err := st.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				s.drain(st, 1)
			}
		})
	}
	wg.Wait()
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin; select from outbox_relay.position for update`)
	result := make(chan error, 1)
	go func() {
		_, err := st.Settle(t.Context(), store.Batch{Progress: progress(300)})
		result <- err
	}()
	s.waitFor(`select count(*) = 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := st.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping behind a call: %v, want its own deadline", err)
	}
	mustExec(t, holder, `commit`)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// Law: updates are heap-only at the table's fill factor, or the outbox and
// its indexes would grow with every success.
func TestUpdatesAreHeapOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(20_000, 200)
	for i := 0; i < len(e); i += 500 {
		s.settle(st, 300, s.acked(e[i:i+500]...)...)
	}
	_ = st.Close(t.Context()) // hands its statistics in
	s.waitFor(`select n_tup_upd = 20000 from pg_stat_user_tables where relname = 'outbox'`)
	s.want("t", `select n_tup_hot_upd > 0.9 * n_tup_upd from pg_stat_user_tables where relname = 'outbox'`)
}
