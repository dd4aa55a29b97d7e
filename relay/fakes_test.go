package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// The fakes stand at the loop's own seams. Their frames are real pgoutput
// messages, so the decoder is the product's.

const testOID = 16400

// testMapping is the smallest table: id, key, payload, status.
var testMapping = decode.Mapping{ID: "id", AggregateID: "aggregate_id", Payload: "payload", Status: "status", RowKey: []string{"id"}}

func be64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }
func be32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func be16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }

func msgBegin(commit outbox.LSN) []byte {
	return be32(be64(be64([]byte{'B'}, uint64(commit)), 0), 7)
}

func msgCommit(commit, end outbox.LSN) []byte {
	return be64(be64(be64([]byte{'C', 0}, uint64(commit)), uint64(end)), 0)
}

func msgRelation(oid uint32, table string) []byte {
	b := be32([]byte{'R'}, oid)
	b = append(append(b, "public\x00"+table+"\x00"...), 'd')
	b = be16(b, 4)
	for _, c := range []struct {
		name string
		oid  uint32
	}{{"id", 20}, {"aggregate_id", 25}, {"payload", 17}, {"status", 21}} {
		b = append(b, 0)
		b = append(b, c.name+"\x00"...)
		b = be32(be32(b, c.oid), 0xFFFFFFFF)
	}
	return b
}

func msgInsert(id int, key string, status int) []byte {
	b := be16(append(be32([]byte{'I'}, testOID), 'N'), 4)
	for _, v := range []string{fmt.Sprint(id), key, `\x6869`, fmt.Sprint(status)} {
		b = append(be32(append(b, 't'), uint32(len(v))), v...)
	}
	return b
}

// fakeSource plays frames that a test feeds it.
type fakeSource struct {
	frames chan cdc.Frame
	woken  chan struct{}
	cut    chan error // the connection dies

	mu       sync.Mutex
	mute     bool       // the server does not answer any more
	end      outbox.LSN // of what was fed: what an answer says
	confirms []outbox.LSN
	times    []time.Time
}

func newFakeSource() *fakeSource {
	return &fakeSource{frames: make(chan cdc.Frame, 1<<16), woken: make(chan struct{}, 1), cut: make(chan error, 1)}
}

func (s *fakeSource) data(at outbox.LSN, msgs ...[]byte) {
	for _, m := range msgs {
		s.frames <- cdc.Frame{Kind: cdc.FrameData, WALStart: at, Data: m}
	}
}

func (s *fakeSource) keepalive(at outbox.LSN) {
	s.mu.Lock()
	s.end = at
	s.mu.Unlock()
	s.frames <- cdc.Frame{Kind: cdc.FrameKeepalive, WALEnd: at}
}

func (s *fakeSource) Next(until time.Time) (cdc.Frame, error) {
	select {
	case err := <-s.cut:
		return cdc.Frame{}, err
	case f := <-s.frames:
		return f, nil
	default:
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case err := <-s.cut:
		return cdc.Frame{}, err
	case f := <-s.frames:
		return f, nil
	case <-s.woken:
	case <-timer.C:
	}
	return cdc.Frame{}, nil
}

func (s *fakeSource) Buffered() bool { return len(s.frames) > 0 }

func (s *fakeSource) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *fakeSource) Confirm(lsn outbox.LSN, ask bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ask && !s.mute {
		s.frames <- cdc.Frame{Kind: cdc.FrameKeepalive, WALEnd: s.end}
	}
	s.confirms = append(s.confirms, lsn)
	s.times = append(s.times, time.Now())
	return nil
}

func (s *fakeSource) lastConfirm() outbox.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.confirms) == 0 {
		return 0
	}
	return s.confirms[len(s.confirms)-1]
}

// fakePublisher keeps what it was given until the test decides.
type fakePublisher struct {
	mu     sync.Mutex
	out    []outbox.Outcome
	report func(outbox.Outcome)
	kicks  int
	value  string // of refused records
}

func (p *fakePublisher) Publish(t outbox.Ticket, e *outbox.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, outbox.Outcome{Ticket: t, Event: e})
}

func (p *fakePublisher) Kick()                               { p.kicks++ }
func (p *fakePublisher) Beat()                               {}
func (p *fakePublisher) Encode(*outbox.Event) *outbox.Record { return &outbox.Record{Topic: "t"} }

// decide gives the n oldest events their verdict.
func (p *fakePublisher) decide(n int, v outbox.Verdict) {
	p.mu.Lock()
	got := p.out[:n:n]
	p.out = p.out[n:]
	p.mu.Unlock()
	for _, o := range got {
		o.Verdict = v
		if v != outbox.Acked {
			o.Record = &outbox.Record{Topic: "t", Value: []byte(p.value)}
		}
		p.report(o)
	}
}

func (p *fakePublisher) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.out)
}

// fakeStore is the table as the settler sees it. A test may hold commits back
// with gate, or have the next ones fail.
type fakeStore struct {
	gate       chan struct{} // nil: commits go through at once
	lookUpGate chan struct{} // the same for look-ups

	mu      sync.Mutex
	batches []store.Batch
	errs    []error // one for each of the next calls of Settle
	settled map[outbox.Position]bool
	lookups int
	asked   int
}

func (s *fakeStore) Settle(ctx context.Context, b store.Batch) (store.Settled, error) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return store.Settled{}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return store.Settled{}, err
	}
	s.batches = append(s.batches, b)
	done := store.Settled{Shown: len(b.Outcomes), LSN: b.Progress.LSN}
	for _, o := range b.Outcomes {
		if o.Verdict != outbox.Acked {
			done.Lined++
		}
	}
	return done, nil
}

func (s *fakeStore) Lookup(ctx context.Context, events []*outbox.Event) ([]bool, error) {
	s.mu.Lock()
	gate := s.lookUpGate
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	s.asked += len(events)
	skip := make([]bool, len(events))
	for i, e := range events {
		skip[i] = s.settled[e.Position]
	}
	return skip, nil
}

func (s *fakeStore) DrainPending(context.Context, int) (int, error) { return 0, nil }

func (s *fakeStore) stored() outbox.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.batches) == 0 {
		return outbox.Progress{}
	}
	return s.batches[len(s.batches)-1].Progress
}

func (s *fakeStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.batches)
}

// rig is a loop between fakes, running.
type rig struct {
	src   *fakeSource
	pub   *fakePublisher
	store *fakeStore
	loop  *loop
	stop  context.CancelFunc
	done  chan error
}

func testConfig() Config {
	c, err := Config{Relay: "r", Slot: "s", Publication: "p", Schema: "public", Table: "outbox", Mapping: testMapping}.withDefaults()
	if err != nil {
		panic(err)
	}
	return c
}

// newRig starts a loop and its settler; change may adjust it before that.
func newRig(t *testing.T, change func(*loop)) *rig {
	r := &rig{src: newFakeSource(), pub: &fakePublisher{}, store: &fakeStore{}, done: make(chan error, 1)}
	cfg := testConfig()
	l := &loop{
		cfg: cfg, log: zerolog.Nop(), src: r.src, pub: r.pub, stat: &stats{},
		own:     ownership{full: new(atomic.Bool), history: history{current: 1}, progress: outbox.Progress{Timeline: 1, LSN: 100}},
		table:   tableID{oid: testOID, schema: "public", name: "outbox"},
		cut:     cutter{rows: cfg.WriteBackRows, interval: cfg.WriteBackInterval, lastCut: time.Now()},
		settler: newSettlerPort(r.store, zerolog.Nop()),
		nudge:   make(chan struct{}, 1), failed: make(chan error, 1),
	}
	if change != nil {
		change(l)
	}
	l.sent, l.stored = l.own.progress, l.own.progress
	l.tracker = checkpoint.New(l.own.progress)
	l.box = &mailbox{wake: l.news}
	l.settler.wake = l.news
	r.pub.report = l.box.put
	r.loop = l
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	beside, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.settler.run(beside); err != nil {
			l.end(err)
		}
	})
	go func() {
		err := l.run(ctx)
		cancel()
		wg.Wait()
		r.done <- err
		close(r.done)
	}()
	t.Cleanup(func() {
		r.src.cut <- errors.New("the test is over")
		r.loop.end(errors.New("the test is over"))
		for range r.done {
		}
	})
	return r
}

// ended gives why the loop has ended, which it must within a minute.
func (r *rig) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the session goes on")
		return nil
	}
}

// txn feeds one whole transaction with a row for each key.
func (r *rig) txn(commit, end outbox.LSN, keys ...string) {
	r.src.data(0, msgBegin(commit))
	for i, k := range keys {
		r.src.data(commit, msgInsert(int(commit)*100+i, k, 0))
	}
	r.src.data(end, msgCommit(commit, end))
	r.src.mu.Lock()
	r.src.end = max(r.src.end, end)
	r.src.mu.Unlock()
}

func (r *rig) relation() { r.src.data(0, msgRelation(testOID, "outbox")) }
