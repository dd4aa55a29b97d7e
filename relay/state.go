package relay

import (
	"fmt"
	"sync"
	"time"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/sink"
)

// State is what the relay is doing, in one word that metrics and people use.
type State string

// The states.
const (
	Starting   State = "starting"    // connecting, checking
	Standby    State = "standby"     // another relay owns the slot; waiting for it
	CatchingUp State = "catching_up" // streaming, and far behind
	Streaming  State = "streaming"
	Blocked    State = "blocked" // streaming, but something outside holds it; Reason says what
	Failed     State = "failed"  // a person must act; Reason says what to do
	Stopping   State = "stopping"
)

// States lists all of them, in the order of the metric.
var States = []State{Starting, Standby, CatchingUp, Streaming, Blocked, Failed, Stopping}

// Status is one look at the relay. All LSNs are of this session.
type Status struct {
	State  State
	Reason string // in plain words; "" when all is well
	Since  time.Time

	SystemID  string
	Timeline  uint32
	Received  outbox.LSN
	Stored    outbox.LSN
	Confirmed outbox.LSN

	HeldRows, HeldBytes int           // received and not settled
	Lag                 time.Duration // age of the oldest of them, 0 when there is none
	LastTurn            time.Time     // when the loop last went round; zero outside a session
	LinesEvents         int64

	Facts   *cdc.Facts     // as of the last look, nil before the first
	Blocked []sink.Blocked // topics that wait for something
}

// board is where the relay's goroutines pin what others may read. It is a
// leaf: nothing is called while mu is held.
type board struct {
	mu     sync.Mutex
	state  State
	reason string
	since  time.Time
	facts  *cdc.Facts
	id     cdc.Identity
	stat   *stats // of the running session, nil between sessions
}

func (b *board) set(s State, reason string) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == s && b.reason == reason {
		return false
	}
	if b.state != s {
		b.since = time.Now()
	}
	b.state, b.reason = s, reason
	return true
}

func (b *board) setIdentity(id cdc.Identity) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id = id
}

// setStats pins the counters of the session that runs; nil when none does.
func (b *board) setStats(s *stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stat = s
}

func (b *board) setFacts(f *cdc.Facts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts = f
}

// Status may be called at any time from any goroutine.
func (r *Relay) Status() Status {
	b := &r.board
	b.mu.Lock()
	s := Status{State: b.state, Reason: b.reason, Since: b.since, SystemID: b.id.SystemID, Timeline: b.id.Timeline, Facts: b.facts}
	stat := b.stat
	b.mu.Unlock()
	if stat != nil {
		c := stat.snapshot()
		s.Received, s.Stored, s.Confirmed = c.Received, c.Stored, c.Confirmed
		s.HeldRows, s.HeldBytes, s.LinesEvents = c.HeldRows, c.HeldBytes, c.LinesEvents
		if tick := stat.tick.Load(); tick != 0 {
			s.LastTurn = time.Unix(0, tick)
		}
		if !c.OldestCommit.IsZero() {
			s.Lag = max(0, time.Since(c.OldestCommit))
		}
	}
	s.Blocked = r.deps.Sink.Blocked()
	return s
}

// liveLimit is how long the loop may go without a turn before it counts as
// stuck: three of the longest beats.
const liveLimit = 30 * time.Second

// Live says whether the loop turns. It asks neither Postgres nor Kafka, so an
// outage of those never restarts us.
func (r *Relay) Live() error {
	s := r.Status()
	if s.LastTurn.IsZero() {
		return nil // between sessions the supervisor sleeps in its back-off
	}
	if silent := time.Since(s.LastTurn); silent > liveLimit {
		return fmt.Errorf("the loop has not turned for %v", silent.Round(time.Second))
	}
	return nil
}
