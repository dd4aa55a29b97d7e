package sink

import "github.com/outboxrelay/outbox-relay/outbox"

// entry is an event that waits.
type entry struct {
	ticket outbox.Ticket
	event  *outbox.Event
}

// queue is a first-in first-out queue of entries to whose front a chunk that
// came back undecided can be returned. What bounds it is the relay's span:
// every entry is an event that the relay counts as in flight.
type queue struct {
	buf  []entry
	head int
}

func (q *queue) len() int { return len(q.buf) - q.head }

func (q *queue) push(e entry) { q.buf = append(q.buf, e) }

func (q *queue) front() entry { return q.buf[q.head] }

// keptEntries is the largest buffer that an empty queue keeps, in entries (16
// bytes each), so that a burst does not pin memory in every lane.
const keptEntries = 4096

func (q *queue) pop() entry {
	e := q.buf[q.head]
	q.buf[q.head] = entry{} // the event may go once it is settled
	q.head++
	switch {
	case q.head == len(q.buf) && cap(q.buf) > keptEntries:
		*q = queue{}
	case q.head == len(q.buf):
		q.buf, q.head = q.buf[:0], 0
	case q.head >= keptEntries && q.head*2 >= len(q.buf):
		n := copy(q.buf, q.buf[q.head:])
		clear(q.buf[n:])
		q.buf, q.head = q.buf[:n], 0
	}
	return e
}

// unshift puts entries before all others, in their order.
func (q *queue) unshift(es []entry) {
	if len(es) == 0 {
		return
	}
	all := make([]entry, 0, len(es)+q.len())
	all = append(all, es...)
	all = append(all, q.buf[q.head:]...)
	q.buf, q.head = all, 0
}

// take empties the queue and returns what it held, in order.
func (q *queue) take() []entry {
	es := q.buf[q.head:]
	*q = queue{}
	return es
}
