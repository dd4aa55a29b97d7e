// Package outbox holds the words that every other package of the relay uses:
// what an event is, where it stands in the log, how a number on the wire is
// spelled, and what can become of an event.
//
// It refuses to do anything: no I/O, no goroutine, no third-party import. Two
// packages that must agree on a word find it here, so that neither has to
// import the other.
//
// Its laws:
//
//   - A position in the log is an LSN together with the timeline that wrote
//     it. An LSN alone is compared only inside one timeline.
//   - An event is known by its Position, not by its row: a table that is
//     truncated and restarted hands out old row keys again.
//   - A Verdict that is not one of the named ones never means success.
//
// Start with Event, then Position, then Outcome.
package outbox
