package checkpoint

import (
	"fmt"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Tracker keeps the tickets that are out and the marks between them.
//
// It is not safe for concurrent use: one goroutine owns it. It belongs to one
// session (one replication connection, one timeline) and is thrown away with
// it. Its memory grows with the number of open tickets, which the caller
// bounds, and with the number of transactions among them.
type Tracker struct {
	start outbox.Progress // where this session began; positions never fall below it

	rows  ring          // tickets from the oldest unsettled one on
	next  outbox.Ticket // the next ticket to give; tickets start at 1
	held  int           // tickets given and not settled
	bytes int           // their bytes

	marks    []mark // rising LSN, rising after; marks[0] is not yet settled
	received outbox.LSN

	decided cursor
	settled cursor // Invariant: settled.ticket <= decided.ticket, settled.lsn <= decided.lsn

	open      bool // between Begin and Commit
	commit    outbox.LSN
	nextIndex int // in the open transaction: one above the last held row
}

// mark is a position that is reached when every ticket below after is done.
type mark struct {
	lsn   outbox.LSN
	after outbox.Ticket
}

// cursor is one of the two fronts.
type cursor struct {
	ticket outbox.Ticket // the oldest ticket not past this door
	mark   int           // index in marks of the first mark not reached
	lsn    outbox.LSN    // the last mark reached
}

// New returns a tracker for a session that begins at start, the content of
// the position row.
func New(start outbox.Progress) *Tracker {
	c := cursor{ticket: 1, lsn: start.LSN}
	return &Tracker{start: start, next: 1, received: start.LSN, decided: c, settled: c}
}

// Begin opens the transaction whose commit record stands at commit. It panics
// inside another one: protocol 1 sends whole transactions, one by one.
func (t *Tracker) Begin(commit outbox.LSN) {
	if t.open {
		panic(fmt.Sprintf("checkpoint: Begin at %v inside the transaction at %v", commit, t.commit))
	}
	t.open, t.commit, t.nextIndex = true, commit, 0
}

// Hold takes the ticket for the row with this index in the open transaction;
// bytes is what the row retains in memory. Rows that need no ticket (settled
// by an earlier session, or not ours) are simply not held.
func (t *Tracker) Hold(index, bytes int) outbox.Ticket {
	if !t.open || index < t.nextIndex {
		panic(fmt.Sprintf("checkpoint: Hold of row %d (open %v, next index %d)", index, t.open, t.nextIndex))
	}
	ticket := t.next
	t.next++
	t.nextIndex = index + 1
	t.rows.push(row{commit: t.commit, index: int32(index), bytes: bytes})
	t.held++
	t.bytes += bytes
	return ticket
}

// Commit closes the open transaction and leaves a mark at its end LSN.
func (t *Tracker) Commit(end outbox.LSN) {
	if !t.open {
		panic(fmt.Sprintf("checkpoint: Commit at %v without Begin", end))
	}
	t.open = false
	t.addMark(end)
}

// Keepalive leaves a mark at a position that the server reported between
// transactions. Inside one it does nothing (law I3).
func (t *Tracker) Keepalive(lsn outbox.LSN) {
	if t.open {
		return
	}
	t.addMark(lsn)
}

// addMark queues a mark, or moves the last one when no row stands between. A
// position that is not news is ignored: marks only rise (law I2).
func (t *Tracker) addMark(lsn outbox.LSN) {
	if lsn <= t.received {
		return
	}
	t.received = lsn
	if n := len(t.marks); n > 0 && t.marks[n-1].after == t.next && t.decided.mark < n {
		t.marks[n-1].lsn = lsn
	} else {
		t.marks = append(t.marks, mark{lsn: lsn, after: t.next})
	}
	t.reach(&t.decided)
	t.reach(&t.settled)
	t.dropReached()
}

// Decide says that the ticket's outcome travels in the batch being cut.
func (t *Tracker) Decide(ticket outbox.Ticket) {
	t.pass(ticket, held, decidedState)
	if ticket == t.decided.ticket {
		t.advance(&t.decided, decidedState)
	}
}

// Settle says that the batch with this ticket is committed. The ticket must
// have been decided.
func (t *Tracker) Settle(ticket outbox.Ticket) {
	r := t.pass(ticket, decidedState, settledState)
	t.held--
	t.bytes -= r.bytes
	if ticket == t.settled.ticket {
		t.advance(&t.settled, settledState)
		t.rows.dropBelow(t.settled.ticket)
		t.dropReached()
	}
}

// pass moves a ticket from one state to the next and panics when it is not in
// the first: a ticket settled twice would free a row that is still open (I4).
func (t *Tracker) pass(ticket outbox.Ticket, from, to state) *row {
	if ticket < t.settled.ticket || ticket >= t.next {
		panic(fmt.Sprintf("checkpoint: ticket %d is not out (oldest %d, next %d)", ticket, t.settled.ticket, t.next))
	}
	r := t.rows.at(ticket)
	if r.state != from {
		panic(fmt.Sprintf("checkpoint: ticket %d is %v, want %v", ticket, r.state, from))
	}
	r.state = to
	return r
}

// advance moves a cursor over every ticket that has reached the state, and
// over the marks between them.
func (t *Tracker) advance(c *cursor, s state) {
	for c.ticket < t.next && t.rows.at(c.ticket).state >= s {
		c.ticket++
	}
	t.reach(c)
}

// reach moves a cursor over the marks that stand before its ticket. This is
// the home of I1: a mark with an open ticket before it is never reached.
func (t *Tracker) reach(c *cursor) {
	for c.mark < len(t.marks) && t.marks[c.mark].after <= c.ticket {
		c.lsn = t.marks[c.mark].lsn
		c.mark++
	}
}

// dropReached forgets the marks that both cursors have passed, once they are
// half of the queue, so that a mark costs amortised constant time.
func (t *Tracker) dropReached() {
	n := t.settled.mark
	if n == 0 || 2*n < len(t.marks) {
		return
	}
	t.marks = t.marks[:copy(t.marks, t.marks[n:])]
	t.settled.mark -= n
	t.decided.mark -= n
}

// Decided is the position that holds once everything decided is written: what
// the batch being cut must store.
func (t *Tracker) Decided() outbox.Progress { return t.progress(&t.decided) }

// Settled is the position up to which everything is written: the highest that
// may be confirmed, provided that the position row says so too.
func (t *Tracker) Settled() outbox.Progress { return t.progress(&t.settled) }

func (t *Tracker) progress(c *cursor) outbox.Progress {
	p := outbox.Progress{Timeline: t.start.Timeline, LSN: c.lsn}
	switch {
	case c.ticket < t.next:
		if r := t.rows.at(c.ticket); r.index > 0 {
			p.NextCommit, p.NextIndex = r.commit, int(r.index)
		}
	case t.open && t.nextIndex > 0:
		p.NextCommit, p.NextIndex = t.commit, t.nextIndex
	}
	// While the first transactions are repeated, the session's start knows
	// more about their inside than the cursor does.
	if t.start.NextCommit >= p.LSN && p.NextCommit <= t.start.NextCommit &&
		(p.NextCommit < t.start.NextCommit || p.NextIndex < t.start.NextIndex) {
		p.NextCommit, p.NextIndex = t.start.NextCommit, t.start.NextIndex
	}
	return p
}

// Open says whether a transaction is open.
func (t *Tracker) Open() bool { return t.open }

// Received is the highest mark taken so far.
func (t *Tracker) Received() outbox.LSN { return t.received }

// Held is the number of tickets that are not settled, and the bytes that
// their rows retain.
func (t *Tracker) Held() (rows, bytes int) { return t.held, t.bytes }

// Front is the oldest ticket that is not settled, or the next one to be given
// when none is out.
func (t *Tracker) Front() outbox.Ticket { return t.settled.ticket }

// Undecided says whether some ticket's outcome is not known yet.
func (t *Tracker) Undecided() bool { return t.decided.ticket < t.next }
