package relay

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/sink"
)

// What the loop owes to others while something does not answer: a status to
// the server, no wait to the client's callback, a bound to the memory.

// wantBeats fails when more than a beat lay between two statuses.
func (r *rig) wantBeats(t *testing.T, least int) {
	t.Helper()
	r.src.mu.Lock()
	defer r.src.mu.Unlock()
	if len(r.src.times) < least {
		t.Fatalf("%d statuses, want at least %d", len(r.src.times), least)
	}
	for i := 1; i < len(r.src.times); i++ {
		if gap := r.src.times[i].Sub(r.src.times[i-1]); gap > r.loop.cfg.Beat+time.Millisecond {
			t.Fatalf("%v between two statuses, the beat is %v", gap, r.loop.cfg.Beat)
		}
	}
}

// TestStatusEveryBeatDuringALookUp proves I9 where the loop waits for the
// table: a look-up that hangs for an hour costs no status.
func TestStatusEveryBeatDuringALookUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.own.lookUpTo = 250 })
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open) // or the loop waits for ever
		r.store.lookUpGate = gate
		r.relation()
		r.txn(200, 210, "a")
		time.Sleep(time.Hour)
		synctest.Wait()
		r.wantBeats(t, int(time.Hour/r.loop.cfg.Beat))
		if n := r.pub.pending(); n != 0 {
			t.Fatalf("%d rows handed over before the table has answered", n)
		}
		open()
		synctest.Wait()
		if n := r.pub.pending(); n != 1 {
			t.Fatalf("%d rows handed over after the answer, want 1", n)
		}
	})
}

// TestAskedForAStatusItGoesOut proves that a server which asks for a status
// gets one at once: it asks when it is about to give up on us.
func TestAskedForAStatusItGoesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.src.keepalive(150) // the start's position is confirmed with it
		time.Sleep(r.loop.cfg.Beat / 2)
		synctest.Wait()
		before := len(r.src.confirms)
		r.src.frames <- cdc.Frame{Kind: cdc.FrameKeepalive, WALEnd: 150, ReplyRequested: true}
		synctest.Wait() // no time passes
		if n := len(r.src.confirms) - before; n != 1 {
			t.Fatalf("%d statuses after the server asked for one", n)
		}
	})
}

// TestOutcomesNeverWait proves I6: with a loop that looks at nothing, every
// outcome and every reason to end is handed over without waiting. A wait would
// be a deadlock in here.
func TestOutcomesNeverWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &loop{src: newFakeSource(), nudge: make(chan struct{}, 1), failed: make(chan error, 1)}
		l.box = &mailbox{wake: l.news}
		for ticket := range outbox.Ticket(1000) {
			l.box.put(outbox.Outcome{Ticket: ticket})
			if ticket%3 == 0 {
				l.box.take()
			}
			l.end(errors.New("one of many reasons"))
		}
	})
}

// TestRefusedBatchIsTriedAgain proves I5 where the table refuses a batch for
// now: it is written again, whole, and until then nothing of it counts.
func TestRefusedBatchIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		locked := &pgconn.PgError{Severity: "ERROR", Code: "55P03", Message: "lock not available"}
		r.store.errs = []error{locked, locked, locked}
		r.relation()
		r.txn(200, 210, "a", "b")
		synctest.Wait()
		r.pub.decide(2, outbox.Acked)
		time.Sleep(r.loop.cfg.WriteBackInterval + 2*settleRetryMin)
		synctest.Wait()
		if got := r.src.lastConfirm(); got > 100 || r.store.count() != 0 {
			t.Fatalf("confirmed %v, %d batches written, with a table that refuses", got, r.store.count())
		}
		if why := r.loop.settler.trouble.Load(); why == nil {
			t.Fatal("nothing says why")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.src.lastConfirm(); got != 210 || r.store.count() != 1 || len(r.store.batches[0].Outcomes) != 2 {
			t.Fatalf("confirmed %v, batches %+v, want 0/D2 after one batch of two", got, r.store.batches)
		}
		if why := r.loop.settler.trouble.Load(); why != nil {
			t.Fatalf("still in trouble: %s", *why)
		}
	})
}

// TestRepeatedRowsCountToo proves I12 for rows that wait for a look-up: they
// are in the span like any other.
func TestRepeatedRowsCountToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.SpanRows, l.own.lookUpTo = 3, 10_000 })
		r.relation()
		for i := range outbox.LSN(20) {
			r.txn(200+10*i, 210+10*i, "a")
		}
		for range 20 {
			synctest.Wait()
			if n := r.pub.pending(); n == 0 || n > 3 {
				t.Fatalf("%d rows out with a span of 3", n)
			}
			r.pub.decide(1, outbox.Acked)
			time.Sleep(r.loop.cfg.WriteBackInterval)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.src.lastConfirm(); got != 400 {
			t.Fatalf("confirmed %v, want 0/190", got)
		}
	})
}

// TestFullLinesStopTheStream proves I12 for the lines: at their limit nothing
// more is read, the state can be seen, and the status still goes out.
func TestFullLinesStopTheStream(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*Config){
		"events": func(c *Config) { c.LinesEvents = 2 },
		"bytes":  func(c *Config) { c.LinesBytes = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(l *loop) { limit(&l.cfg) })
				r.pub.value = "v"
				r.relation()
				r.txn(200, 210, "a", "a")
				synctest.Wait()
				r.pub.decide(2, outbox.Refused)
				time.Sleep(time.Second)
				synctest.Wait()
				r.txn(210, 220, "b")
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := r.pub.pending(); n != 0 || !r.loop.own.full.Load() {
					t.Fatalf("%d rows read with full lines (known to be full: %v)", n, r.loop.own.full.Load())
				}
				r.wantBeats(t, int(time.Hour/r.loop.cfg.Beat))
				if got := r.src.lastConfirm(); got != 210 {
					t.Fatalf("confirmed %v, want 0/D2: what is in a line is settled", got)
				}
			})
		})
	}
}

// TestStuckLoopIsNotAlive proves that liveness is the loop's own turn and
// nothing else: it fails when that is too old, and not between sessions.
func TestStuckLoopIsNotAlive(t *testing.T) {
	t.Parallel()
	out, err := sink.New(sink.Config{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r := &Relay{deps: Deps{Sink: out}}
	if err := r.Live(); err != nil {
		t.Errorf("before the first session: %v", err)
	}
	st := &stats{}
	r.board.setStats(st)
	for age, alive := range map[time.Duration]bool{0: true, liveLimit - time.Second: true, liveLimit + time.Second: false} {
		st.tick.Store(time.Now().Add(-age).UnixNano())
		if err := r.Live(); (err == nil) != alive {
			t.Errorf("a turn %v ago: %v", age, err)
		}
	}
}
