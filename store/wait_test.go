package store_test

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

const (
	lockTimedOut = "canceling statement due to lock timeout"
	deadlocked   = "deadlock detected"
)

// Law: a batch waits briefly for a row that somebody holds, because locking
// each row beforehand costs as much as the update; after one vain wait, batches
// leave held rows out at once.
func TestOnlyOneBatchWaitsForAHolder(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.WriteBack{store.WriteStatus, store.WriteDelete} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			pg := harness.StartPostgres(t, harness.PostgresOptions{})
			s := sceneIn(t, pg.CreateDatabase(t))
			s.mode = mode
			st := s.session()
			e := s.insert(40, 200)
			s.counts(s.settle(st, 300, s.acked(e[:10]...)...), store.Settled{Shown: 10})
			holder := s.db.Conn(t)
			mustExec(t, holder, `begin`)
			mustExec(t, holder, `select from public.outbox where id in (17, 27, 37) for update`)
			for i, from := range []int{10, 20, 30} {
				s.counts(s.settle(st, 300, s.acked(e[from:from+10]...)...), store.Settled{Shown: 9, Pending: 1})
				if n := strings.Count(pg.Log(), lockTimedOut); n != 1 {
					t.Errorf("after batch %d: %d waits in vain, want 1", i+1, n)
				}
			}
			mustExec(t, holder, `commit`)
			if strings.Contains(pg.Log(), `integer: "outbox-relay: `) {
				t.Error("a batch found rows missing that were only held")
			}
			if n := s.drain(st, 10); n != 3 {
				t.Errorf("drained %d, want 3", n)
			}
		})
	}
}

// Law: an application that holds a row we want, and then wants a row we have,
// gets it; neither side sees a deadlock, and every status is shown in the end.
func TestNoDeadlockWithAnApplication(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := sceneIn(t, pg.CreateDatabase(t))
	st := s.session()
	e := s.insert(3, 200)
	app := s.db.Conn(t)
	mustExec(t, app, `begin`)
	mustExec(t, app, `select from public.outbox where id = 2 for update`)
	done := make(chan error, 1)
	go func() {
		_, err := app.Exec(t.Context(), `do $$ begin
			for i in 1 .. 10000 loop
				exit when exists (select from pg_locks where not granted and locktype = 'transactionid' and pid <> pg_backend_pid());
				perform pg_sleep(0.001);
			end loop;
			update public.outbox set headers = '{"seen": "yes"}' where id = 1;
		end $$`)
		done <- err
	}()
	got := s.settle(st, 300, s.acked(e...)...)
	if err := <-done; err != nil {
		t.Fatalf("the application's update: %v", err)
	}
	mustExec(t, app, `commit`)
	if got.Shown+got.Pending != 3 || got.Pending == 0 {
		t.Errorf("%+v, want three rows of which some wait", got)
	}
	s.drain(st, 10)
	s.want("2:3", statuses)
	if log := pg.Log(); !strings.Contains(log, lockTimedOut) || strings.Contains(log, deadlocked) {
		t.Errorf("the server's log tells of no vain wait, or of a deadlock:\n%s", log)
	}
}

// Law: what an application's triggers say by warnings, at once or deferred to
// the commit, is no doubt about the commit itself.
func TestWarningsOfTheApplicationAreNoDoubt(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{
		"at once":  `create trigger tell after update on public.outbox for each row execute function public.tell()`,
		"deferred": `create constraint trigger tell after update on public.outbox deferrable initially deferred for each row execute function public.tell()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			st := s.session()
			s.db.Exec(t, `create table public.told (n int)`)
			s.db.Exec(t, `create function public.tell() returns trigger language plpgsql as $$ begin insert into public.told values (1); raise warning 'told'; return null; end $$`)
			s.db.Exec(t, trigger)
			e := s.insert(10, 200)
			s.counts(s.settle(st, 300, s.acked(e[:8]...)...), store.Settled{Shown: 8})
			s.counts(s.settle(st, 310, append(s.acked(e[8]), s.refused(e[9], "why"))...), store.Settled{Shown: 2, Lined: 1})
			s.want("10", `select count(*) from public.told`)
			if !st.Usable() {
				t.Error("the store calls itself unusable")
			}
		})
	}
}
