package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrFenced: another session owns the position row. Nothing was written.
	ErrFenced = errors.New("another session owns the position row")
	// ErrServerStopping: the server is shutting down or starting up. End the
	// session at once: a server in fast shutdown waits for our stream while
	// it refuses our queries, so a retry here would hang it for ever.
	ErrServerStopping = errors.New("the server is stopping or starting")
	// ErrCommitUnknown: a COMMIT got no answer. End the session; the next
	// one reads what is true.
	ErrCommitUnknown = errors.New("the outcome of a commit is unknown")
	// ErrReadOnly: the server takes no writes, for example a demoted
	// primary. Open again; a retry on this connection stays there.
	ErrReadOnly = errors.New("the server is read-only")
)

// MismatchError says that the position row belongs to another server, slot
// or history than the caller's. It is never adopted in silence.
type MismatchError struct {
	Relay  string
	Field  string // "system identifier", "slot" or "timeline"
	Stored string
	Given  string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the position row of relay %q has %s %s, this connection has %s: %s", e.Relay, e.Field, e.Stored, e.Given, e.Hint())
}

// Hint says what an operator should look at.
func (e *MismatchError) Hint() string {
	switch e.Field {
	case "slot":
		return "each slot needs a relay name of its own; set relay.name, or slot.name back to the stored one"
	case "timeline":
		return "this server is behind the one that the position was written on, probably an old primary; connect to the current primary"
	default:
		return "this is another database cluster, or one restored by dump; connect to the right one, " +
			"or look at the interval with `outbox-relay status` and start anew under another relay.name"
	}
}

// errNoTakeOver is a broken law of the caller.
var errNoTakeOver = errors.New("no session: TakeOver comes first")

// sqlState gives the SQLSTATE of a server error, "" for any other.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// judge adds the sentinel that callers branch on. Context first: a cancelled
// call also closes the connection.
func judge(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch sqlState(err) {
	case pgerrcode.AdminShutdown, pgerrcode.CrashShutdown, pgerrcode.CannotConnectNow:
		return fmt.Errorf("%w: %w", ErrServerStopping, err)
	case pgerrcode.ReadOnlySQLTransaction:
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// ofData says whether an error is about the values that were sent, so that
// the same statement with other values may pass.
func ofData(code string) bool {
	return pgerrcode.IsDataException(code) || pgerrcode.IsIntegrityConstraintViolation(code) ||
		pgerrcode.IsProgramLimitExceeded(code) || pgerrcode.IsInternalError(code)
}
