package checkpoint

import "github.com/outboxrelay/outbox-relay/outbox"

// state is how far a ticket has come. The order matters: a cursor passes
// every state at or above its own.
type state uint8

const (
	held state = iota
	decidedState
	settledState
)

func (s state) String() string {
	return [...]string{"held", "decided", "settled"}[s]
}

// row is what the tracker keeps of one ticket.
type row struct {
	commit outbox.LSN
	bytes  int
	index  int32
	state  state
}

// ring holds the rows of consecutive tickets. Its size is a power of two and
// doubles when it is full; it never shrinks within a session, since the span
// limit bounds it.
type ring struct {
	buf   []row
	first outbox.Ticket // the ticket of the oldest row kept; 0 before the first push
	n     int
}

const ringMin = 1024

// push appends the row of the next ticket.
func (r *ring) push(x row) {
	if r.first == 0 {
		r.first = 1
	}
	if r.n == len(r.buf) {
		r.grow()
	}
	*r.at(r.first + outbox.Ticket(r.n)) = x
	r.n++
}

func (r *ring) grow() {
	next := make([]row, max(ringMin, 2*len(r.buf)))
	mask := outbox.Ticket(len(next) - 1)
	for i := range r.n {
		ticket := r.first + outbox.Ticket(i)
		next[ticket&mask] = *r.at(ticket)
	}
	r.buf = next
}

// at returns the row of a ticket that is kept; the caller has checked that.
func (r *ring) at(ticket outbox.Ticket) *row {
	return &r.buf[ticket&outbox.Ticket(len(r.buf)-1)]
}

// dropBelow forgets the rows of the tickets below ticket.
func (r *ring) dropBelow(ticket outbox.Ticket) {
	r.n -= int(ticket - r.first)
	r.first = ticket
}
