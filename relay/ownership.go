package relay

import (
	"fmt"
	"sync/atomic"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// ownership is what a session knows from its takeover, read after its nonce
// was committed: nothing of an older session commits after it.
type ownership struct {
	progress outbox.Progress              // the position row
	lookUpTo outbox.LSN                   // transactions up to here may hold rows that are settled ahead of it
	waiting  map[outbox.Position]struct{} // events in lines at or beyond it: the lines own them
	history  history                      // which timeline wrote which LSN
	seen     map[uint32]string            // relations the stream has named

	linesEvents, linesBytes int64        // in all lines; kept by the loop from then on
	full                    *atomic.Bool // they have reached their limit; the watch reads it
}

func (o *ownership) sawRelation(r *decode.Relation) {
	if o.seen == nil {
		o.seen = make(map[uint32]string)
	}
	o.seen[r.OID] = r.Namespace + "." + r.Name
}

func (o *ownership) relationName(oid uint32) string { return o.seen[oid] }

// addLined counts what a committed batch has put into lines.
func (o *ownership) addLined(b *batch) {
	if b.result.Lined == 0 {
		return
	}
	o.linesEvents += int64(b.result.Lined)
	for i := range b.outcomes {
		if r := b.outcomes[i].Record; r != nil {
			o.linesBytes += int64(len(r.Key) + len(r.Value))
		}
	}
}

// linesFull says that the lines hold as much as they may: the stream stops
// then, in a named state, rather than fill the database.
func (o *ownership) linesFull(c Config) bool {
	full := o.linesEvents >= c.LinesEvents || o.linesBytes >= c.LinesBytes
	if full {
		o.full.Store(true)
	}
	return full
}

// history tells which timeline wrote an LSN. A replay after a failover must
// carry the position that the first copy carried.
type history struct {
	current uint32
	forks   []cdc.Fork // rising; each says where its timeline ended
}

func (h history) at(lsn outbox.LSN) uint32 {
	for _, f := range h.forks {
		if lsn < f.SwitchLSN {
			return f.Timeline
		}
	}
	return h.current
}

// DivergedError reports a position that the server's history does not
// contain: the server was restored, or it is another one.
type DivergedError struct {
	Progress outbox.Progress
	Current  uint32
	Fork     outbox.LSN // where the server left the position's timeline; 0 when it never was on it
}

// Error gives the interval and what it means.
func (e *DivergedError) Error() string {
	if e.Fork == 0 {
		return fmt.Sprintf("the position row stands at %v of timeline %d, and timeline %d of this server does not descend from that; "+
			"is this the right server, or was it restored from a backup?", e.Progress.LSN, e.Progress.Timeline, e.Current)
	}
	return fmt.Sprintf("the position row stands at %v of timeline %d, but the server left that timeline at %v: "+
		"what was published between %v and %v is in no database any more", e.Progress.LSN, e.Progress.Timeline, e.Fork, e.Fork, e.Progress.LSN)
}

// checkFork carries a position over to the server's timeline. LSNs of two
// timelines may be compared only below the point where they part.
func checkFork(p outbox.Progress, h history) (outbox.Progress, error) {
	if p.Timeline == h.current {
		return p, nil
	}
	for _, f := range h.forks {
		if f.Timeline != p.Timeline {
			continue
		}
		if p.LSN > f.SwitchLSN {
			return p, &DivergedError{Progress: p, Current: h.current, Fork: f.SwitchLSN}
		}
		// What was settled inside a transaction is forgotten: after the fork
		// another one may stand at that LSN. Its rows are looked up anyway.
		return outbox.Progress{Timeline: h.current, LSN: p.LSN}, nil
	}
	return p, &DivergedError{Progress: p, Current: h.current}
}

// SlotAheadError reports a slot that stands beyond the position row on the
// same timeline: somebody else has moved or re-created it.
type SlotAheadError struct {
	Slot      string
	Confirmed outbox.LSN
	Progress  outbox.Progress
}

// Error gives the interval that was skipped.
func (e *SlotAheadError) Error() string {
	return fmt.Sprintf("slot %s stands at %v, but this relay has settled only up to %v: it was advanced or re-created by someone else, "+
		"and rows committed between %v and %v will never come out of it", e.Slot, e.Confirmed, e.Progress.LSN, e.Progress.LSN, e.Confirmed)
}
