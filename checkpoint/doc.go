// Package checkpoint answers one question: up to which position in the log is
// everything done?
//
// It is pure: no clock, no I/O, no goroutine. One goroutine owns a Tracker
// and calls it in the order in which the log speaks.
//
// # Rows hold, marks advance
//
// The log brings transactions: Begin, rows, Commit; and between transactions
// keepalives. Each row takes a ticket (Hold). Each Commit leaves a mark at
// the transaction's end LSN behind its rows, and each Keepalive outside a
// transaction leaves one at its own LSN. A mark is reached when no ticket
// before it is open. Nothing else moves a position.
//
//	log      B  r1 r2 C=40   B  r3  C=60   k=75
//	queue       t1 t2 [40]      t3  [60]   [75]
//	t1, t3 done:      position stays, because t2 stands before every mark
//	t2 done:          position 75, all three marks fall at once
//
// # Two cursors
//
// A ticket goes through two doors. Decide: its outcome is known and travels
// in the batch being written. Settle: that batch is committed. The decided
// position is what the batch must store; the settled position is what may be
// confirmed to the server. The second never passes the first.
//
// # Laws
//
//   - I1: a position never passes an open ticket.
//   - I2: a position never goes backwards.
//   - I3: only commit ends, and keepalives outside a transaction, are marks.
//     A keepalive inside one carries a position ahead of rows not yet seen.
//   - I4: a ticket is decided once and settled once; a second time panics.
//
// What is confirmed is a transaction's end LSN exactly: the commit LSN would
// bring the last transaction again at each restart, and anything added to the
// end loses the next one, which often begins right there (PostgreSQL
// documentation, "Logical Replication Message Formats": Commit carries both).
//
// Start with Tracker, then testdata/tracker/*.txt, which tell the same story
// as transcripts.
package checkpoint
