// Command outbox-demo shows the whole thing at work and judges it: a throw-away
// PostgreSQL, an in-process Kafka, the real outbox-relay as a process of its
// own, writers beside it, and faults on the way. It ends with a verdict taken
// from the topics against the table.
//
// It refuses to touch anything that it did not make: on a server that the
// caller names it works in a database of its own, which it drops.
//
// Its laws:
//
//   - A fault counts only if it was seen to bite: connections that were cut
//     and refused, a process that ended by the signal.
//   - The verdict believes no counter of the relay, the writers or the view.
//   - Everything that was started is stopped by its process id, and the
//     temporary directory goes, also after an error, a signal, or the sudden
//     end of this process.
//   - Exit code 0 means: nothing lost, nothing out of order, every row SENT.
//     1 means anything else, 2 a wrong flag, 130 an interruption.
//
// Standard output carries the verdict alone, as a table or as one line of
// JSON; everything else goes to standard error.
//
// Start with main.go, then demo.go; what is measured is in internal/meter,
// what is judged in internal/verdict.
package main
