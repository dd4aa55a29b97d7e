package relay

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// Law: far behind is a matter of a transaction's age by the server's clock,
// with a band in which nothing changes, and an idle stream ends it.
func TestPaceFollowsTheAge(t *testing.T) {
	t.Parallel()
	var said []bool
	p := pacer{gulp: func(far bool) { said = append(said, far) }}
	for i, step := range []struct {
		age  time.Duration
		idle bool
		want bool
	}{
		{age: -time.Hour}, {age: 999 * time.Millisecond}, {age: behindAge, want: true}, {age: caughtUpAge, want: true},
		{age: caughtUpAge - 1}, {age: 500 * time.Millisecond}, {age: time.Hour, want: true}, {idle: true},
	} {
		if step.idle {
			p.idle()
		} else {
			p.sent(step.age)
		}
		if got := p.far.Load(); got != step.want {
			t.Errorf("step %d: far is %t", i, got)
		}
	}
	if want := []bool{true, false, true, false}; !slices.Equal(said, want) {
		t.Errorf("the stream was told %v, want %v", said, want)
	}
}

// Law: far behind, events gather until there are enough, the time is over or
// nothing more will be read; caught up they are handed over at once.
func TestPaceGathersOnlyFarBehind(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	far := func(rows int) *pacer {
		p := &pacer{rows: rows}
		p.sent(time.Minute)
		return p
	}
	holdsOff := far(1)
	holdsOff.holdsOff = true
	for name, c := range map[string]struct {
		p    *pacer
		full bool
		want bool
	}{
		"caught up":               {p: &pacer{rows: 1}},
		"far behind":              {p: far(1), want: true},
		"enough":                  {p: far(gatherRows)},
		"nothing gathered":        {p: far(0)},
		"the span is full":        {p: far(1), full: true},
		"the stream holds back":   {p: holdsOff},
		"just short of being due": {p: func() *pacer { p := far(1); p.kickBy = now.Add(1); return p }(), want: true},
		"due":                     {p: func() *pacer { p := far(1); p.kickBy = now; return p }()},
	} {
		if got := c.p.gathers(c.full, now); got != c.want {
			t.Errorf("%s: gathers is %t", name, got)
		}
	}
}

// Law: what has gathered is handed over in time, and outcomes are looked at in
// time, whatever else the read waits for.
func TestPaceBoundsTheRead(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := &pacer{}
	if got := p.until(now.Add(time.Hour), now); got != now.Add(time.Hour) {
		t.Errorf("caught up: %v", got.Sub(now))
	}
	p.sent(time.Minute)
	if got := p.until(now.Add(time.Hour), now); got != now.Add(farLook) {
		t.Errorf("far behind: %v", got.Sub(now))
	}
	p.rows = 1
	p.gathers(false, now)
	if got := p.until(now.Add(time.Hour), now); got != now.Add(gatherTime) {
		t.Errorf("with something gathered: %v", got.Sub(now))
	}
	if got := p.until(now.Add(1), now); got != now.Add(1) {
		t.Errorf("with a nearer end: %v", got.Sub(now))
	}
	p.kicked()
	if p.rows != 0 || !p.kickBy.IsZero() {
		t.Errorf("after a hand-over: %d rows, due %v", p.rows, p.kickBy)
	}
}

// Law: what has gathered is handed over before the loop stops to read, whatever
// made it stop between two reads: the lines may be full for hours.
func TestGatheredIsHandedOverBeforeAWait(t *testing.T) {
	t.Parallel()
	pub, now := &fakePublisher{}, time.Now()
	cfg := testConfig()
	cfg.LinesEvents = 1
	l := &loop{cfg: cfg, pub: pub, stat: &stats{}, tracker: checkpoint.New(outbox.Progress{Timeline: 1, LSN: 100}),
		own: ownership{full: new(atomic.Bool), linesEvents: 1}, settler: newSettlerPort(nil, zerolog.Nop()),
		nudge: make(chan struct{}, 1), nextBeat: now}
	l.pace.sent(time.Minute)
	l.pace.rows = 1
	if !l.pace.gathers(false, now) {
		t.Fatal("nothing gathers")
	}
	if err := l.advance(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if pub.kicks != 1 || l.pace.rows != 0 {
		t.Errorf("%d hand-overs, %d rows still gathered", pub.kicks, l.pace.rows)
	}
}
