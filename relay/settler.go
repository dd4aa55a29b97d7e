package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// Settler is the table as the stream path needs it; *store.Store is it. The
// methods may be called from several goroutines.
type Settler interface {
	Settle(ctx context.Context, b store.Batch) (store.Settled, error)
	Lookup(ctx context.Context, events []*outbox.Event) (skip []bool, err error)
	DrainPending(ctx context.Context, limit int) (int, error)
}

// batch is one transaction's worth of outcomes, and the position that holds
// once it is committed. The loop makes it, the settler writes it and fills
// result, the loop takes it back.
type batch struct {
	outcomes []outbox.Outcome
	progress outbox.Progress
	result   store.Settled
	took     time.Duration
}

// settlerPort is the loop's side of the settler: batches out, results back.
// Both queues hold at most queued batches, so neither side ever blocks.
type settlerPort struct {
	store Settler
	log   zerolog.Logger
	wake  func()

	in   chan *batch
	done chan *batch
	out  int // batches sent and not taken back; the loop's

	trouble atomic.Pointer[string] // why the last try failed; nil while all is well
	began   atomic.Int64           // when the batch under way was begun, in Unix nanoseconds; 0 for none
}

// slowSettle is how long a batch may be under way before the relay calls
// itself blocked. Statements end by their time-out; a commit that waits for a
// synchronous standby has none.
const slowSettle = 10 * time.Second

// slow says that the batch under way has been so for too long.
func (p *settlerPort) slow() bool {
	began := p.began.Load()
	return began != 0 && time.Since(time.Unix(0, began)) > slowSettle
}

// queued is how many batches may be under way: one being written and one that
// waits, so that the settler goes from commit to commit without asking.
const queued = 2

func newSettlerPort(s Settler, log zerolog.Logger) *settlerPort {
	return &settlerPort{store: s, log: log, in: make(chan *batch, queued), done: make(chan *batch, queued)}
}

// idle says whether another batch may be sent.
func (p *settlerPort) idle() bool { return p.out < queued }

// quiet says that no batch is under way.
func (p *settlerPort) quiet() bool { return p.out == 0 }

func (p *settlerPort) send(b *batch) {
	p.out++
	p.in <- b
}

// results gives every committed batch to take, in order.
func (p *settlerPort) results(take func(*batch)) {
	for {
		select {
		case b := <-p.done:
			p.out--
			take(b)
		default:
			return
		}
	}
}

// drainEvery is how often an idle settler looks after pending_status.
const drainEvery = 5 * time.Second

// drainRows bounds one look.
const drainRows = 1000

// run writes batches until ctx is done or the session must end, and returns
// why. It is the one door through which every outcome leaves.
func (p *settlerPort) run(ctx context.Context) error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-p.in:
			if err := p.write(ctx, b); err != nil {
				return err
			}
			p.done <- b
			p.wake()
		case <-tick.C:
			if err := p.drainPending(ctx); err != nil {
				return err
			}
		}
	}
}

// drainPending shows the statuses that were held up by a lock. An error that
// does not end the session only means that they wait for the next look.
func (p *settlerPort) drainPending(ctx context.Context) error {
	_, err := p.store.DrainPending(ctx, drainRows)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if endsSession(err) {
		return fmt.Errorf("showing pending statuses: %w", err)
	}
	p.log.Warn().Err(err).Msg("showing pending statuses failed; trying again later")
	return nil
}

// Back-off between tries of one batch: an error here is the database's
// passing trouble (a lock, a serialisation failure, a time-out).
const (
	settleRetryMin = 50 * time.Millisecond
	settleRetryMax = 5 * time.Second
)

// write commits one batch, trying again while the session may live. The
// position in it was computed for exactly these outcomes, so it is written
// whole or not at all.
func (p *settlerPort) write(ctx context.Context, b *batch) error {
	began := time.Now()
	p.began.Store(began.UnixNano())
	defer p.began.Store(0)
	for wait := settleRetryMin; ; wait = min(2*wait, settleRetryMax) {
		res, err := p.store.Settle(ctx, store.Batch{Progress: b.progress, Outcomes: b.outcomes})
		if err == nil {
			failpoint(fpSettled)
			b.result, b.took = res, time.Since(began)
			p.trouble.Store(nil)
			return nil
		}
		if endsSession(err) {
			return fmt.Errorf("settling %d rows: %w", len(b.outcomes), err)
		}
		text := err.Error()
		p.trouble.Store(&text)
		p.log.Warn().Err(err).Int("rows", len(b.outcomes)).Dur("retry_in", wait).Msg("settling failed; trying again")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// endsSession says whether an error of the table means that this session is
// over: fenced, server stopping, commit unknown, server read-only, connection
// gone. What the server refuses for now (a lock, a time-out, a serialisation
// failure) is tried again; the slot waits meanwhile.
func endsSession(err error) bool {
	for _, end := range []error{store.ErrFenced, store.ErrServerStopping, store.ErrCommitUnknown, store.ErrReadOnly, context.Canceled} {
		if errors.Is(err, end) {
			return true
		}
	}
	return cdc.Classify(err).Code == "" // no answer of the server's: the connection is gone
}
