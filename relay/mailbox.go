package relay

import (
	"sync"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// mailbox carries outcomes from the sink's callbacks to the loop. Putting
// never blocks (I6): it appends under a leaf mutex and, when the box was
// empty, wakes the loop. Its size is bounded by the span, because each
// outcome belongs to a ticket that is out.
type mailbox struct {
	wake func()

	mu   sync.Mutex
	full []outbox.Outcome
	free []outbox.Outcome // what the last take returned; the loop is done with it at the next
}

func (m *mailbox) put(o outbox.Outcome) {
	m.mu.Lock()
	first := len(m.full) == 0
	m.full = append(m.full, o)
	m.mu.Unlock()
	if first {
		m.wake()
	}
}

// take returns what has arrived. The slice is valid until the next take.
func (m *mailbox) take() []outbox.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.full
	clear(m.free) // drop the last round's events
	m.full, m.free = m.free[:0], got
	return got
}
