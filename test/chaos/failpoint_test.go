package chaos

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// load is what waits in the log when the relay starts.
type load struct {
	name string
	rows int
	sql  string
}

var (
	oneRow = load{"one row", 1, `insert into public.outbox (aggregate_id, payload) values ('k', 'hi')`}
	small  = load{"1000 transactions", 1000, `do $$ begin
		for i in 1..1000 loop
			insert into public.outbox (aggregate_id, payload) values ('k' || i % 50, convert_to(i::text, 'UTF8'));
			commit;
		end loop; end $$`}
	huge = load{"one transaction of 200000", 200_000, `insert into public.outbox (aggregate_id, payload)
		select 'k' || i % 50, convert_to(i::text, 'UTF8') from generate_series(1, 200000) i`}
)

// kill says how often a point is passed before the process dies there, so that
// it dies in the middle of each load.
type kill struct {
	one, small, huge int
	// before is where an earlier process has died, for points that only the
	// start of a session passes. "" = the point itself comes in the middle.
	before string
	// late: one transaction passes the point at its end only.
	late bool
	// repeats: a row is published and not settled there, so that the next
	// session must send it again.
	repeats bool
}

var kills = map[string]kill{
	"stream_started": {one: 1, small: 1, huge: 1, before: "settled"},
	"taken_over":     {one: 1, small: 1, huge: 1, before: "settled"},
	"received":       {one: 1, small: 500, huge: 100_000},
	"held":           {one: 1, small: 500, huge: 100_000},
	"published":      {one: 1, small: 500, huge: 100_000},
	"kicked":         {one: 1, small: 10, huge: 400},
	"acked":          {one: 1, small: 500, huge: 100_000, repeats: true},
	"batch_cut":      {one: 1, small: 3, huge: 200, repeats: true},
	"settled":        {one: 1, small: 3, huge: 200},
	"batch_back":     {one: 1, small: 3, huge: 200},
	"confirming":     {one: 2, small: 3, huge: 2, late: true}, // the first one repeats where the session starts
	"confirmed":      {one: 2, small: 3, huge: 2, late: true},
}

func (k kill) passes(l load) int {
	return map[int]int{1: k.one, 1000: k.small, 200_000: k.huge}[l.rows]
}

// TestKillAtEveryPoint proves I11: killed at any point of a row's path, in the
// middle of any load, the relay loses nothing, keeps the order, repeats only
// what was not settled, and repeats it as a slice.
func TestKillAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, l := range []load{huge, small, oneRow} {
		for _, point := range relay.Failpoints {
			t.Run(l.name+"/"+point, func(t *testing.T) {
				t.Parallel()
				dieAt(t, harness.StartKfake(t, harness.KfakeOptions{}), point, l)
			})
		}
	}
}

// TestKillAtEveryPointOnRealKafka proves the same of 1,000 transactions on a
// real broker.
func TestKillAtEveryPointOnRealKafka(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	for _, point := range relay.Failpoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dieAt(t, harness.SharedKafka(t), point, small)
		})
	}
}

// dieAt commits a load, has a relay die at a point, and lets another one
// finish.
func dieAt(t *testing.T, k rig.Kafka, point string, l load) {
	plan, ok := kills[point]
	if !ok {
		t.Fatalf("no plan for the point %s", point)
	}
	s := rig.New(t, rig.Options{Postgres: harness.SharedPostgres(t, 0), Kafka: k, Failpoints: true})
	if l.rows == small.rows {
		s.Set("limits", "span_rows", 200) // so that some rows are settled before others are read
	}
	tr := s.Truth(t)
	s.DB.Exec(t, l.sql)
	deaths := 0
	die := func(point string) {
		t.Helper()
		p := s.Start(t, fmt.Sprintf("OUTBOX_RELAY_FAILPOINT=%s:%d", point, kills[point].passes(l)))
		if sig := p.KilledBy(); sig != syscall.SIGKILL {
			t.Fatalf("the relay did not die at %s: %v\n%s", point, sig, rig.Tail(p.Log.String(), 2000))
		}
		deaths++
	}
	if plan.before != "" && l.rows > 1 {
		die(plan.before)
	}
	die(point)
	settled := column(t, s.DB, `select event_id::text from public.outbox where status = 2`)
	t.Logf("%d of %d rows settled when it died", len(settled), l.rows)
	if middle := l.rows > 1 && !(plan.late && l.rows == huge.rows); middle && (len(settled) == 0 || len(settled) == l.rows) {
		t.Errorf("%d of %d rows settled: it did not die in the middle", len(settled), l.rows)
	}
	p := s.Start(t)
	p.Ready()
	s.Settled(t)
	p.Stop()
	rep := s.Judge(t, tr, nil, judge.Rules{Restarts: deaths, SkipsSettled: true})
	if rep.Rows != l.rows || rep.Waiting != 0 {
		t.Errorf("%d rows, %d of them waiting; want %d and none", rep.Rows, rep.Waiting, l.rows)
	}
	if plan.repeats && rep.Duplicates == 0 {
		t.Error("nothing was repeated: the death has not bitten where it should")
	}
	n := copies(s.Kafka.Dump(t, s.Topic))
	for _, id := range settled {
		if n[id] != 1 {
			t.Fatalf("row %s was settled before the death and has %d copies", id, n[id])
		}
	}
}
