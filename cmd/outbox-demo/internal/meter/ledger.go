package meter

import (
	"slices"
	"sync"
	"time"
)

// ID is an event's identity, the 16 bytes of its UUID.
type ID [16]byte

type state uint8

const (
	pending   state = iota // COMMIT was sent, its answer is not here
	committed              // the server said so
	over                   // seen by the reader, or rolled back
)

type row struct {
	at    time.Time // just before COMMIT was sent
	state state
}

// window is the time of one fault: from its start to the moment when
// everything committed before its end had arrived.
type window struct {
	began, ended, caughtUp time.Time // the last two are zero until they happen
}

// Ledger knows each row from its COMMIT to its arrival at the reader. Its
// methods are safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	open   map[ID]*row // what has not arrived
	queue  []*row      // the same, by time of commit, some that are over among them; never the front
	counts Counts
	all    Histogram
	calm   Histogram // without what a fault overlaps
	second Histogram // since the last call of Second
	faults []window
}

// Counts are totals since the start.
type Counts struct {
	Committed uint64 // rows whose COMMIT the server answered
	Arrived   uint64 // records that the reader saw, copies included
	First     uint64 // rows whose first copy it saw
}

// NewLedger makes an empty one.
func NewLedger() *Ledger { return &Ledger{open: map[ID]*row{}} }

// Committing notes rows whose COMMIT is about to be sent.
func (l *Ledger) Committing(ids []ID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		r := &row{at: now}
		l.open[id] = r
		l.queue = append(l.queue, r)
	}
}

// Committed notes that the server has answered.
func (l *Ledger) Committed(ids []ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Committed += uint64(len(ids))
	for _, id := range ids {
		// A row may have arrived before the writer heard of its commit.
		if r, ok := l.open[id]; ok {
			r.state = committed
		}
	}
}

// Abandoned notes that a COMMIT failed: the rows are waited for no longer.
func (l *Ledger) Abandoned(ids []ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.close(id)
	}
	l.trim()
}

// Seen notes one record at the reader. It says whether it is a row's first.
func (l *Ledger) Seen(id ID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Arrived++
	r, ok := l.open[id]
	if !ok {
		return false
	}
	l.counts.First++
	took := now.Sub(r.at)
	l.all.Add(took)
	l.second.Add(took)
	if !l.faulty(r.at, now) {
		l.calm.Add(took)
	}
	l.close(id)
	l.trim()
	return true
}

func (l *Ledger) close(id ID) {
	if r, ok := l.open[id]; ok {
		r.state = over
		delete(l.open, id)
	}
}

// trim takes what is over from the front of the queue, and from all of it when
// one lost row at the front keeps many behind it.
func (l *Ledger) trim() {
	if len(l.queue) > 1024 && len(l.queue) > 2*len(l.open) {
		l.queue = slices.DeleteFunc(l.queue, func(r *row) bool { return r.state == over })
	}
	for len(l.queue) > 0 && l.queue[0].state == over {
		l.queue[0] = nil
		l.queue = l.queue[1:]
	}
}

// faulty says whether a fault overlaps the time from one moment to the other.
func (l *Ledger) faulty(from, to time.Time) bool {
	for _, w := range l.faults {
		if !to.Before(w.began) && (w.caughtUp.IsZero() || !from.After(w.caughtUp)) {
			return true
		}
	}
	return false
}

// FaultBegan opens a window of fault. Windows do not overlap: the last one is
// caught up before the next begins, or they become one.
func (l *Ledger) FaultBegan(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.faults); n > 0 && l.faults[n-1].caughtUp.IsZero() {
		l.faults[n-1].ended = time.Time{}
		return
	}
	l.faults = append(l.faults, window{began: now})
}

// FaultEnded says that the cause is gone; the backlog is not yet.
func (l *Ledger) FaultEnded(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.faults); n > 0 {
		l.faults[n-1].ended = now
	}
}

// Reading is the ledger at one moment.
type Reading struct {
	Counts
	InFlight int           // committed and not arrived
	Lag      time.Duration // age of the oldest of these, 0 without one
	Faulty   bool          // inside a fault's window
	// CaughtUp is set in the one reading that closes a fault's window: how
	// long after the fault's end that was.
	CaughtUp time.Duration
}

// Read gives a reading and closes the window of a fault that is made good.
func (l *Ledger) Read(now time.Time) Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := Reading{Counts: l.counts}
	oldest := now
	for _, r := range l.queue {
		// At the front stand at most as many pending rows as writers have
		// in hand.
		if r.state == committed {
			oldest = r.at
			out.Lag = now.Sub(r.at)
			break
		}
	}
	out.InFlight = l.inFlight()
	if n := len(l.faults); n > 0 && l.faults[n-1].caughtUp.IsZero() {
		w := &l.faults[n-1]
		out.Faulty = true
		if !w.ended.IsZero() && oldest.After(w.ended) {
			w.caughtUp = now
			out.CaughtUp = max(1, now.Sub(w.ended))
		}
	}
	return out
}

// Missing is the number of committed rows that have not arrived.
func (l *Ledger) Missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight()
}

// inFlight is called with mu held. What has arrived before its commit was
// answered counts as committed.
func (l *Ledger) inFlight() int {
	return int(max(0, int64(l.counts.Committed)-int64(l.counts.First)))
}

// Second gives the latencies of arrivals since its last call.
func (l *Ledger) Second() Quantiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.second.Quantiles()
	l.second = Histogram{}
	return q
}

// Overall gives the latencies of all arrivals, and of those that no fault
// overlaps.
func (l *Ledger) Overall() (all, calm Quantiles) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Quantiles(), l.calm.Quantiles()
}
