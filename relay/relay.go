package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/sink"
	"github.com/outboxrelay/outbox-relay/store"
)

// Deps are the parts that a Relay joins.
type Deps struct {
	Stream     cdc.Config   // how to reach the server for the stream
	Store      store.Config // how to reach it for statements; Table is filled at each start
	Sink       *sink.Kafka  // lives as long as the relay; the caller closes it
	Logger     zerolog.Logger
	Registerer prometheus.Registerer // nil for none
}

// Relay publishes one outbox table through one slot. Make it with New and run
// it once with Run; Status and Live may be called meanwhile.
type Relay struct {
	cfg   Config
	deps  Deps
	log   zerolog.Logger
	board board
	meter *meter

	once     sync.Once
	streamed bool            // a session has streamed since the start; Run's goroutine only
	warned   map[string]bool // codes of warnings logged; Run's goroutine only

	reached       *reached // by the last session that streamed; nil before, and once compared; Run's goroutine only
	textOnly      bool     // rows came that cannot be read in the binary format; Run's goroutine only
	brokerChecked bool     // by the session that runs; sessions follow each other
}

// New checks the configuration. It does no I/O.
func New(cfg Config, deps Deps) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the relay: %w", err)
	}
	r := &Relay{cfg: cfg, deps: deps, log: deps.Logger, warned: map[string]bool{}}
	r.board.set(Starting, "")
	if r.meter, err = newMeter(r, deps.Registerer); err != nil {
		return nil, err
	}
	return r, nil
}

// FatalError is what Run returns when it never came to stream and only a
// person can change that.
type FatalError struct {
	Err      error
	ExitCode int
	Hint     string
}

// Error gives the cause; the hint is for the caller to print beside it.
func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// How long Run waits between sessions.
const (
	backoffMin  = 200 * time.Millisecond
	backoffMax  = 10 * time.Second
	standbyWait = time.Second      // while another relay owns the slot
	failedWait  = 30 * time.Second // while a person must act: the cause may go away
	calmAfter   = time.Minute      // a session this long starts the back-off anew
)

// Run opens session after session until ctx is done, and returns nil then. It
// returns a *FatalError only if a person must act before the first session
// has streamed; later the same cause puts the relay into the state failed,
// from which it looks again every 30 seconds.
func (r *Relay) Run(ctx context.Context) error {
	var err error = errors.New("a Relay runs only once")
	r.once.Do(func() { err = r.run(ctx) })
	return err
}

func (r *Relay) run(ctx context.Context) error {
	wait := backoffMin
	for {
		began := time.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			r.board.set(Stopping, "")
			if err != nil && !errors.Is(err, errStopped) && !errors.Is(err, context.Canceled) {
				r.log.Warn().Err(err).Msg("the session ended while stopping; what it had not settled will be read again")
			}
			return nil
		}
		if time.Since(began) > calmAfter {
			wait = backoffMin
		}
		var unreadable *decode.LayoutError
		r.textOnly = r.textOnly || errors.As(err, &unreadable)
		pause, fatal := r.judge(err, wait)
		if fatal != nil {
			return fatal
		}
		wait = min(2*wait, backoffMax)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// judge decides what follows the end of a session: the next one at once or
// later, or the end of everything.
func (r *Relay) judge(err error, wait time.Duration) (time.Duration, error) {
	v := verdictOf(err)
	r.meter.reconnect(v.reason)
	switch v.kind {
	case mustAct:
		if !r.streamed {
			r.board.set(Failed, err.Error())
			return 0, &FatalError{Err: err, ExitCode: v.exit, Hint: v.hint}
		}
		if r.board.set(Failed, err.Error()) {
			r.log.Error().Err(err).Str("hint", v.hint).Msg("a person must act; looking again every 30 s")
		}
		return failedWait, nil
	case slotBusy:
		if r.board.set(Standby, "another relay owns the slot") {
			r.log.Info().Err(err).Msg("another relay owns the slot; standing by")
		}
		return jitter(standbyWait), nil
	default:
		r.board.set(Starting, err.Error())
		r.log.Warn().Err(err).Str("reason", v.reason).Dur("retry_in", wait).Msg("the session ended; starting the next one")
		return jitter(wait), nil
	}
}

// jitter spreads d by a fifth either way, so that relays that lost the same
// server do not come back together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// verdict is what a session's end means.
type verdict struct {
	kind   verdictKind
	reason string // one word of the metric's closed list
	exit   int
	hint   string
}

type verdictKind int

const (
	tryAgain verdictKind = iota
	slotBusy
	mustAct
)

// verdictOf reads an error that ended a session. Unknown errors are tried
// again: the slot waits, and nothing is lost by it.
func verdictOf(err error) verdict {
	var (
		ahead    *SlotAheadError
		diverged *DivergedError
		rewound  *RewoundError
		relation *RelationError
		columns  *ColumnsError
		refused  *PreflightError
		silent   *SilenceError
		mismatch *store.MismatchError
	)
	switch {
	case errors.As(err, &ahead):
		return verdict{mustAct, "slot_ahead", 10, "outbox-relay status shows both positions; rows of that interval that still say READY were not published"}
	case errors.As(err, &diverged):
		return verdict{mustAct, "diverged", 10, "outbox-relay status shows the position row; see docs/guarantees.md on failover"}
	case errors.As(err, &rewound):
		return verdict{mustAct, "rewound", 10, "outbox-relay status shows the position row; is this the right server?"}
	case errors.As(err, &relation):
		return verdict{mustAct, "relation", 15, "outbox-relay setup --print shows the publication as it should be"}
	case errors.As(err, &columns):
		return verdict{mustAct, "columns", 2, "rows before the change are settled: correct table.columns to the names of now and start again; rows that were written under other names in between are read while the table has those names. Where it never had (a column list of the publication), leave them out: outbox-relay slot drop, slot create, and insert again what says READY"}
	case errors.As(err, &refused):
		return verdict{mustAct, "preflight", refused.ExitCode, "outbox-relay setup --print shows the statements for a working set-up"}
	case errors.As(err, &mismatch):
		return verdict{mustAct, "mismatch", 10, mismatch.Hint()}
	case errors.As(err, &silent):
		return verdict{tryAgain, "silence", 1, ""}
	case errors.Is(err, store.ErrFenced):
		return verdict{tryAgain, "fenced", 16, ""}
	case errors.Is(err, store.ErrServerStopping):
		return verdict{tryAgain, "server_stopping", 12, ""}
	}
	return verdictOfServer(err)
}

// verdictOfServer reads an error that a server, or the way to it, gave.
func verdictOfServer(err error) verdict {
	f := cdc.Classify(err)
	v := verdict{tryAgain, f.Class.String(), f.Class.ExitCode(), f.Hint}
	switch {
	case f.Class == cdc.ClassSlotBusy:
		v.kind = slotBusy
	case f.Class.Permanent():
		v.kind = mustAct
	}
	return v
}
