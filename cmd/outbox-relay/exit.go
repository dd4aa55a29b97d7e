package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/relay"
)

// The exit codes. They are a contract with scripts and service managers:
// numbers are never given another meaning.
const (
	exitOK          = 0   // success; also a graceful stop
	exitRuntime     = 1   // unexpected error; a restart may help
	exitUsage       = 2   // wrong use or wrong configuration; a restart does not help
	exitFindings    = 3   // a check found errors
	exitWarnings    = 4   // a check found only warnings, and --strict was given
	exitNothing     = 5   // nothing matched, not found
	exitSlot        = 10  // slot lost, missing or in another database: rows may be missing
	exitBusy        = 11  // another instance owns the slot
	exitPostgres    = 12  // Postgres cannot be reached
	exitKafka       = 13  // Kafka cannot be reached
	exitPermission  = 14  // a right is missing, in Postgres or Kafka
	exitPublication = 15  // the publication is broken
	exitFenced      = 16  // another session owns the slot
	exitTimeout     = 124 // --timeout is over
	exitForced      = 130 // interrupted: a second signal, or one during a short command
)

// Causes of a context's end.
var (
	errSignal  = errors.New("interrupted")
	errTimeout = errors.New("the time given by --timeout is over")
)

// failure is an error that knows its exit code and what to do next.
type failure struct {
	code int
	err  error
	hint string // what to do, in words; "" when the error says it
	next string // the next command to type; "" when there is none
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// explain finds the exit code, hint and next command of any error.
func explain(ctx context.Context, err error) *failure {
	var (
		known    *failure
		mistakes config.Mistakes
		version  *migrations.VersionError
		fatal    *relay.FatalError
		pg       *pgconn.PgError
		connect  *pgconn.ConnectError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, errTimeout):
		return &failure{code: exitTimeout, err: errTimeout}
	case errors.Is(context.Cause(ctx), errTimeout):
		return &failure{code: exitTimeout, err: fmt.Errorf("%w: %w", errTimeout, err)}
	case errors.Is(context.Cause(ctx), errSignal):
		return &failure{code: exitForced, err: errSignal}
	case errors.As(err, &mistakes):
		return &failure{code: exitUsage, err: err, next: "outbox-relay config example"}
	case errors.As(err, &version):
		return &failure{code: exitUsage, err: err, next: "outbox-relay migrate status"}
	case errors.As(err, &fatal):
		return &failure{code: fatal.ExitCode, err: err, hint: fatal.Hint}
	case errors.As(err, &pg), errors.As(err, &connect):
		fault := cdc.Classify(err)
		return &failure{code: fault.Class.ExitCode(), err: err, hint: fault.Hint}
	}
	fault := cdc.Classify(err)
	return &failure{code: fault.Class.ExitCode(), err: err, hint: fault.Hint}
}

// report prints an error for a person and returns its exit code.
func report(ctx context.Context, out io.Writer, err error) int {
	f := explain(ctx, err)
	fmt.Fprintf(out, "outbox-relay: %s\n", strings.TrimSpace(f.Error()))
	if f.hint != "" {
		fmt.Fprintf(out, "hint: %s\n", f.hint)
	}
	if f.next != "" {
		fmt.Fprintf(out, "next: %s\n", f.next)
	}
	return f.code
}
