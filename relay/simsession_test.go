package relay

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// simSession is one session of the real loop and settler.
type simSession struct {
	w     *world
	src   *simSource
	sink  *simSink
	store *simStore
	loop  *loop

	stop   context.CancelFunc // asks for a wanted stop
	cancel context.CancelFunc // ends the settler
	wg     sync.WaitGroup
	over   chan struct{} // closed when the loop has returned
	err    error
}

// begin opens a session as relay.session does: the slot first, then the
// nonce, and only then anything is read.
func (w *world) begin() *simSession {
	w.table.nonce++
	if w.table.progress.NextIndex > 0 {
		w.tally[tookInside]++
	}
	s := &simSession{w: w, over: make(chan struct{})}
	own := ownership{full: new(atomic.Bool), history: history{current: 1}, progress: w.table.progress,
		lookUpTo: w.table.reached, waiting: map[outbox.Position]struct{}{}}
	s.sink = &simSink{w: w}
	for p, key := range w.table.lines {
		s.sink.held[key] = true
		own.waiting[p] = struct{}{}
	}
	s.store = &simStore{w: w, nonce: w.table.nonce, answers: make(chan simAnswer)}
	s.src = newSimSource(w)

	cfg := testConfig()
	cfg.WriteBack, cfg.SpanRows, cfg.WriteBackRows = w.mode, 1+w.rng.IntN(40), 1+w.rng.IntN(20)
	l := &loop{cfg: cfg, log: zerolog.Nop(), src: s.src, pub: s.sink, stat: &stats{}, own: own,
		tracker: checkpoint.New(own.progress), sent: own.progress, stored: own.progress, received: s.src.received,
		table:   tableID{oid: testOID, schema: "public", name: "outbox"},
		cut:     cutter{rows: cfg.WriteBackRows, interval: cfg.WriteBackInterval, lastCut: time.Now()},
		settler: newSettlerPort(s.store, zerolog.Nop()), nudge: make(chan struct{}, 1), failed: make(chan error, 1)}
	l.pace.gulp = func(far bool) {
		if far {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tally[fellBehind]++
		}
	}
	l.box = &mailbox{wake: l.news}
	l.settler.wake = l.news
	s.loop, s.sink.loop, s.src.beat = l, l, cfg.Beat

	var ctx, beside context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	beside, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(func() {
		if err := l.settler.run(beside); err != nil {
			l.end(err)
		}
	})
	go func() {
		defer close(s.over)
		s.err = l.run(ctx)
	}()
	synctest.Wait()
	return s
}

func (s *simSession) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// idle says that everything written was read, decided and settled, and that
// nothing is left to write.
func (s *simSession) idle() bool {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.src.write()
	rows, _ := s.loop.tracker.Held() // the loop sleeps: the driver has waited for it
	return s.w.left == 0 && len(s.src.todo) == 0 && len(s.src.frames) == 0 && s.sink.waiting() == 0 && !s.store.asked && rows == 0
}

// finish ends what the loop has left behind, in one of the ways in which a
// process or a connection may die: the batch under way commits or not, and
// records in flight arrive or not.
func (s *simSession) finish() {
	s.stop()
	<-s.over
	s.w.mu.Lock()
	if s.store.asked {
		s.store.settle(s.w.rng.IntN(2) == 0, errUnknown)
	}
	s.w.mu.Unlock()
	synctest.Wait()
	s.cancel()
	s.wg.Wait()
	s.sink.die()
	rows, _ := s.loop.tracker.Held()
	cut := rows > 0 || s.loop.stored.Before(s.loop.tracker.Decided())
	if s.err != errStopped || cut {
		s.w.faults++
	}
	if s.err == errStopped && cut {
		s.w.tally[stopCut]++
	}
}

// simSource is the walsender of one session.
type simSource struct {
	w    *world
	from outbox.LSN

	todo   []cdc.Frame // the driver's: written to the log and not sent
	read   int         // transactions of the log that are in todo or behind it
	inside bool        // what was sent last is not a transaction's end
	end    outbox.LSN  // of what was sent

	ping  chan struct{}
	timer *time.Timer
	// Under w.mu: what is on the wire, and what the loop has done.
	frames              []cdc.Frame
	woken               bool
	received, confirmed outbox.LSN
	beat                time.Duration
	lastStatus          time.Time
}

func newSimSource(w *world) *simSource {
	from := max(w.slot, w.table.progress.LSN)
	s := &simSource{w: w, from: from, end: from, received: from, ping: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), lastStatus: time.Now()}
	s.todo = append(s.todo, cdc.Frame{Kind: cdc.FrameData, Data: msgRelation(testOID, "outbox")})
	return s
}

// write turns what is new in the log into frames. What is skipped is decided
// by the commit record's own position, as the server does.
func (s *simSource) write() {
	frame := func(at outbox.LSN, data []byte) {
		s.todo = append(s.todo, cdc.Frame{Kind: cdc.FrameData, WALStart: at, Data: data})
	}
	for _, tx := range s.w.log[s.read:] {
		if tx.commit < s.from {
			continue
		}
		frame(tx.commit, msgBegin(tx.commit))
		s.todo[len(s.todo)-1].ServerTime = time.UnixMicro(946_684_800_000_000).Add(time.Duration(s.w.rng.IntN(2)) * 2 * behindAge) // the commit is at PostgreSQL's epoch: now and then far behind
		for i, r := range tx.rows {
			frame(tx.commit-1, msgInsert(i, strconv.Itoa(r.key), 0))
		}
		frame(tx.end, msgCommit(tx.commit, tx.end))
	}
	s.read = len(s.w.log)
}

// send puts up to n frames on the wire; w.mu is held.
func (s *simSource) send(n int) {
	s.write()
	for _, f := range s.todo[:min(n, len(s.todo))] {
		s.frames = append(s.frames, f)
		s.inside = f.Data[0] == 'B' || f.Data[0] == 'I'
		s.end = max(s.end, f.WALStart)
	}
	s.todo = s.todo[min(n, len(s.todo)):]
	s.signal()
}

// keepalive says how far the server is. Between transactions everything below
// was sent; inside one it may be far ahead of the rows to come. w.mu is held.
func (s *simSource) keepalive() {
	at := s.end
	if s.write(); s.inside || len(s.todo) == 0 {
		at = s.w.end
	}
	s.frames = append(s.frames, cdc.Frame{Kind: cdc.FrameKeepalive, WALEnd: at})
	s.signal()
}

func (s *simSource) signal() {
	select {
	case s.ping <- struct{}{}:
	default:
	}
}

func (s *simSource) Next(until time.Time) (cdc.Frame, error) {
	for {
		s.w.mu.Lock()
		if len(s.frames) > 0 {
			f := s.frames[0]
			s.frames = s.frames[1:]
			s.received = max(s.received, f.WALStart, f.WALEnd)
			s.w.mu.Unlock()
			return f, nil
		}
		woken := s.woken
		s.woken = false
		s.w.mu.Unlock()
		if woken || !time.Now().Before(until) {
			return cdc.Frame{}, nil
		}
		s.timer.Reset(time.Until(until))
		select {
		case <-s.ping:
		case <-s.timer.C:
		}
	}
}

func (s *simSource) Buffered() bool {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return len(s.frames) > 0
}

func (s *simSource) Wake() {
	s.w.mu.Lock()
	s.woken = true
	s.w.mu.Unlock()
	s.signal()
}

func (s *simSource) Confirm(lsn outbox.LSN, ask bool) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.checkConfirm(lsn, s.confirmed, s.received)
	if silent := time.Since(s.lastStatus); silent > s.beat+time.Millisecond {
		s.w.fail("no status for %v, the beat is %v", silent, s.beat) // I9
	}
	s.lastStatus = time.Now()
	s.confirmed = lsn
	s.w.slot = max(s.w.slot, lsn)
	if ask {
		s.keepalive()
	}
	return nil
}

// simSink is the sink's contract: per key in order, one outcome for each
// ticket, held keys diverted, and records in flight that may still land when
// the session is over.
type simSink struct {
	w    *world
	loop *loop
	held [simKeys]bool

	queue [simKeys][]outbox.Outcome // under w.mu
}

// Publish is called by the loop.
func (s *simSink) Publish(t outbox.Ticket, e *outbox.Event) {
	rows, _ := s.loop.tracker.Held()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if rows > s.loop.cfg.SpanRows {
		s.w.fail("%d rows are out with a span of %d", rows, s.loop.cfg.SpanRows) // I12
	}
	if rows == s.loop.cfg.SpanRows {
		s.w.tally[spanFull]++
	}
	s.w.checkPublish(e.Position)
	key := s.w.row(e.Position).key
	s.queue[key] = append(s.queue[key], outbox.Outcome{Ticket: t, Event: e})
}

func (s *simSink) Kick()                               {}
func (s *simSink) Beat()                               {}
func (s *simSink) Encode(*outbox.Event) *outbox.Record { return &outbox.Record{} }

func (s *simSink) waiting() (n int) {
	for _, q := range s.queue {
		n += len(q)
	}
	return n
}

// decideSome gives verdicts to the front of one key's queue: the order among
// keys is free, the order within one is not.
func (s *simSink) decideSome() {
	key := s.w.rng.IntN(simKeys)
	for range 1 + s.w.rng.IntN(6) {
		s.w.mu.Lock()
		if len(s.queue[key]) == 0 {
			s.w.mu.Unlock()
			return
		}
		o := s.verdict(s.queue[key][0], key)
		s.queue[key] = s.queue[key][1:]
		s.w.mu.Unlock()
		s.loop.box.put(o)
		synctest.Wait()
	}
}

// verdict decides one record; w.mu is held.
func (s *simSink) verdict(o outbox.Outcome, key int) outbox.Outcome {
	switch p := o.Event.Position; {
	case s.held[key]:
		o.Verdict, o.Holds, o.Record = outbox.Diverted, true, &outbox.Record{}
	case s.w.row(p).poison:
		s.held[key] = true
		o.Verdict, o.Holds, o.Record = outbox.Refused, true, &outbox.Record{}
	default:
		o.Verdict = outbox.Acked
		s.w.store(p)
	}
	return o
}

// die ends the session's sink: a prefix of each key's queue may still land.
func (s *simSink) die() {
	for key, q := range s.queue {
		for _, o := range q {
			if s.held[key] || s.w.row(o.Event.Position).poison || s.w.rng.IntN(2) == 0 {
				break
			}
			s.w.store(o.Event.Position)
		}
	}
}

// Errors of the table: one that the server gives and that passes, and one
// after which nobody knows what was committed.
var (
	errPasses  = &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "try again"}
	errUnknown = fmt.Errorf("%w: connection lost", store.ErrCommitUnknown)
)

// simStore is the table under one nonce.
type simStore struct {
	w       *world
	nonce   int
	answers chan simAnswer

	// Under w.mu.
	asked  bool // a batch waits for its answer
	batch  store.Batch
	fenced bool
}

type simAnswer struct {
	settled store.Settled
	err     error
}

func (s *simStore) Settle(ctx context.Context, b store.Batch) (store.Settled, error) {
	s.w.mu.Lock()
	s.asked, s.batch = true, b
	s.w.mu.Unlock()
	select {
	case a := <-s.answers:
		return a.settled, a.err
	case <-ctx.Done():
		return store.Settled{}, ctx.Err()
	}
}

// answer decides the batch that waits, if any; w.mu is held.
func (s *simStore) answer() {
	switch n := s.w.rng.IntN(100); {
	case !s.asked:
	case s.w.quiet, n < 85:
		s.settle(true, nil)
	case n < 93:
		s.w.tally[batchAgain]++
		s.settle(false, errPasses)
	case n < 96:
		s.settle(false, errUnknown)
	case n < 98:
		s.settle(true, errUnknown)
	default: // another session has taken over
		s.w.table.nonce++
		s.settle(true, nil)
	}
}

// settle commits the batch or not and answers with err; w.mu is held.
func (s *simStore) settle(commits bool, err error) {
	s.asked = false
	if s.nonce != s.w.table.nonce {
		s.fenced, commits, err = true, false, store.ErrFenced
		s.w.tally[fencedOff]++
	}
	if commits {
		s.commit()
	}
	s.answers <- simAnswer{store.Settled{Shown: len(s.batch.Outcomes), LSN: s.w.end}, err}
}

func (s *simStore) commit() {
	t, b := &s.w.table, s.batch
	if b.Progress.Before(t.progress) {
		s.w.fail("the position row would go back from %+v to %+v", t.progress, b.Progress)
	}
	t.progress = b.Progress
	for _, o := range b.Outcomes {
		p := o.Event.Position
		t.reached = max(t.reached, p.Commit)
		if o.Verdict != outbox.Acked {
			if _, waits := t.lines[p]; waits {
				s.w.fail("row %v was put into a line twice", p)
			}
			s.w.tally[lined]++
			t.lines[p] = s.w.row(p).key
			s.show(p, outbox.StatusFailed)
		} else if s.w.mode.writesRows() {
			s.show(p, outbox.StatusSent)
		}
	}
}

// show writes a status into its row, or lists it as pending when an application
// has locked the row: for up to twice as long as a settler waits between looks.
func (s *simStore) show(p outbox.Position, status outbox.Status) {
	t := &s.w.table
	if !s.w.quiet && s.w.mode.writesRows() && s.w.rng.IntN(20) == 0 {
		s.w.tally[pended]++
		t.pending[p] = simPending{status, time.Now().Add(time.Duration(s.w.rng.IntN(int(2 * drainEvery))))}
		return
	}
	t.status[p] = status
}

func (s *simStore) Lookup(_ context.Context, events []*outbox.Event) ([]bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	skip := make([]bool, len(events))
	for i, e := range events {
		_, pends := s.w.table.pending[e.Position]
		skip[i] = s.w.table.settled(e.Position) && (pends || s.w.mode != WriteBackDelete)
		if skip[i] {
			s.w.tally[tableSkips]++
		}
		if skip[i] && pends {
			s.w.tally[pendingSkips]++
		}
	}
	return skip, nil
}

// DrainPending shows what locks no longer hold up.
func (s *simStore) DrainPending(_ context.Context, limit int) (done int, err error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	t := &s.w.table
	if s.nonce != t.nonce {
		s.fenced = true
		s.w.tally[drainFenced]++
		return 0, store.ErrFenced
	}
	for p, waits := range t.pending {
		if done < limit && !time.Now().Before(waits.until) {
			t.status[p] = waits.status
			delete(t.pending, p)
			s.w.tally[drained]++
			done++
		}
	}
	return done, nil
}
