package relay

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// Why a row that the log brought was not published.
type skipReason int

const (
	skipSettled skipReason = iota // an earlier session settled it
	skipWaiting                   // it waits in a line
	skipStatus                    // inserted with a status other than READY: not ours
	skipReasons
)

var skipNames = [skipReasons]string{"settled", "waiting", "status"}

// stats is what the loop tells the world. The loop counts in plain fields and
// publishes them once a burst, so that a row costs additions, not atomics.
type stats struct {
	tick atomic.Int64 // unix nanoseconds of the loop's last turn
	pub  atomic.Pointer[counts]
	now  counts

	commitToAck func(seconds float64) // histogram; nil in tests
	batchWait   func(seconds float64)
	sampled     int
	ages        []age
	flushed     time.Time
	dirty       bool // something was counted since
}

// age is when the row of a ticket was committed.
type age struct {
	ticket outbox.Ticket
	commit time.Time
}

const ageStep = 100 * time.Millisecond

// counts are totals since the relay started, and the positions now.
type counts struct {
	Messages     [kinds]uint64
	Keepalives   uint64
	Bytes        uint64
	Transactions uint64
	Empty        uint64 // transactions without an outbox row
	Rows         uint64
	Skipped      [skipReasons]uint64
	Verdicts     [8]uint64
	Refused      [refusals]uint64 // by refusalClasses
	Shown        uint64
	Pending      uint64
	Overtaken    uint64
	Gone         uint64
	Batches      uint64
	HeldSeconds  float64

	Received, Decided, Stored, Confirmed outbox.LSN
	HeldRows, HeldBytes                  int
	Backlog                              int // outcomes not yet in a batch
	LinesEvents                          int64
	OldestCommit                         time.Time // of the oldest row that is out; zero when none is
	LastCommit                           time.Time // of the newest transaction whose row was acked
	LastFeedback, LastReceived           time.Time
}

// The kinds of message that are counted apart, as the metric names them.
const (
	kindBegin = iota
	kindInsert
	kindCommit
	kindRelation
	kindMessage
	kindOther
	kinds
)

var kindNames = [kinds]string{"begin", "insert", "commit", "relation", "message", "other"}

func (s *stats) message(k decode.Kind, n int) {
	i := kindOther
	switch k {
	case decode.KindBegin:
		i = kindBegin
	case decode.KindInsert:
		i = kindInsert
	case decode.KindCommit:
		i = kindCommit
	case decode.KindRelation:
		i = kindRelation
	case decode.KindLogical:
		i = kindMessage
	}
	s.dirty = true
	s.now.Messages[i]++
	s.now.Bytes += uint64(n)
}

// sent notes a ticket's commit time, at most one for each age step, so that
// the age of the oldest open row is known within that step.
func (s *stats) sent(t outbox.Ticket, commit time.Time) {
	if n := len(s.ages); n == 0 || commit.Sub(s.ages[n-1].commit) >= ageStep {
		s.ages = append(s.ages, age{t, commit})
	}
}

// oldest is the commit time of the oldest row that is out, given the oldest
// ticket that is.
func (s *stats) oldest(front outbox.Ticket) time.Time {
	i := 0
	for i+1 < len(s.ages) && s.ages[i+1].ticket <= front {
		i++
	}
	s.ages = s.ages[:copy(s.ages, s.ages[i:])]
	if len(s.ages) == 0 {
		return time.Time{}
	}
	return s.ages[0].commit
}

func (s *stats) keepalive()   { s.now.Keepalives++ }
func (s *stats) rowReceived() { s.now.Rows++ }

func (s *stats) skipped(why skipReason, n uint64) { s.now.Skipped[why] += n }

func (s *stats) transaction(rows int) {
	if rows == 0 {
		s.now.Empty++
		return
	}
	s.now.Transactions++
}

const refusals = 6

// refusalClasses are the values of the label class; the first stands for any
// that is not listed.
var refusalClasses = [refusals]outbox.Class{"unknown", outbox.ClassTooLarge, outbox.ClassInvalid, outbox.ClassEncode, outbox.ClassRoute, outbox.ClassBrokerRefused}

// sampleEvery is how many acknowledgements share one histogram observation
// under load; at low rates every one is observed.
const sampleEvery = 16

func (s *stats) outcome(o outbox.Outcome, now time.Time) {
	s.dirty = true
	s.now.Verdicts[o.Verdict&7]++
	if o.Verdict == outbox.Refused {
		s.now.Refused[max(0, slices.Index(refusalClasses[:], o.Refusal.Class))]++
	}
	if o.Verdict != outbox.Acked {
		return
	}
	s.now.LastCommit = o.Event.CommitTime
	if s.commitToAck == nil {
		return
	}
	if s.sampled++; s.now.HeldRows < sampleEvery || s.sampled%sampleEvery == 0 {
		s.commitToAck(now.Sub(o.Event.CommitTime).Seconds())
	}
}

func (s *stats) batch(b *batch) {
	s.dirty = true
	s.now.Batches++
	s.now.Shown += uint64(b.result.Shown)
	s.now.Pending += uint64(b.result.Pending)
	s.now.Overtaken += uint64(b.result.Overtaken)
	s.now.Gone += uint64(b.result.Gone)
	if s.batchWait != nil {
		s.batchWait(b.took.Seconds())
	}
}

func (s *stats) held(d time.Duration) { s.now.HeldSeconds += d.Seconds() }

// flushEvery is how old the published counts may be while the loop runs.
const flushEvery = 50 * time.Millisecond

// turn is called once for each turn of the loop: the loop lives.
func (s *stats) turn(l *loop, now time.Time) {
	s.tick.Store(now.UnixNano())
	if now.Sub(s.flushed) >= flushEvery {
		s.flush(l, now)
	}
}

// dueBy is when the loop should turn for the counts' sake, so that they do
// not stay behind when it falls idle; false when nothing was counted.
func (s *stats) dueBy() (time.Time, bool) { return s.flushed.Add(flushEvery), s.dirty }

// flush publishes the counts.
func (s *stats) flush(l *loop, now time.Time) {
	s.flushed, s.dirty = now, false
	c := &s.now
	c.Received, c.Decided, c.Stored, c.Confirmed = l.received, l.tracker.Decided().LSN, l.stored.LSN, l.confirmed
	c.HeldRows, c.HeldBytes = l.tracker.Held()
	c.LastReceived = l.lastHeard
	c.LinesEvents, c.Backlog = l.own.linesEvents, l.cut.len()
	c.OldestCommit = time.Time{}
	if c.HeldRows > 0 {
		c.OldestCommit = s.oldest(l.tracker.Front())
	} else {
		s.ages = s.ages[:0]
	}
	published := *c
	s.pub.Store(&published)
}

// snapshot gives the last published counts; never nil.
func (s *stats) snapshot() *counts {
	if c := s.pub.Load(); c != nil {
		return c
	}
	return &counts{}
}
