package chaos

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestRowDeletedByItsOwnTransaction proves that the log is the queue: rows that
// their own transaction deletes are published, and what is refused of them
// waits whole in its line, although no table ever showed them; wherever the
// relay is killed meanwhile.
func TestRowDeletedByItsOwnTransaction(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"held", "acked", "batch_cut", "settled", "batch_back"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := rig.New(t, rig.Options{Postgres: harness.SharedPostgres(t, 0), Kafka: harness.StartKfake(t, harness.KfakeOptions{}), Failpoints: true})
			tr := s.Truth(t)
			s.DB.Exec(t, `begin;
				insert into public.outbox (aggregate_id, payload, headers) values
					('a', 'fine', '{}'), ('b', 'refused', '{"outbox-id": "forged"}'), ('b', 'behind', '{}'), ('c', 'fine too', '{}');
				delete from public.outbox;
				commit`)
			p := s.Start(t, "OUTBOX_RELAY_FAILPOINT="+point+":1")
			if sig := p.KilledBy(); sig != syscall.SIGKILL {
				t.Fatalf("the relay ended by %v", sig)
			}
			p = s.Start(t)
			s.Drained(t)
			p.Ready()
			p.Stop()
			rep := s.Judge(t, tr, nil, judge.Rules{Restarts: 1, SkipsSettled: true})
			if rep.Rows != 5 || rep.Waiting != 2 {
				t.Fatalf("%d rows, %d waiting; want 4 and the marker, and 2 waiting", rep.Rows, rep.Waiting)
			}
			lined := s.DB.Query1(t, `select string_agg(reason || ' ' || convert_from(key, 'UTF8') || ' ' || convert_from(value, 'UTF8'), ', ' order by seq) from outbox_relay.line_event`)
			if lined != "refused b refused, behind b behind" {
				t.Fatalf("lines: %s", lined)
			}
		})
	}
}

// TestLockedRowsStopNobody proves that an application which holds locks on
// rows for longer than any time-out of ours delays what these rows show, and
// nothing else: their records go out, other rows flow, the slot moves, and the
// statuses follow when the lock is gone.
func TestLockedRowsStopNobody(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	s.Insert(t, "locked", "locked", "locked", "free")
	holder := s.DB.Conn(t)
	exec(t, holder, `begin; select from public.outbox where aggregate_id = 'locked' for update`)
	p := s.Start(t)
	began, flowed := time.Now(), 0
	rig.Eventually(t, time.Minute+patience, "a minute of rows beside the locked ones", func() bool {
		here := s.DB.Query1(t, `select pg_current_wal_insert_lsn()`)
		s.Insert(t, "free", "locked")
		flowed += 2
		rig.Eventually(t, patience, "the free rows say SENT, the slot moves", func() bool {
			return s.Count(t, "status = 2") == fmt.Sprint(flowed+1) &&
				s.DB.Query1(t, `select confirmed_flush_lsn > $2::text::pg_lsn from pg_replication_slots where slot_name = $1`, s.Slot(), here) == "t"
		})
		return time.Since(began) > time.Minute
	})
	if got := s.DB.Query1(t, `select count(*) || ' ' || (select count(*) from public.outbox where status = 0) from outbox_relay.pending_status`); got != "3 3" {
		t.Fatalf("pending and READY rows: %s, want 3 and 3: the lock has not bitten", got)
	}
	if n := len(s.Kafka.Dump(t, s.Topic)); n != flowed+4 {
		t.Fatalf("%d records, want all %d", n, flowed+4)
	}
	exec(t, holder, `rollback`)
	s.Settled(t)
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Duplicates != 0 || rep.Waiting != 0 || rep.Published != rep.Rows || rep.Rows != flowed+4 {
		t.Fatalf("%d rows, %d published, %d repeated, %d waiting; want all %d published", rep.Rows, rep.Published, rep.Duplicates, rep.Waiting, flowed+4)
	}
}

// TestTriggerThatRaises proves that a trigger of the application which forbids
// our update stops nothing: rows go out, the log says why their status does
// not show, and it shows when the trigger is gone. Refused rows wait in lines
// all the same.
func TestTriggerThatRaises(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "before")
	s.Settled(t)
	s.DB.Exec(t, `create function public.never() returns trigger language plpgsql as $$ begin raise exception 'nobody updates the outbox'; end $$;
		create trigger never before update on public.outbox for each row execute function public.never()`)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload, headers)
		select 'k' || i % 10, 'hi', case i when 7 then '{"outbox-id": "forged"}' else '{}' end::jsonb from generate_series(1, 100) i`)
	rig.Eventually(t, patience, "the statuses wait", func() bool { return s.DB.Query1(t, `select count(*) from outbox_relay.pending_status`) == "100" })
	says(t, p, "the outbox refuses its statuses; they are pending")
	if got := s.Count(t, "status = 0"); got != "100" {
		t.Fatalf("%s rows READY, want 100: the trigger has not bitten", got)
	}
	if n := len(s.Kafka.Dump(t, s.Topic)); n != 1+90 {
		t.Fatalf("%d records, want 91: all but the refused one and the 9 behind it", n)
	}
	s.DB.Exec(t, `drop trigger never on public.outbox`)
	s.Settled(t)
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Waiting != 10 || s.Count(t, "status = 3") != "10" {
		t.Fatalf("%d rows waiting, %s FAILED; want 10", rep.Waiting, s.Count(t, "status = 3"))
	}
}

// asRole lets the site's relays connect as a role of their own, with the
// product's own grants.
func asRole(t *testing.T, s *rig.Site, role string) {
	t.Helper()
	if out, err := s.Command(t, "setup", "--apply", "--yes", "--role", role).CombinedOutput(); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	s.Set("postgres", "replication", s.DB.Server().DSNAs(s.DB.Name(), role, ""))
}

// TestLatin1Database proves F11: from a database in LATIN1 come key, headers
// and text payload in UTF-8, byte for byte; and a reason that LATIN1 cannot
// hold fails no settling.
func TestLatin1Database(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{InitArgs: []string{"--encoding", "LATIN1"}})
	postgres := pg.CreateDatabase(t)
	if got := postgres.Query1(t, `select pg_encoding_to_char(encoding) from pg_database where datname = current_database()`); got != "LATIN1" {
		t.Fatalf("the database is in %s", got)
	}
	postgres.Exec(t, `alter role postgres set client_encoding = 'UTF8'`) // for the test's statements; the relay has another role
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	s.DB.Exec(t, `alter table public.outbox drop constraint outbox_payload_check, alter payload type text using ''`)
	s.Set("route", "topics", map[string]string{s.Kind: s.Topic})
	s.Set("route", "template", "注文")
	asRole(t, s, "relay")
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, message_key, payload, headers) values ('ü', 'clé', 'café', '{"étage": "où"}'), ('ü', null, 'ÿ \x41 is no bytea', '{}')`)
	s.DB.Exec(t, `insert into public.outbox (aggregate_type, aggregate_id, payload) values ('autre', 'ü', 'refusé')`)
	s.Settled(t)
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Rows != 3 || rep.Waiting != 1 {
		t.Fatalf("%d rows, %d waiting", rep.Rows, rep.Waiting)
	}
	records := s.Kafka.Dump(t, s.Topic)
	slices.SortFunc(records, func(a, b harness.Record) int { return strings.Compare(string(a.Value), string(b.Value)) })
	if r := records[0]; fmt.Sprintf("%X", r.Value) != "636166C3A9" || string(r.Key) != "clé" || header(r, "étage") != "où" {
		t.Errorf("value %X, key %q, header %q", r.Value, r.Key, header(r, "étage"))
	}
	if r := records[1]; string(r.Value) != `ÿ \x41 is no bytea` || string(r.Key) != "ü" {
		t.Errorf("value %q, key %q", r.Value, r.Key)
	}
	if got := s.DB.Query1(t, `select topic || ' ' || error_code || ' ' || error_detail from outbox_relay.line`); !strings.HasPrefix(got, `?? topic_not_allowed topic "??"`) {
		t.Errorf("the line says %s", got)
	}
}
