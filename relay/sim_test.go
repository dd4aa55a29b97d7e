package relay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// The simulation runs the real loop, tracker, cutter and settler against a
// world made of plain values, in virtual time, from a seed: a log that grows,
// a slot that may fall back, a table with its position row, lanes that
// acknowledge late, refuse, and die with records in flight. The oracle looks
// at every confirm and every settled batch, and at the whole at the end.
//
// A seed that fails is run again with -sim.seed, and becomes a case of
// TestSimulationFoundSeeds.

var (
	simSeeds = flag.Int("sim.seeds", 2000, "how many seeds TestSimulation runs")
	simSeed  = flag.Uint64("sim.seed", 0, "run this one seed, and tell its story")
)

// world is everything outside the loop that outlives a session.
type world struct {
	rng   *rand.Rand
	story func(format string, args ...any)

	mu     sync.Mutex
	log    []simTxn
	end    outbox.LSN // of the log
	slot   outbox.LSN // what the server has persisted of our confirms
	mode   WriteBack
	table  simTable
	topics map[string][]outbox.Position // published, by key, in the broker's order
	errs   []error
	faults int // sessions that ended by a fault
}

type simTxn struct {
	commit, end outbox.LSN
	keys        []string
	poison      []bool
}

// simTable is what Postgres keeps for us.
type simTable struct {
	nonce    int
	progress outbox.Progress
	reached  outbox.LSN
	status   map[outbox.Position]outbox.Status
	lines    map[outbox.Position]string // waiting events and their keys
	locked   map[outbox.Position]bool   // the application holds the row: its status is pending
}

func newWorld(seed uint64, story func(string, ...any)) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{rng: rng, story: story, end: 100, slot: 100, topics: map[string][]outbox.Position{}}
	w.mode = []WriteBack{WriteBackStatus, WriteBackOff, WriteBackAsync, WriteBackDelete}[rng.IntN(4)]
	w.table = simTable{progress: outbox.Progress{Timeline: 1, LSN: 100}, status: map[outbox.Position]outbox.Status{},
		lines: map[outbox.Position]string{}, locked: map[outbox.Position]bool{}}
	return w
}

func (w *world) fail(format string, args ...any) {
	if len(w.errs) < 5 {
		w.errs = append(w.errs, fmt.Errorf(format, args...))
	}
}

// commit appends one transaction of up to five rows; mu is held.
func (w *world) commit() {
	tx := simTxn{commit: w.end + outbox.LSN(w.rng.IntN(2)*w.rng.IntN(50))}
	tx.end = tx.commit + outbox.LSN(10+w.rng.IntN(10))
	for range w.rng.IntN(6) {
		tx.keys = append(tx.keys, string(rune('a'+w.rng.IntN(4))))
		tx.poison = append(tx.poison, w.rng.IntN(25) == 0)
	}
	w.end = tx.end
	w.log = append(w.log, tx)
}

func (w *world) isPoison(p outbox.Position) bool {
	i, _ := slices.BinarySearchFunc(w.log, p.Commit, func(tx simTxn, c outbox.LSN) int { return int(tx.commit) - int(c) })
	return w.log[i].poison[p.Index]
}

// done says whether the row is where a confirm may pass it.
func (w *world) done(p outbox.Position, key string) bool {
	if _, waits := w.table.lines[p]; waits {
		return true
	}
	published := slices.Contains(w.topics[key], p)
	if w.mode.settlesAtAck() {
		return published
	}
	return published && w.table.status[p] == outbox.StatusSent
}

// checkConfirm is the oracle of I1 and I2.
func (w *world) checkConfirm(lsn, before outbox.LSN) {
	if lsn < before {
		w.fail("confirmed %v after %v", lsn, before)
	}
	if lsn > w.table.progress.LSN {
		w.fail("confirmed %v beyond the position row at %v", lsn, w.table.progress.LSN)
	}
	for _, tx := range w.log {
		if tx.end > lsn {
			return
		}
		for i, key := range tx.keys {
			if p := (outbox.Position{Timeline: 1, Commit: tx.commit, Index: i}); !w.done(p, key) {
				w.fail("confirmed %v over row %v of key %s, which is neither published nor in a line", lsn, p, key)
			}
		}
	}
}

// simSource is the walsender of one session.
type simSource struct {
	*fakeSource
	w         *world
	confirmed outbox.LSN
}

func (s *simSource) Confirm(lsn outbox.LSN, ask bool) error {
	s.w.mu.Lock()
	s.w.checkConfirm(lsn, s.confirmed)
	s.confirmed = lsn
	if lsn > s.w.slot && s.w.rng.IntN(3) > 0 { // the server persists it sooner or later
		s.w.slot = lsn
	}
	s.w.mu.Unlock()
	return s.fakeSource.Confirm(lsn, ask)
}

// feed sends the log from the slot's position on, and what is added later,
// until the session ends.
func (s *simSource) feed(ctx context.Context, from outbox.LSN) {
	s.data(0, msgRelation(testOID, "outbox"))
	for n := 0; ; {
		s.w.mu.Lock()
		txns, end := s.w.log[n:], s.w.end
		n = len(s.w.log)
		s.w.mu.Unlock()
		for _, tx := range txns {
			if tx.commit < from {
				continue // decided by the commit record, as the server does
			}
			s.data(0, msgBegin(tx.commit))
			for i, k := range tx.keys {
				s.data(tx.commit, msgInsert(i, k, 0))
				if i == 0 && tx.commit%3 == 0 {
					s.keepalive(end) // says where the server is, in the middle of this
				}
			}
			s.data(tx.end, msgCommit(tx.commit, tx.end))
		}
		s.keepalive(end)
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// simSink is the sink's contract: per key in order, one outcome for each
// ticket, held keys diverted, and in flight records that may still land when
// the session is over.
type simSink struct {
	w      *world
	report func(outbox.Outcome)

	mu    sync.Mutex
	queue []outbox.Outcome
	held  map[string]bool
	over  bool
}

func (s *simSink) Publish(t outbox.Ticket, e *outbox.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, outbox.Outcome{Ticket: t, Event: e})
}

func (s *simSink) Kick()                               {}
func (s *simSink) Beat()                               {}
func (s *simSink) Encode(*outbox.Event) *outbox.Record { return &outbox.Record{} }

// work gives verdicts to random runs of the queue, as lanes would: the order
// among keys is free, the order within one is not.
func (s *simSink) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
		s.mu.Lock()
		s.w.mu.Lock()
		var out []outbox.Outcome
		stuck := map[string]bool{}
		rest := s.queue[:0:0]
		for _, o := range s.queue {
			key := o.Event.AggregateID
			if stuck[key] || s.w.rng.IntN(3) == 0 {
				stuck[key] = true
				rest = append(rest, o)
				continue
			}
			out = append(out, s.verdict(o, key))
		}
		s.queue = rest
		s.w.mu.Unlock()
		s.mu.Unlock()
		for _, o := range out {
			s.report(o)
		}
	}
}

// verdict decides one record; both mutexes are held.
func (s *simSink) verdict(o outbox.Outcome, key string) outbox.Outcome {
	p := o.Event.Position
	switch {
	case s.held[key]:
		o.Verdict, o.Holds, o.Record = outbox.Diverted, true, &outbox.Record{}
	case s.w.isPoison(p):
		s.held[key] = true
		o.Verdict, o.Holds, o.Record = outbox.Refused, true, &outbox.Record{}
	default:
		o.Verdict = outbox.Acked
		s.w.topics[key] = append(s.w.topics[key], p)
	}
	return o
}

// die ends the session's sink: a prefix of each key's queue may still land.
func (s *simSink) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	stuck := map[string]bool{}
	for _, o := range s.queue {
		key := o.Event.AggregateID
		if stuck[key] || s.held[key] || s.w.isPoison(o.Event.Position) || s.w.rng.IntN(2) == 0 {
			stuck[key] = true
			continue
		}
		s.w.topics[key] = append(s.w.topics[key], o.Event.Position)
	}
	s.queue, s.over = nil, true
}

// simStore is the table under one nonce.
type simStore struct {
	w     *world
	nonce int
}

func (s *simStore) Settle(ctx context.Context, b store.Batch) (store.Settled, error) {
	s.w.mu.Lock()
	wait, trouble, lost := s.w.rng.IntN(20), s.w.rng.IntN(15) == 0, s.w.rng.IntN(60) == 0
	s.w.mu.Unlock()
	select {
	case <-ctx.Done():
		return store.Settled{}, ctx.Err()
	case <-time.After(time.Duration(wait) * time.Millisecond):
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.nonce != s.w.table.nonce {
		return store.Settled{}, store.ErrFenced
	}
	if trouble && !lost {
		return store.Settled{}, fmt.Errorf("%w: try again", store.ErrCommitUnknown)
	}
	if b.Progress.Before(s.w.table.progress) {
		s.w.fail("the position row would go back from %+v to %+v", s.w.table.progress, b.Progress)
	}
	s.apply(b)
	if lost { // committed, but nobody hears of it
		return store.Settled{}, fmt.Errorf("%w: connection lost", store.ErrCommitUnknown)
	}
	return store.Settled{Shown: len(b.Outcomes), LSN: s.w.end}, nil
}

func (s *simStore) apply(b store.Batch) {
	t := &s.w.table
	t.progress = b.Progress
	for _, o := range b.Outcomes {
		p := o.Event.Position
		t.reached = max(t.reached, p.Commit)
		if o.Verdict != outbox.Acked {
			if _, waits := t.lines[p]; waits {
				s.w.fail("row %v was put into a line twice", p)
			}
			t.lines[p] = o.Event.AggregateID
			t.status[p] = outbox.StatusFailed
		} else if s.w.mode.writesRows() {
			t.status[p] = outbox.StatusSent
		}
	}
}

func (s *simStore) Lookup(_ context.Context, events []*outbox.Event) ([]bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	skip := make([]bool, len(events))
	for i, e := range events {
		skip[i] = s.w.table.status[e.Position] == outbox.StatusSent && s.w.mode != WriteBackDelete
	}
	return skip, nil
}

func (s *simStore) DrainPending(context.Context, int) (int, error) { return 0, nil }

// session runs one session for at most limit and ends it by a fault, or by a
// wanted stop when clean is set.
func (w *world) session(limit time.Duration, clean bool) error {
	w.mu.Lock()
	w.table.nonce++
	st := &simStore{w: w, nonce: w.table.nonce}
	own := ownership{full: new(atomic.Bool), history: history{current: 1}, progress: w.table.progress, lookUpTo: w.table.reached, waiting: map[outbox.Position]struct{}{}}
	sink := &simSink{w: w, held: map[string]bool{}}
	for p, key := range w.table.lines {
		sink.held[key] = true
		own.waiting[p] = struct{}{}
	}
	from := max(w.slot, w.table.progress.LSN)
	cfg := testConfig()
	cfg.WriteBack, cfg.SpanRows, cfg.WriteBackRows = w.mode, 1+w.rng.IntN(40), 1+w.rng.IntN(20)
	w.mu.Unlock()

	src := &simSource{fakeSource: newFakeSource(), w: w}
	l := &loop{cfg: cfg, log: zerolog.Nop(), src: src, pub: sink, stat: &stats{}, own: own,
		tracker: checkpoint.New(own.progress), sent: own.progress, stored: own.progress,
		table:   tableID{oid: testOID, schema: "public", name: "outbox"},
		cut:     cutter{rows: cfg.WriteBackRows, interval: cfg.WriteBackInterval, lastCut: time.Now()},
		settler: newSettlerPort(st, zerolog.Nop()), nudge: make(chan struct{}, 1), failed: make(chan error, 1), serverEnd: new(atomic.Uint64)}
	l.box = &mailbox{wake: l.wake}
	l.settler.wake, sink.report = l.wake, l.box.put

	beside, cancel := context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { src.feed(beside, from) })
	wg.Go(func() { sink.work(beside) })
	wg.Go(func() {
		if err := l.settler.run(beside); err != nil {
			l.end(err)
		}
	})
	end := time.AfterFunc(limit, func() {
		if clean {
			stop()
			return
		}
		l.end(errors.New("killed"))
	})
	err := l.run(ctx)
	end.Stop()
	stop()
	cancel()
	wg.Wait()
	sink.die()
	return err
}

// simulate plays one seed and returns what the oracle found.
func simulate(t *testing.T, seed uint64, story func(string, ...any)) []error {
	w := newWorld(seed, story)
	writes := 10 + w.rng.IntN(40)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range writes {
			w.mu.Lock()
			w.commit()
			pause := time.Duration(w.rng.IntN(30)) * time.Millisecond
			w.mu.Unlock()
			time.Sleep(pause)
		}
	}()
	for range 1 + w.rng.IntN(5) {
		w.mu.Lock()
		limit, clean := time.Duration(20+w.rng.IntN(400))*time.Millisecond, w.rng.IntN(3) == 0
		w.mu.Unlock()
		err := w.session(limit, clean)
		w.mu.Lock()
		story("session ended: %v; position %+v, slot %v", err, w.table.progress, w.slot)
		if !errors.Is(err, errStopped) {
			w.faults++
		}
		if w.rng.IntN(4) == 0 { // the server crashed: the slot falls back
			w.slot = min(w.slot, 100+outbox.LSN(w.rng.IntN(int(w.slot-100)+1)))
			w.faults++
		}
		w.mu.Unlock()
	}
	<-done
	for range 50 { // faults of the table may end this one too; then again
		err := w.session(30*time.Second, true)
		story("last session ended: %v; position %+v of %v", err, w.table.progress, w.end)
		if errors.Is(err, errStopped) {
			break
		}
		w.faults++
	}
	w.final()
	return w.errs
}

// final is the oracle of the whole: nothing lost, order kept, nothing
// repeated without a fault.
func (w *world) final() {
	if w.table.progress.LSN != w.end {
		w.fail("the position row stands at %v, the log ends at %v", w.table.progress.LSN, w.end)
	}
	want := map[string][]outbox.Position{}
	for _, tx := range w.log {
		for i, key := range tx.keys {
			p := outbox.Position{Timeline: 1, Commit: tx.commit, Index: i}
			if _, waits := w.table.lines[p]; !waits {
				want[key] = append(want[key], p)
			}
		}
	}
	for key, published := range w.topics {
		var first []outbox.Position
		seen := map[outbox.Position]bool{}
		for _, p := range published {
			if seen[p] && w.faults == 0 {
				w.fail("row %v was published twice without a fault", p)
			}
			if _, waits := w.table.lines[p]; !seen[p] && !waits {
				first = append(first, p)
			}
			seen[p] = true
		}
		if !slices.Equal(first, want[key]) {
			w.fail("key %s: published %v, want %v", key, first, want[key])
		}
		delete(want, key)
	}
	for key, lost := range want {
		w.fail("key %s: %v published nowhere", key, lost)
	}
}

// TestSimulation proves I1 to I5, I8 and I11 to I13 of the stream path over
// many seeds.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simSeed != 0 {
		runSeed(t, *simSeed, t.Logf)
		return
	}
	for seed := uint64(1); seed <= uint64(*simSeeds); seed++ {
		runSeed(t, seed, func(string, ...any) {})
		if t.Failed() {
			return
		}
	}
}

func runSeed(t *testing.T, seed uint64, story func(string, ...any)) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range simulate(t, seed, story) {
			t.Errorf("seed %d: %v", seed, err)
		}
	})
}
