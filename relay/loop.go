package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// Source is the replication stream as the loop needs it; *cdc.Stream is it.
// Wake may be called from any goroutine, the rest by the loop alone.
type Source interface {
	// Next returns the next frame, or one of kind FrameNone at until or
	// after Wake. Its data is valid until the next call.
	Next(until time.Time) (cdc.Frame, error)
	// Buffered says that a further frame may be had without waiting.
	Buffered() bool
	Confirm(lsn outbox.LSN, askReply bool) error
	Wake()
}

// Publisher is the sink as the loop needs it; *sink.Session is it. No method
// blocks. Each published ticket comes back as exactly one outcome.
type Publisher interface {
	Publish(t outbox.Ticket, e *outbox.Event)
	Kick() // hands over what idle lanes have gathered
	Beat() // repeats what a lost wake-up may have left undone
	Encode(e *outbox.Event) *outbox.Record
}

// burst is how many frames the loop takes before it looks at anything else.
// At the fastest rate seen, 180,000 rows a second, that is about 1.5 ms.
const burst = 256

// loop owns one session's stream and tracker. All fields belong to the
// goroutine in run unless they say otherwise.
type loop struct {
	cfg  Config
	log  zerolog.Logger
	src  Source
	pub  Publisher
	own  ownership
	stat *stats

	tracker *checkpoint.Tracker
	msg     decode.Message
	layout  *decode.Layout // of the outbox relation; nil before its Relation message, and while misfit says why
	misfit  error          // why rows of the relation as it is now cannot be read
	table   tableID
	txn     openTxn
	replay  replay

	box     *mailbox     // filled by the sink's callbacks
	cut     cutter       // outcomes known and not yet in a batch
	settler *settlerPort // batches out, results back
	nudge   chan struct{}
	failed  chan error // why the session must end, from whoever found out first

	pace pacer

	sent outbox.Progress // the position in the last batch given to the settler

	stored    outbox.Progress // the position row's content, as committed. Invariant: not beyond sent
	received  outbox.LSN      // highest position seen on this connection
	confirmed outbox.LSN      // last confirmed on this connection; 0 for nothing yet

	nextBeat  time.Time
	lastHeard time.Time // when the server last said something while we listened
	drainBy   time.Time // set when stopping: when to give up on open lanes
	full      bool      // the span was full and has not been emptied by a quarter since
	halt      error     // why the log cannot be read further; nil while it can
}

// openTxn is the transaction being received.
type openTxn struct {
	open     bool // between its Begin and its Commit
	commit   outbox.LSN
	time     time.Time
	timeline uint32 // that wrote it
	index    int    // of the next outbox row
	skip     bool   // it ends at or below our position
	rows     bool   // at least one of its rows took a ticket
}

// errStopped is the cause of a wanted stop: not an error to log.
var errStopped = errors.New("stopped")

// run works until ctx is done, which is a wanted stop and returns errStopped
// after the drain, or until the session must end, which returns why: at once,
// or after a drain when only the log ends here.
func (l *loop) run(ctx context.Context) error {
	now := time.Now()
	l.nextBeat, l.lastHeard = now, now
	stop := context.AfterFunc(ctx, l.wake)
	defer stop()
	for {
		now = time.Now()
		l.stat.turn(l, now)
		if err := l.absorb(now); err != nil {
			return err
		}
		if err := l.report(now); err != nil {
			return err
		}
		if (ctx.Err() != nil || l.halt != nil) && l.drained(now) {
			return cmp.Or(l.halt, errStopped)
		}
		if err := l.advance(ctx, now); err != nil {
			return err
		}
	}
}

// wake makes the loop look around, from any goroutine.
func (l *loop) wake() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
	l.src.Wake()
}

// news makes the loop look around for an outcome or a written batch, from any
// goroutine: at once when caught up, and when the read under way is over while
// far behind. It is never lost: whoever calls it has left the news first, and
// the loop looks for news after it has left far.
func (l *loop) news() {
	if !l.pace.far.Load() {
		l.wake()
		return
	}
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// absorb takes what the sink and the settler have brought, and cuts the next
// batch when one is due.
func (l *loop) absorb(now time.Time) error {
	for _, o := range l.box.take() {
		l.outcome(o, now)
	}
	l.settler.results(l.settled)
	l.cutBatch(now)
	select {
	case err := <-l.failed:
		return err
	default:
		return nil
	}
}

// end makes the loop return err, from any goroutine and without blocking. The
// first reason wins.
func (l *loop) end(err error) {
	select {
	case l.failed <- err:
	default:
	}
	l.wake()
}

// outcome takes one outcome. In the write-backs that need nothing durable for
// a success, its ticket is settled here (I5); every other outcome waits for
// its batch.
func (l *loop) outcome(o outbox.Outcome, now time.Time) {
	l.stat.outcome(o, now)
	failpoint(fpAcked)
	if o.Verdict == outbox.Acked && l.cfg.WriteBack.settlesAtAck() {
		l.tracker.Decide(o.Ticket)
		l.tracker.Settle(o.Ticket)
		if !l.cfg.WriteBack.writesRows() {
			l.cut.touch(now)
			return
		}
		o.Ticket = 0 // settled already; only its row is still to be shown
	}
	l.cut.add(o, now)
}

// settled takes one committed batch: its tickets are settled, and its
// position is what the position row now says.
func (l *loop) settled(b *batch) {
	for i := range b.outcomes {
		if t := b.outcomes[i].Ticket; t != 0 {
			l.tracker.Settle(t)
		}
	}
	l.stored = b.progress
	l.cut.ownWrite = b.result.LSN
	l.own.addLined(b)
	l.stat.batch(b)
	failpoint(fpBatchBack)
}

// cutBatch hands the settler its next batch when one is due and it is idle.
func (l *loop) cutBatch(now time.Time) {
	for l.settler.idle() {
		progress := l.tracker.Decided()
		if !l.cut.due(now, progress, l.sent, l.stopping()) {
			return
		}
		outcomes := l.cut.take(now)
		for i := range outcomes {
			if t := outcomes[i].Ticket; t != 0 {
				l.tracker.Decide(t)
			}
		}
		l.sent = l.tracker.Decided()
		failpoint(fpBatchCut)
		l.settler.send(&batch{outcomes: outcomes, progress: l.sent})
	}
}

// report confirms to the server what is both settled and stored (I1), at once
// when it moved, and at every beat in any case (I9).
func (l *loop) report(now time.Time) error {
	target := min(l.tracker.Settled().LSN, l.stored.LSN)
	moved := target > l.confirmed && target <= l.received
	beat := !now.Before(l.nextBeat)
	if !moved && !beat {
		return nil
	}
	if moved {
		l.confirmed = target
		failpoint(fpConfirming)
	}
	if err := l.src.Confirm(l.confirmed, beat); err != nil && l.halt == nil {
		return fmt.Errorf("confirming %v: %w", l.confirmed, err)
	}
	if moved {
		failpoint(fpConfirmed)
	}
	if beat {
		l.nextBeat = now.Add(l.cfg.Beat)
		l.pub.Beat()
	}
	l.stat.now.LastFeedback = now
	return nil
}

// advance reads a burst of frames when the span has room, and otherwise waits
// for an outcome, a commit, a stop or the beat.
func (l *loop) advance(ctx context.Context, now time.Time) error {
	until := l.nextBeat
	if due, ok := l.cut.dueAt(); ok && l.settler.idle() && due.Before(until) {
		until = due
	}
	if due, ok := l.stat.dueBy(); ok && due.Before(until) {
		until = due
	}
	if l.stopping() && l.drainBy.Before(until) {
		until = l.drainBy
	}
	if l.stopping() || !l.room() {
		l.handOver() // what has gathered need not wait for more to be read
		l.stat.held(l.wait(until))
		l.lastHeard = time.Now() // silence counts only while we listen
		return nil
	}
	return l.read(ctx, l.pace.until(until, now), now)
}

// wait blocks until something happened, but not beyond until. It returns how
// long it waited.
func (l *loop) wait(until time.Time) time.Duration {
	began := time.Now()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-l.nudge:
	case <-timer.C:
	}
	return time.Since(began)
}

// room is I12: a row is read only while the span is below its limits, so the
// span exceeds them by at most one row, which then travels alone. Once it was
// full, reading begins again when a quarter is free: reading for every row that
// settles makes small reads and small requests to the brokers.
func (l *loop) room() bool {
	rows, bytes := l.tracker.Held()
	rows += l.replay.len()
	bytes += l.replay.bytes
	if l.full && (4*rows > 3*l.cfg.SpanRows || 4*bytes > 3*l.cfg.SpanBytes) {
		return false
	}
	l.full = !(rows < l.cfg.SpanRows && bytes < l.cfg.SpanBytes && !l.own.linesFull(l.cfg))
	return !l.full
}

// read takes frames until none is left without waiting, the burst is used up
// or the span is full; then everything taken is handed over, or left to gather
// while far behind.
func (l *loop) read(ctx context.Context, until, now time.Time) error {
	n, err := l.frames(ctx, until)
	if err != nil {
		return err
	}
	if n == 0 && l.halt == nil {
		l.pace.idle()
		if err := l.checkSilence(); err != nil {
			return err
		}
	}
	dry := l.halt != nil || !l.src.Buffered()
	full := !l.room()
	if dry || full {
		if err := l.lookUp(ctx); err != nil {
			return err
		}
	}
	if l.pace.gathers(full || l.halt != nil, now) {
		return nil
	}
	l.handOver()
	return nil
}

// handOver gives the sink what has gathered.
func (l *loop) handOver() {
	l.pub.Kick()
	l.pace.kicked()
	failpoint(fpKicked)
}

// frames takes up to a burst of frames and says how many it took.
func (l *loop) frames(ctx context.Context, until time.Time) (int, error) {
	for n := range burst {
		f, err := l.src.Next(until)
		if err != nil {
			err = fmt.Errorf("reading the stream: %w", err)
			if !cdc.Classify(err).Class.Permanent() {
				return n, err
			}
			l.halt = err
			return n, nil
		}
		if f.Kind == cdc.FrameNone {
			return n, nil
		}
		if n == 0 {
			l.lastHeard = time.Now()
		}
		if err := l.frame(ctx, f); err != nil {
			return n, err
		}
		if l.halt != nil || !l.src.Buffered() || !l.room() {
			return n + 1, nil
		}
	}
	return burst, nil
}

// checkSilence ends a session whose server has said nothing for too long
// although each beat asks it to: a half-open connection never reports itself.
func (l *loop) checkSilence() error {
	if silent := time.Since(l.lastHeard); silent > l.cfg.Silence {
		return &SilenceError{Silent: silent, Limit: l.cfg.Silence}
	}
	return nil
}

// drained works off what is out after a stop was asked for or the log could
// not be read further. It is true when every ticket is settled and confirmed,
// or when the grace is over.
func (l *loop) drained(now time.Time) bool {
	if !l.stopping() {
		l.drainBy = now.Add(l.cfg.ShutdownGrace)
		l.replay.drop()
		l.handOver()
		l.cutBatch(now)
		rows, _ := l.tracker.Held()
		l.log.Info().Int("rows", rows).Dur("grace", l.cfg.ShutdownGrace).Msg("stopping: letting open lanes finish")
	}
	rows, _ := l.tracker.Held()
	if rows == 0 && l.settler.quiet() && l.cut.empty() && !l.stored.Before(l.tracker.Decided()) {
		return true
	}
	if !now.Before(l.drainBy) {
		l.log.Warn().Int("rows", rows).Msg("stopping with rows unsettled; they will be read again at the next start")
		return true
	}
	return false
}

func (l *loop) stopping() bool { return !l.drainBy.IsZero() }
