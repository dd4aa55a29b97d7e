package relay

import (
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// When an idle position is stored although no row asks for it: unrelated WAL
// moves past us, and the slot must follow, but each store writes WAL itself.
const (
	idleEvery  = 60 * time.Second
	idleBytes  = 64 << 20
	ownWriteUB = 16 << 10 // WAL of one position update with a full page image, rounded up
)

// maxLinedBytes bounds the payload bytes that one batch writes into lines.
const maxLinedBytes = 16 << 20

// cutter gathers outcomes until a batch is due: enough rows, or old enough.
// It is pure but for the times it is given.
type cutter struct {
	rows     int
	interval time.Duration

	waiting  []outbox.Outcome
	head     int        // waiting[:head] are taken; moved to the front in bulk
	since    time.Time  // when the oldest thing worth a batch happened; zero for none
	lastCut  time.Time  // when the last batch was cut
	ownWrite outbox.LSN // where the WAL stood right after our last commit
}

func (c *cutter) add(o outbox.Outcome, now time.Time) {
	c.waiting = append(c.waiting, o)
	c.touch(now)
}

// touch says that the position has a reason to be stored soon.
func (c *cutter) touch(now time.Time) {
	if c.since.IsZero() {
		c.since = now
	}
}

func (c *cutter) len() int    { return len(c.waiting) - c.head }
func (c *cutter) empty() bool { return c.len() == 0 }

// due says whether a batch should be cut now. progress is where the position
// would come to if everything decided were written, sent where the last batch
// has put it.
func (c *cutter) due(now time.Time, progress, sent outbox.Progress, stopping bool) bool {
	switch {
	case c.len() >= c.rows:
		return true
	case !c.empty():
		return stopping || now.Sub(c.since) >= c.interval
	case !sent.Before(progress):
		c.since = time.Time{} // nothing to store: the reason is gone
		return false
	case stopping:
		return true
	case !c.since.IsZero():
		return now.Sub(c.since) >= c.interval
	default:
		return c.idleDue(now, progress.LSN, sent.LSN)
	}
}

// idleDue holds back a position that moved by unrelated WAL alone, and never
// stores one for the WAL of our own write.
func (c *cutter) idleDue(now time.Time, lsn, sent outbox.LSN) bool {
	if lsn <= c.ownWrite+ownWriteUB {
		return false
	}
	return lsn-sent >= idleBytes || now.Sub(c.lastCut) >= idleEvery
}

// dueAt is when the cutter wants to be asked again; false when only news can
// make a batch due.
func (c *cutter) dueAt() (time.Time, bool) {
	if c.since.IsZero() {
		return time.Time{}, false
	}
	return c.since.Add(c.interval), true
}

// take removes the next batch's outcomes: at most rows of them, and at most
// maxLinedBytes of payload for lines, but always at least one.
func (c *cutter) take(now time.Time) []outbox.Outcome {
	waiting := c.waiting[c.head:]
	n, lined := 0, 0
	for n < len(waiting) && n < c.rows {
		if o := &waiting[n]; o.Verdict != outbox.Acked {
			lined += o.Event.Bytes()
			if n > 0 && lined > maxLinedBytes {
				break
			}
		}
		n++
	}
	batch := make([]outbox.Outcome, n)
	copy(batch, waiting)
	clear(waiting[:n])
	c.head += n
	c.compact()
	c.lastCut = now
	c.since = time.Time{}
	if !c.empty() {
		c.since = now
	}
	return batch
}

// compact moves what is left to the front once the taken part is the larger
// one, so that an outcome is moved at most once on average.
func (c *cutter) compact() {
	if 2*c.head < len(c.waiting) {
		return
	}
	rest := copy(c.waiting, c.waiting[c.head:])
	clear(c.waiting[rest:])
	c.waiting, c.head = c.waiting[:rest], 0
}
