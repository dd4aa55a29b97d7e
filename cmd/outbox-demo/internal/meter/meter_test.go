package meter_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
)

// Law: a quantile of the histogram is within 1 % of the exact one, for any
// spread of values between the smallest and the largest bucket.
func TestQuantilesAreRightToOnePercent(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		var h meter.Histogram
		exact := make([]time.Duration, 1+rnd.IntN(5000))
		for i := range exact {
			exact[i] = time.Duration(float64(20*time.Microsecond) * math.Pow(10, rnd.Float64()*6))
			h.Add(exact[i])
		}
		slices.Sort(exact)
		for _, q := range []float64{.01, .5, .9, .99, 1} {
			want := exact[int(math.Ceil(q*float64(len(exact))))-1]
			got := h.Quantile(q)
			if off := math.Abs(float64(got-want)) / float64(want); off > .0101 {
				t.Fatalf("round %d, %d values: quantile %v is %v, exact %v, off by %.2f %%", round, len(exact), q, got, want, off*100)
			}
		}
	}
}

// Law: values outside the buckets are counted, and an empty histogram has
// quantile 0.
func TestHistogramEdges(t *testing.T) {
	t.Parallel()
	var h meter.Histogram
	if q := h.Quantiles(); q != (meter.Quantiles{}) {
		t.Errorf("empty: %+v", q)
	}
	h.Add(-time.Second)
	h.Add(24 * time.Hour)
	if q := h.Quantiles(); q.N != 2 || q.Max != 24*time.Hour || q.P50 > 11*time.Microsecond {
		t.Errorf("extremes: %+v", q)
	}
}

func id(n byte) meter.ID { return meter.ID{n} }

// clock gives moments by second.
func clock() func(seconds float64) time.Time {
	start := time.Now()
	return func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
}

// Law: the lag is the age of the oldest committed row that has not arrived;
// rows that are only about to commit do not count, and those rolled back or
// arrived no longer.
func TestLagIsTheOldestMissing(t *testing.T) {
	t.Parallel()
	at, l := clock(), meter.NewLedger()
	l.Committing([]meter.ID{id(1)}, at(0)) // never answered
	l.Committing([]meter.ID{id(2)}, at(1))
	l.Committing([]meter.ID{id(3)}, at(2))
	if r := l.Read(at(3)); r.Lag != 0 || r.InFlight != 0 {
		t.Errorf("before any answer: %+v", r)
	}
	l.Committed([]meter.ID{id(2)})
	l.Committed([]meter.ID{id(3)})
	if r := l.Read(at(3)); r.Lag != 2*time.Second || r.InFlight != 2 {
		t.Errorf("two under way: %+v", r)
	}
	l.Seen(id(2), at(3))
	if r := l.Read(at(4)); r.Lag != 2*time.Second || r.InFlight != 1 {
		t.Errorf("one arrived: %+v", r)
	}
	l.Abandoned([]meter.ID{id(1)})
	if l.Seen(id(2), at(5)) {
		t.Error("a second copy passed for a first")
	}
	l.Seen(id(3), at(5))
	r := l.Read(at(6))
	if r.Lag != 0 || r.InFlight != 0 || r.Counts != (meter.Counts{Committed: 2, Arrived: 3, First: 2}) {
		t.Errorf("at the end: %+v", r)
	}
}

// Law: a row may arrive before its writer hears of the commit; it counts once
// on both sides.
func TestArrivalBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	at, l := clock(), meter.NewLedger()
	l.Committing([]meter.ID{id(1)}, at(0))
	if !l.Seen(id(1), at(1)) {
		t.Error("the first copy did not count")
	}
	l.Committed([]meter.ID{id(1)})
	if r := l.Read(at(2)); r.InFlight != 0 || r.Lag != 0 || r.First != 1 || r.Committed != 1 {
		t.Errorf("%+v", r)
	}
}

// Law: calm figures hold exactly the rows whose time between commit and
// arrival no fault overlaps; the window lasts until the backlog of the fault
// has arrived.
func TestCalmFiguresExcludeFaults(t *testing.T) {
	t.Parallel()
	at, l := clock(), meter.NewLedger()
	pass := func(n byte, from, to float64) {
		l.Committing([]meter.ID{id(n)}, at(from))
		l.Committed([]meter.ID{id(n)})
		l.Seen(id(n), at(to))
	}
	calm := func() uint64 {
		_, calm := l.Overall()
		return calm.N
	}
	pass(1, 0, 1)
	l.Committing([]meter.ID{id(2)}, at(1.5))
	l.Committed([]meter.ID{id(2)})
	l.FaultBegan(at(2))
	pass(3, 3, 4)
	l.FaultEnded(at(5))
	if r := l.Read(at(6)); !r.Faulty || r.CaughtUp != 0 {
		t.Errorf("with a row of before the fault missing: %+v", r)
	}
	l.Seen(id(2), at(6.5))
	if r := l.Read(at(7)); r.CaughtUp != 2*time.Second {
		t.Errorf("the backlog arrived: %+v", r)
	}
	pass(4, 6.9, 7.5) // committed inside the window
	if calm() != 1 {
		t.Errorf("%d calm rows, want the first only", calm())
	}
	pass(5, 7.1, 8)
	if all, calm := l.Overall(); calm.N != 2 || all.N != 5 {
		t.Errorf("%d calm of %d, want 2 of 5", calm.N, all.N)
	}
	if r := l.Read(at(9)); r.Faulty || r.CaughtUp != 0 {
		t.Errorf("after the window: %+v", r)
	}
}

// Law: a second's figures hold what arrived since they were last asked for.
func TestSecondStartsAnew(t *testing.T) {
	t.Parallel()
	at, l := clock(), meter.NewLedger()
	l.Committing([]meter.ID{id(1)}, at(0))
	l.Seen(id(1), at(1))
	if q := l.Second(); q.N != 1 || q.Max != time.Second {
		t.Errorf("first second: %+v", q)
	}
	if q := l.Second(); q.N != 0 {
		t.Errorf("second second: %+v", q)
	}
}

// Law: memory follows what is on its way, not what has passed, also behind a
// row that never arrives; and the lag stays that row's age.
func TestLostRowKeepsNothingBehindIt(t *testing.T) {
	t.Parallel()
	at, l := clock(), meter.NewLedger()
	l.Committing([]meter.ID{{}}, at(0))
	l.Committed([]meter.ID{{}})
	for i := range 50_000 {
		one := []meter.ID{{1, byte(i), byte(i >> 8)}}
		l.Committing(one, at(1))
		l.Committed(one)
		l.Seen(one[0], at(1))
		if n := l.Queued(); n > 1025 {
			t.Fatalf("%d rows queued with one on its way", n)
		}
	}
	if r := l.Read(at(9)); r.Lag != 9*time.Second || r.InFlight != 1 {
		t.Errorf("%+v", r)
	}
}
