package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// hostile are defaults of a role that would change what the relay reads, end
// its connections, or make its commits forgettable.
var hostile = []string{
	`datestyle = 'German, DMY'`, `timezone = 'America/New_York'`, `intervalstyle = 'iso_8601'`, `bytea_output = 'escape'`, `extra_float_digits = -5`,
	`client_encoding = 'LATIN1'`, `client_min_messages = 'error'`, `search_path = 'nowhere'`, `default_transaction_isolation = 'serializable'`,
	`statement_timeout = '1s'`, `lock_timeout = '100ms'`, `idle_in_transaction_session_timeout = '1s'`, `idle_session_timeout = '1s'`,
	`synchronous_commit = off`,
}

// TestHostileRoleDefaults proves F12 and F22 on the built program, and that
// what it has confirmed is durable: whatever the role says, times and bytes are
// exact, one session lasts, and a FAILED survives a crash which a commit by the
// role's own defaults does not.
func TestHostileRoleDefaults(t *testing.T) {
	t.Parallel()
	// The writer that would flush such a commit soon sleeps for 10 s.
	pg := harness.StartPostgres(t, harness.PostgresOptions{Settings: map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "0"}})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	asRole(t, s, "relay")
	for _, setting := range hostile {
		s.DB.Exec(t, `alter role relay set `+setting)
		s.DB.Exec(t, `alter role relay in database `+s.DB.Name()+` set `+setting)
	}
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, status) select 'old', 2 from generate_series(1, 100000)`)
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload, headers, created_at) values ('clé', '\x00ff41', '{"h": "é"}', '2026-02-03 04:05:06.789+00')`)
	s.Settled(t)
	r := s.Kafka.Dump(t, s.Topic)[0]
	if fmt.Sprintf("%x", r.Value) != "00ff41" || string(r.Key) != "clé" || header(r, "h") != "é" || r.Timestamp.UTC().Format(time.RFC3339Nano) != "2026-02-03T04:05:06.789Z" {
		t.Errorf("value %x, key %q, header %q, timestamp %v", r.Value, r.Key, header(r, "h"), r.Timestamp.UTC())
	}

	// Longer than every time-out of the role: idle, and with a lock in the way.
	holder := s.DB.Conn(t)
	exec(t, holder, `begin; lock table public.outbox in share mode`)
	began := time.Now()
	rig.Eventually(t, patience, "three seconds", func() bool { return time.Since(began) > 3*time.Second })
	exec(t, holder, `insert into public.outbox (aggregate_id, payload) values ('locked', 'hi'); commit; begin; lock table public.outbox in share mode`)
	rig.Eventually(t, patience, "the row is published behind the lock", func() bool { return len(s.Kafka.Dump(t, s.Topic)) == 2 })
	exec(t, holder, `commit`)
	s.Settled(t)
	if n := streams(p); n != 1 {
		t.Errorf("%d sessions, want 1: a time-out of the role has ended one", n)
	}

	// FAILED is durable, although the role says otherwise.
	s.DB.Exec(t, `create table public.marker (id int); grant insert on public.marker to relay; checkpoint`)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload, headers) values ('refused', 'hi', '{"outbox-id": "forged"}')`)
	rig.Eventually(t, patience, "FAILED", func() bool { return s.Count(t, "status = 3") == "1" })
	leak(t, s)
	pg.Crash(t)
	pg.Start(t)
	if got := s.DB.Query1(t, `select count(*) from public.marker`); got != "0" {
		t.Fatalf("%s markers survived the crash: it has not bitten", got)
	}
	if got := s.DB.Query1(t, `select (select count(*) from public.outbox where status = 3) || ' ' || (select count(*) from outbox_relay.line_event)`); got != "1 1" {
		t.Fatalf("FAILED rows and events in lines after the crash: %s, want 1 1", got)
	}
	s.Insert(t, "after")
	s.Settled(t)
	p.Ready()
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{Restarts: streams(p) - 1, SkipsSettled: true}); rep.Rows != 4 || rep.Waiting != 1 {
		t.Fatalf("%d rows, %d waiting", rep.Rows, rep.Waiting)
	}
}

// leak commits a row by the role's own defaults.
func leak(t *testing.T, s *rig.Site) {
	t.Helper()
	conn, err := s.DB.Server().Connect(t.Context(), s.DB.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, setting := range hostile {
		if strings.HasPrefix(setting, "synchronous_commit") {
			exec(t, conn, `set `+setting)
		}
	}
	exec(t, conn, `insert into public.marker values (1)`)
}

// TestTransactionTimeoutOfTheRole proves that the one time-out which no start
// packet may name, on the servers that have it, ends nothing of ours either:
// neither the idle stream, nor one that decodes, nor a batch behind a lock.
func TestTransactionTimeoutOfTheRole(t *testing.T) {
	t.Parallel()
	for _, major := range []int{17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			pg := harness.StartPostgres(t, harness.PostgresOptions{Major: major})
			s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
			asRole(t, s, "relay")
			s.DB.Exec(t, `alter role relay set transaction_timeout = '1s'`)
			tr := s.Truth(t)
			p := s.Start(t)
			p.Ready()
			holder := s.DB.Conn(t)
			exec(t, holder, `begin; lock table public.outbox in share mode`)
			for began, n := time.Now(), 0; time.Since(began) < 5*time.Second; n++ {
				exec(t, holder, fmt.Sprintf(`insert into public.outbox (aggregate_id, payload) values ('locked', 'hi'); commit; begin; lock table public.outbox in share mode; select %d`, n))
				rig.Eventually(t, patience, "the row is published behind the lock", func() bool { return len(s.Kafka.Dump(t, s.Topic)) > n })
			}
			exec(t, holder, `commit`)
			s.Settled(t)
			if n := streams(p); n != 1 || strings.Contains(p.Log.String(), "25P04") {
				t.Errorf("%d sessions, want 1:\n%s", n, rig.Tail(p.Log.String(), 2000))
			}
			if rep := s.Judge(t, tr, nil, judge.Rules{NoLines: true}); rep.Published != rep.Rows || rep.Rows == 0 {
				t.Errorf("%d of %d rows published", rep.Published, rep.Rows)
			}
		})
	}
}
