// Package cdc is the relay's side of PostgreSQL: the replication connection
// that brings the outbox rows, and the slot that remembers how far they were
// taken.
//
// It refuses to interpret what it carries: the bytes of a Data frame are for
// package decode. It never decides which position is safe to confirm, never
// reconnects, never re-creates a slot, and starts no goroutine.
//
// Its laws:
//
//   - Confirm never goes backwards and never above what this connection
//     received (I2); it panics, since the server would accept either in
//     silence and skip committed rows.
//   - Anything on the stream that is not data, a keepalive or a harmless
//     notice ends it. A PostgreSQL 18 server says only by a warning that it
//     skips a missing publication: that ends it too, before any later frame.
//   - No error text of this package holds a connection string or a password.
//
// Start with Open and Stream (the stream), then Admin (the slot and the
// catalog over an ordinary connection), then Preflight (may we start?) and
// Classify (what does this error ask of us?).
package cdc
