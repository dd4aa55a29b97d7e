// Package relay joins the stream, the tracker, the sink and the table, and
// owns every goroutine of the stream path.
//
// # The program in one page
//
// Run opens one session after another, for ever, until it is stopped. A
// session is a value: replication connection, relation cache, tracker, held
// set, queues and a nonce in the position row, made together and thrown away
// together. Reconnecting is starting again; there is no other repair.
//
// Inside a session one goroutine, the loop, owns the stream and the tracker:
//
//	read a frame -> decode -> take a ticket -> hand the event to the sink
//	outcomes come back -> cut a batch -> the settler writes it in one commit
//	the commit comes back -> tickets are settled -> the LSN is confirmed
//
// A second goroutine, the settler, writes one batch after another. A third,
// the watch, reads the slot's facts every ten seconds and hears at once when
// the server shuts down.
//
// # Laws that live here
//
//   - I5: a ticket is settled only after its outcome is committed; in the
//     write-backs async and off a success is settled at the acknowledgement,
//     because nothing about it must be durable.
//   - I1, second half: nothing is confirmed beyond the stored position row.
//   - I9: a status goes out at every beat, whatever is blocked. The loop
//     never waits on anything without waiting on the beat as well.
//   - I12: it reads only while the span has room in rows and in bytes.
//   - I14: a server that shuts down is never kept waiting: the watch hears
//     the server's 57P01 and the session ends, unconfirmed rows and all.
//
// # It refuses
//
// to create a slot that is missing, to pass a row it cannot read, to guess
// after an unexpected relation, and to run beside another relay on its slot.
//
// Start with loop.go, then settler.go, then session.go.
package relay
