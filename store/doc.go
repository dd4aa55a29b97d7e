// Package store holds every SQL statement against the outbox and against the
// relay's own tables: the position row, the lines, and the statuses that are
// still to be shown.
//
// It refuses to decide what becomes of an event, and it refuses to wait for
// the application: a row that somebody holds, a trigger that raises, a table
// that is locked cost the status of a row its place in the table for a while,
// never an event and never the stream.
//
// Its laws:
//
//   - Every write names the nonce of the session that TakeOver wrote. A
//     session that lost the slot gets ErrFenced and changes nothing (I13).
//   - One batch is one transaction: lines, statuses and position commit
//     together or not at all. The position never decreases.
//   - Locks are taken in one order: position row, lines by order_hash,
//     outbox rows (with SKIP LOCKED, so they never wait).
//   - A status is shown by naming the state that it leaves; nothing here
//     overwrites CONSUMING or CONSUMED.
//   - A COMMIT without an answer is ErrCommitUnknown, never a success and
//     never a failure.
//   - Names are quoted, values are bound. Keys and payloads are never logged.
//
// Start with Store.Settle, then Store.TakeOver, then lines.go.
package store
