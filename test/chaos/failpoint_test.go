package chaos

import (
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
	span int // limits.span_rows, so that some rows are settled before others are read
	sql  string
}

var (
	oneRow = load{"one row", 1, 1, `insert into public.outbox (aggregate_id, payload) values ('k', 'hi')`}
	small  = load{"1000 transactions", 1000, 200, `do $$ begin
		for i in 1..1000 loop
			insert into public.outbox (aggregate_id, payload) values ('k' || i % 50, convert_to(i::text, 'UTF8'));
			commit;
		end loop; end $$`}
	huge = load{"one transaction of 200000", 200_000, 5000, `insert into public.outbox (aggregate_id, payload)
		select 'k' || i % 50, convert_to(i::text, 'UTF8') from generate_series(1, 200000) i`}
)

// batchRows is write_back.rows.
const batchRows = 500

// kill says where the process dies with each load, in the words of
// OUTBOX_RELAY_FAILPOINT, so that it dies in the middle of it. A point that is
// passed once for many rows is counted behind one that is passed for each: how
// many rows it is passed for goes by how fast they come.
type kill struct {
	one, small, huge string
	// before is where an earlier process has died, for points that only the
	// start of a session passes. "" = the point itself comes in the middle.
	before string
	// late: one transaction passes the point at its end only.
	late bool
	// shows: the row whose path it is says SENT when the point is passed.
	shows bool
	// repeats: a row is published and not settled there, so that the next
	// session must send it again.
	repeats bool
}

var kills = map[string]kill{
	"stream_started": {one: "stream_started:1", small: "stream_started:1", huge: "stream_started:1", before: "settled"},
	"taken_over":     {one: "taken_over:1", small: "taken_over:1", huge: "taken_over:1", before: "settled"},
	"received":       {one: "received:1", small: "received:500", huge: "received:100000"},
	"held":           {one: "held:1", small: "held:500", huge: "held:100000"},
	"published":      {one: "published:1", small: "published:500", huge: "published:100000"},
	"kicked":         {one: "published:1,kicked:1", small: "published:500,kicked:1", huge: "published:100000,kicked:1"},
	"acked":          {one: "acked:1", small: "acked:500", huge: "acked:100000", repeats: true},
	"batch_cut":      {one: "batch_cut:1", small: "batch_cut:3", huge: "batch_cut:200", repeats: true},
	"settled":        {one: "settled:1", small: "settled:3", huge: "settled:200", shows: true},
	"batch_back":     {one: "batch_back:1", small: "batch_back:3", huge: "batch_back:200", shows: true},
	"confirming":     {one: "settled:1,confirming:1", small: "confirming:3", huge: "acked:200000,confirming:1", late: true, shows: true},
	"confirmed":      {one: "settled:1,confirmed:1", small: "confirmed:3", huge: "acked:200000,confirmed:1", late: true, shows: true},
}

// at is the word of a plan for a load.
func (k kill) at(l load) string {
	return map[int]string{oneRow.rows: k.one, small.rows: k.small, huge.rows: k.huge}[l.rows]
}

// wantSettled judges how many rows say SENT at the death.
func (k kill) wantSettled(t *testing.T, l load, settled int) {
	t.Helper()
	t.Logf("%d of %d rows settled when it died", settled, l.rows)
	switch {
	case l.rows == 1 && k.shows != (settled == 1):
		t.Errorf("%d rows settled, want that to be %v", settled, k.shows)
	case k.late && l.rows == huge.rows && settled != l.rows:
		t.Errorf("%d rows settled: the point comes when all %d are", settled, l.rows)
	case l.rows > 1 && !(k.late && l.rows == huge.rows) && (settled == 0 || settled == l.rows):
		t.Errorf("%d of %d rows settled: it did not die in the middle", settled, l.rows)
	}
}

// TestKillAtEveryPoint proves I11: killed at any point of a row's path, in the
// middle of any load, the relay loses nothing, keeps the order, repeats only
// what was not settled and no more than the span, and repeats it as a slice.
// Cases F16, F17, F48 of docs/guarantees.md.
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
	s.Set("limits", "span_rows", l.span)
	s.Set("write_back", "rows", batchRows)
	tr := s.Truth(t)
	s.DB.Exec(t, l.sql)
	deaths := 0
	die := func(point string) {
		t.Helper()
		p := s.Start(t, "OUTBOX_RELAY_FAILPOINT="+kills[point].at(l))
		if sig := p.KilledBy(); sig != syscall.SIGKILL {
			t.Fatalf("the relay did not die at %s: %v\n%s", point, sig, rig.Tail(p.Log.String(), 2000))
		}
		deaths++
	}
	if plan.before != "" && l.rows > 1 {
		die(plan.before)
	}
	die(point)
	s.Released(t)
	settled := s.SentIDs(t)
	plan.wantSettled(t, l, len(settled))
	p := s.Start(t)
	p.Ready()
	s.Settled(t)
	p.Stop()
	rep := s.Judge(t, tr, nil, judge.Rules{Restarts: deaths, Settled: settled, NoLines: true})
	if rep.Rows != l.rows {
		t.Errorf("%d rows, want %d", rep.Rows, l.rows)
	}
	if plan.repeats && rep.Duplicates == 0 {
		t.Error("nothing was repeated: the death has not bitten where it should")
	}
	if most := deaths * (l.span + batchRows); rep.Duplicates > most {
		t.Errorf("%d rows repeated after %d deaths, more than %d", rep.Duplicates, deaths, most)
	}
	n := copies(s.Kafka.Dump(t, s.Topic))
	for id := range settled {
		if n[id] != 1 {
			t.Fatalf("row %s was settled before the death and has %d copies", id, n[id])
		}
	}
}
