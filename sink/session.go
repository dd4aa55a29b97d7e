package sink

import (
	"sync"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// SessionOptions are what a session of the relay gives to the sink.
type SessionOptions struct {
	// Report takes the outcome of each ticket, once. It is called from the
	// sink's goroutine, in no order across partitions. It must not block and
	// must not call the session.
	Report func(outbox.Outcome)
	// Interrupted says, at most once, that the session must end: what the
	// brokers stored is unknown. Tickets without an outcome get none. It is
	// called from the sink's goroutine and must not block.
	Interrupted func(error)
	// Held are the events whose keys wait in lines when the session begins.
	Held []HeldEvent
}

// Session takes the events of one session of the relay. Publish, Kick and End
// are for one goroutine, the loop; Beat and Encode for any.
type Session struct {
	kafka   *Kafka
	options SessionOptions

	gathered []entry // touched by the loop alone

	mu   sync.Mutex // guards over; held while an outcome is reported
	over bool       // nothing is reported any more
}

// Publish takes an event. It never blocks. The ticket gets exactly one
// outcome, unless the session ends first. The event must not be changed any
// more.
func (s *Session) Publish(t outbox.Ticket, e *outbox.Event) {
	s.gathered = append(s.gathered, entry{t, e})
	if len(s.gathered) == cap(s.gathered) {
		s.Kick()
	}
}

// Kick hands over what was gathered, as far as lanes are idle. The loop calls
// it when its input is drained.
func (s *Session) Kick() {
	if len(s.gathered) > 0 {
		s.gathered = s.kafka.pump.box.send(s, s.gathered)
	}
}

// Beat starts the client's senders again and lets due healing begin. The sink
// does so by itself too; a beat only makes it sooner.
func (s *Session) Beat() {
	p := s.kafka.pump
	p.box.call(func() {
		if p.inflightRecords > 0 {
			p.flush()
		}
	})
}

// End ends the session: what is gathered is dropped, and when it returns
// nothing more is reported. What is in flight goes on, and keeps its lane
// closed to the next session until it is decided.
func (s *Session) End() {
	s.finish()
	s.gathered = nil
	p := s.kafka.pump
	p.box.call(func() {
		if p.session == s {
			p.drop()
		}
	})
}

// Encode builds the record that would be sent for an event. The topic is ""
// when none could be found; the headers are nil when they cannot be encoded.
func (s *Session) Encode(e *outbox.Event) *outbox.Record {
	topic, _ := s.kafka.pump.router.topic(e)
	return newRecord(e, topic)
}

// deliver reports an outcome unless the session is over.
func (s *Session) deliver(o outbox.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.options.Report(o)
	}
}

// finish makes the session report nothing more. It returns whether it was
// still alive.
func (s *Session) finish() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := !s.over
	s.over = true
	return was
}

func (s *Session) interrupted(err error) {
	if s.options.Interrupted != nil {
		s.options.Interrupted(err)
	}
}
