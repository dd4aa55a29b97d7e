// Package decode turns the bytes of PostgreSQL's pgoutput plugin into
// messages, and an inserted row into an outbox.Event. It is pure: no I/O, no
// clock, no goroutine, no logging.
//
// It reads protocol version 1 with logical messages, text and binary columns
// (PostgreSQL documentation, "Logical Replication Message Formats"). It
// refuses streamed and prepared transactions, which the relay never asks for,
// and every message kind that it does not know: a kind that was skipped could
// have been a row.
//
// Its laws:
//
//   - No bytes make it panic. Lengths are checked before they are believed,
//     the work is linear in the input, and trailing bytes are an error.
//   - A Message aliases the input; an Event never does (I7).
//   - One bad value spoils one row: the event carries a Defect and is refused,
//     and the rows around it go on. Only broken framing or a layout that no
//     longer fits is an error, because then no row can be trusted.
//   - The text and the binary format give the same Event, down to the last
//     byte: what arrives in binary is printed as the server's own output
//     functions would print it under the relay's pinned settings.
//
// Start with Parse, then NewLayout and Layout.Event.
package decode
