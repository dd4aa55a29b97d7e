package relay

import (
	"sync/atomic"
	"time"
)

// Far behind is told by the server's own clock alone: how old a transaction
// was when the server sent it.
const (
	behindAge   = time.Second            // from this age on the relay is far behind
	caughtUpAge = 200 * time.Millisecond // below it, no longer
)

// While far behind, larger pieces are worth more than a few milliseconds.
const (
	gatherRows = 512                   // events that are handed over at once
	gatherTime = 5 * time.Millisecond  // how long fewer of them may wait
	farLook    = 40 * time.Millisecond // how late outcomes may be looked at; more than twice a gulp
)

// pacer says how the loop reads and hands over. While caught up every event is
// handed over when nothing more can be read without waiting, and every outcome
// wakes the loop. Far behind, that makes small reads, small requests to the
// brokers and a system call for each, so both wait for more.
//
// It belongs to the loop's goroutine, except far, which any goroutine reads.
type pacer struct {
	gulp     func(far bool) // tells the stream; nil where it does not care
	holdsOff bool           // the stream itself holds back its reads while far behind

	far    atomic.Bool
	rows   int       // gathered and not handed over
	kickBy time.Time // when those must be handed over; zero when there are none or no need to hurry
}

// sent takes the age of a transaction when the server sent it.
func (p *pacer) sent(age time.Duration) {
	switch {
	case age >= behindAge:
		p.set(true)
	case age < caughtUpAge:
		p.set(false)
	}
}

// idle says that the stream had nothing to read.
func (p *pacer) idle() { p.set(false) }

func (p *pacer) set(far bool) {
	if p.far.Load() == far {
		return
	}
	p.far.Store(far)
	if p.gulp != nil {
		p.gulp(far)
	}
}

// until bounds a read that would otherwise wait until t.
func (p *pacer) until(t, now time.Time) time.Time {
	if !p.far.Load() {
		return t
	}
	// Outcomes do not wake a read while far behind.
	t = earlier(t, now.Add(farLook))
	if !p.kickBy.IsZero() {
		t = earlier(t, p.kickBy)
	}
	return t
}

// gathers says whether what was read may wait for more before it is handed
// over. full says that nothing more will be read for now.
func (p *pacer) gathers(full bool, now time.Time) bool {
	if full || !p.far.Load() || p.holdsOff || p.rows == 0 || p.rows >= gatherRows {
		return false
	}
	if p.kickBy.IsZero() {
		p.kickBy = now.Add(gatherTime)
	}
	return now.Before(p.kickBy)
}

// kicked says that all that was gathered is handed over.
func (p *pacer) kicked() { p.rows, p.kickBy = 0, time.Time{} }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
