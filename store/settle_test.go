package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// Law: acked rows become SENT with the database's time, refused and diverted
// ones FAILED, in one commit with the position, and reached is the highest
// commit position.
func TestSettleShowsOutcomes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(10, 200)
	outcomes := append(s.acked(e[:8]...), s.refused(e[8], "why"), s.diverted(e[9]))
	s.counts(s.settle(st, 150, outcomes...), store.Settled{Shown: 10, Lined: 2})
	s.want("2:8 3:2", statuses)
	s.want("8", `select count(*) from public.outbox where sent_at between now() - interval '1 minute' and now()`)
	s.want("0/96 0/C8 0", `select lsn || ' ' || reached || ' ' || next_index from outbox_relay.position`)
	s.want("0", `select count(*) from outbox_relay.pending_status`)
	s.want("0/C8", `select reached from outbox_relay.position`)
}

// Law (I13): a session that lost the position row writes nothing, neither by
// Settle nor by DrainPending, and gets ErrFenced.
func TestFencedSessionWritesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	old := s.session()
	e := s.insert(3, 200)
	s.db.Exec(t, `insert into outbox_relay.pending_status (relay, row_hash, row_key, status, at) values ('default', '\x00', '["1"]', 2, now())`)
	young := s.session()
	before := s.db.Query1(t, `select p::text from outbox_relay.position p`)
	for _, outcomes := range [][]outbox.Outcome{s.acked(e[:2]...), {s.refused(e[2], "x")}, nil} {
		_, err := old.Settle(t.Context(), store.Batch{Progress: progress(300), Outcomes: outcomes})
		if !errors.Is(err, store.ErrFenced) {
			t.Fatalf("settle: %v, want ErrFenced", err)
		}
	}
	if _, err := old.DrainPending(t.Context(), 10); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("drain: %v, want ErrFenced", err)
	}
	s.want(before, `select p::text from outbox_relay.position p`)
	s.want("0:3", statuses)
	s.want("0", `select count(*) from outbox_relay.line_event`)
	s.want("1", `select count(*) from outbox_relay.pending_status`)
	s.counts(s.settle(young, 300, s.acked(e...)...), store.Settled{Shown: 3})
}

// Law: without a takeover nothing is written.
func TestNoTakeOverNoWrites(t *testing.T) {
	t.Parallel()
	st := newScene(t).open()
	if _, err := st.Settle(t.Context(), store.Batch{Progress: progress(1)}); err == nil {
		t.Error("settled without a session")
	}
	if _, err := st.DrainPending(t.Context(), 1); err == nil {
		t.Error("drained without a session")
	}
}

// Law: the stored position never decreases, in any of its three parts, and
// reached does not either.
func TestPositionNeverDecreases(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	steps := []struct {
		give outbox.Progress
		want string
	}{
		{outbox.Progress{Timeline: 1, LSN: 50}, "0/64 - 0"}, // the start, 100, stays
		{outbox.Progress{Timeline: 1, LSN: 200, NextCommit: 300, NextIndex: 5}, "0/C8 0/12C 5"},
		{outbox.Progress{Timeline: 1, LSN: 200, NextCommit: 300, NextIndex: 4}, "0/C8 0/12C 5"},
		{outbox.Progress{Timeline: 1, LSN: 200}, "0/C8 0/12C 5"},
		{outbox.Progress{Timeline: 1, LSN: 199, NextCommit: 400, NextIndex: 9}, "0/C8 0/12C 5"},
		{outbox.Progress{Timeline: 1, LSN: 200, NextCommit: 300, NextIndex: 6}, "0/C8 0/12C 6"},
		{outbox.Progress{Timeline: 1, LSN: 310}, "0/136 - 0"},
	}
	for _, step := range steps {
		if _, err := st.Settle(t.Context(), store.Batch{Progress: step.give}); err != nil {
			t.Fatal(err)
		}
		s.want(step.want, `select lsn || ' ' || coalesce(next_commit::text, '-') || ' ' || next_index from outbox_relay.position`)
	}
	s.settle(st, 310, s.acked(event(500, 0, "", "1"))...)
	s.settle(st, 310, s.acked(event(400, 0, "", "1"))...)
	s.want("0/1F4", `select reached from outbox_relay.position`)
	if _, err := st.Settle(t.Context(), store.Batch{Progress: outbox.Progress{Timeline: 2, LSN: 900}}); err == nil {
		t.Error("a progress of another timeline was written")
	}
}

// Law: a row that an application holds costs the others nothing; its status
// is pending, and shown once the row is free.
func TestLockedRowGoesToPending(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(500, 200)
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin`)
	mustExec(t, holder, `select from public.outbox where id = 7 for update`)
	start := time.Now()
	s.counts(s.settle(st, 300, s.acked(e...)...), store.Settled{Shown: 499, Pending: 1})
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("settling took %v: it waited for the application", took)
	}
	s.want("0:1 2:499", statuses)
	for range 3 {
		if n := s.drain(st, 10); n != 0 {
			t.Fatalf("drained %d while the row is locked", n)
		}
	}
	mustExec(t, holder, `commit`)
	if n := s.drain(st, 10); n != 1 {
		t.Fatalf("drained %d, want 1", n)
	}
	s.want("2:500", statuses)
	s.want("0", `select count(*) from outbox_relay.pending_status`)
}

// Law: what an application does to its table cannot stop the line: a trigger
// that raises, a deferred constraint, a lock of the whole table, a dropped
// column. The events settle, their statuses wait, and are shown later.
func TestApplicationCannotStopTheLine(t *testing.T) {
	t.Parallel()
	raise := `create function public.no() returns trigger language plpgsql as $$ begin raise exception 'no: %', new.id; end $$;`
	cases := []struct{ name, begin, end string }{
		{"trigger", raise + `create trigger no before update on public.outbox for each row execute function public.no()`, `drop trigger no on public.outbox`},
		{"deferred constraint", raise + `create constraint trigger no after update on public.outbox deferrable initially deferred for each row execute function public.no()`,
			`drop trigger no on public.outbox`},
		{"check", `alter table public.outbox add constraint no check (status <> 2) not valid`, `alter table public.outbox drop constraint no`},
		{"renamed column", `alter table public.outbox rename status to state`, `alter table public.outbox rename state to status`},
		{"renamed table", `alter table public.outbox rename to gone`, `alter table public.gone rename to outbox`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			st := s.session()
			e := s.insert(4, 200)
			s.settle(st, 150, s.acked(e[0])...) // the statements are known to the server
			s.db.Exec(t, c.begin)
			s.counts(s.settle(st, 300, append(s.acked(e[1:3]...), s.refused(e[3], "x"))...), store.Settled{Pending: 3, Lined: 1})
			s.want("0/12C", `select lsn from outbox_relay.position`)
			_, _ = st.DrainPending(t.Context(), 10) // may fail, must not harm
			s.db.Exec(t, c.end)
			if n := s.drain(st, 10); n+s.drain(st, 10) == 0 {
				t.Fatal("nothing was drained")
			}
			s.want("2:3 3:1", statuses)
			s.want("0", `select count(*) from outbox_relay.pending_status`)
		})
	}
}

// Law: CREATE INDEX, whose lock SKIP LOCKED does not skip, delays one batch
// by the lock timeout and later ones hardly at all, whether the server knows
// the statements yet or not.
func TestTableLockDelaysOneBatchOnly(t *testing.T) {
	t.Parallel()
	const lockTimeout = 2 * time.Second
	for _, known := range []int{0, 1} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.lockTimeout = lockTimeout
			st := s.session()
			e := s.insert(5, 200)
			s.settle(st, 300, s.acked(e[:known]...)...)
			holder := s.db.Conn(t)
			mustExec(t, holder, `begin`)
			mustExec(t, holder, `lock table public.outbox in share mode`)
			var took [2]time.Duration
			for i := range took {
				start := time.Now()
				s.counts(s.settle(st, 300, s.acked(e[1+2*i:3+2*i]...)...), store.Settled{Pending: 2})
				took[i] = time.Since(start)
			}
			if took[0] < lockTimeout || took[1] > lockTimeout-lockTimeout/4 {
				t.Errorf("batches took %v, want the lock timeout of %v once", took, lockTimeout)
			}
			mustExec(t, holder, `commit`)
			if n := s.drain(st, 10); n != 4 {
				t.Fatalf("drained %d, want 4", n)
			}
			s.want(fmt.Sprint(4+known), `select count(*) from public.outbox where status = 2`)
		})
	}
}

// Law: CONSUMED, CONSUMING and SENT are never overwritten, neither at once nor by
// the drain; they are counted and not pended.
func TestMovedOnRowsAreNeverOverwritten(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(8, 200)
	s.db.Exec(t, `update public.outbox set status = case id when 1 then 4 when 2 then 5 when 3 then 2 when 4 then 4 when 5 then 5 else 0 end`)
	outcomes := append(s.acked(e[0], e[1], e[2]), s.refused(e[3], "x"), s.diverted(e[4]))
	s.counts(s.settle(st, 300, append(outcomes, s.acked(e[5])...)...), store.Settled{Shown: 1, Overtaken: 5, Lined: 2})
	s.want("0:2 2:2 4:2 5:2", statuses)
	// The drain: statuses that were pended while their rows were locked.
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin`)
	mustExec(t, holder, `update public.outbox set status = 4 where id in (7, 8)`)
	s.counts(s.settle(st, 300, append(s.acked(e[6]), s.refused(e[7], "x"))...), store.Settled{Pending: 2, Lined: 1})
	mustExec(t, holder, `commit`)
	if n := s.drain(st, 10); n != 2 {
		t.Fatalf("drained %d, want 2", n)
	}
	s.want("2:2 4:4 5:2", statuses)
}

// Law: a row moved between the statement's snapshot and its lock is decided
// by what the lock shows. The race is forced by many consumers that flip
// rows while batches settle: no status of theirs is ever lost.
func TestConcurrentConsumersWin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	const rows = 2000
	e := s.insert(rows, 200)
	consumer := s.db.Conn(t)
	failed := make(chan error, 1)
	go func() {
		var err error
		for id := 1; id <= rows && err == nil; id += 3 {
			_, err = consumer.Exec(t.Context(), fmt.Sprintf(`update public.outbox set status = 4 where id = %d and status in (0, 1, 2, 3)`, id))
		}
		failed <- err
	}()
	var sum store.Settled
	for i := 0; i < rows; i += 250 {
		d := s.settle(st, 300, s.acked(e[i:i+250]...)...)
		sum.Shown, sum.Overtaken, sum.Pending = sum.Shown+d.Shown, sum.Overtaken+d.Overtaken, sum.Pending+d.Pending
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if sum.Shown+sum.Overtaken+sum.Pending != rows {
		t.Errorf("counts %+v do not add up to %d", sum, rows)
	}
	for s.drain(st, 500) > 0 {
	}
	s.want(fmt.Sprintf("2:%d 4:%d", rows-(rows+2)/3, (rows+2)/3), statuses)
}

// Law: a key that another event has by now is not touched: after TRUNCATE
// RESTART IDENTITY the old row's outcome is gone, the new row stays READY.
func TestReusedKeyIsNotTouched(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	old := s.insert(3, 200)
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin`)
	mustExec(t, holder, `select from public.outbox where id = 3 for update`)
	s.counts(s.settle(st, 210, s.acked(old[2])...), store.Settled{Pending: 1})
	mustExec(t, holder, `commit`)
	s.db.Exec(t, `truncate public.outbox restart identity`)
	young := s.insert(3, 300)
	s.counts(s.settle(st, 310, s.acked(old[0])...), store.Settled{Gone: 1})
	skip, err := st.Lookup(t.Context(), young)
	if err != nil || skip[0] || skip[1] || skip[2] {
		t.Errorf("lookup of the young rows: %v, %v", skip, err)
	}
	if n := s.drain(st, 10); n != 1 {
		t.Fatalf("drained %d, want the entry of the old row 3", n)
	}
	s.want("0:3", statuses)
}

// Law: a batch with an outcome that means nothing is refused whole.
func TestUnknownVerdictIsNeverSuccess(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(2, 200)
	bad := s.acked(e...)
	bad[1].Verdict = 0
	if _, err := st.Settle(t.Context(), store.Batch{Progress: progress(300), Outcomes: bad}); err == nil {
		t.Fatal("a batch with verdict 0 was settled")
	}
	s.want("0:2", statuses)
	s.want("0/64", `select lsn from outbox_relay.position`)
}

// Law: a stop is stored with the batch, and the first one is kept.
func TestStopIsStoredInTheSameCommit(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	for _, why := range []string{"first", "second"} {
		if _, err := st.Settle(t.Context(), store.Batch{Progress: progress(300), Stop: why}); err != nil {
			t.Fatal(err)
		}
	}
	row, found, err := st.Position(t.Context())
	if err != nil || !found || row.StoppedAt == nil || row.StoppedWhy != "first" || row.Progress.LSN != 300 {
		t.Errorf("position row %+v, %v, %v", row, found, err)
	}
	if owned := s.takeOver(st); owned.StoppedAt == nil {
		t.Error("the takeover does not see the stop")
	}
}
