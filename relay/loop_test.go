package relay

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// TestStatusEveryBeat proves I9: with a publisher that never answers, a full
// span, and a settler whose commit hangs, the status still goes out at every
// beat, and it never moves.
// Case F19 of docs/guarantees.md.
func TestStatusEveryBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.SpanRows = 3 })
		r.store.gate = make(chan struct{})
		r.relation()
		r.txn(200, 210, "a", "b", "c", "d", "e")
		synctest.Wait()
		if n := r.pub.pending(); n != 3 {
			t.Fatalf("%d rows handed over with a span of 3", n)
		}
		r.pub.decide(1, outbox.Acked)
		for range 60 {
			time.Sleep(r.loop.cfg.Beat)
		}
		synctest.Wait()
		r.src.mu.Lock()
		confirms, times := r.src.confirms, r.src.times
		r.src.mu.Unlock()
		if n := len(confirms); n < 60 {
			t.Fatalf("%d statuses in 60 beats", n)
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap > r.loop.cfg.Beat+time.Millisecond {
				t.Fatalf("%v between two statuses, the beat is %v", gap, r.loop.cfg.Beat)
			}
		}
		for _, lsn := range confirms {
			if lsn > 100 {
				t.Fatalf("confirmed %v with rows out", lsn)
			}
		}
	})
}

// TestSettledOnlyAfterCommit proves I5 and the second half of I1: an
// acknowledged row confirms nothing before its batch is committed, and then
// exactly the end of its transaction.
// Case F48 of docs/guarantees.md.
func TestSettledOnlyAfterCommit(t *testing.T) {
	t.Parallel()
	atAck := map[WriteBack]bool{WriteBackStatus: false, WriteBackDelete: false, WriteBackAsync: true, WriteBackOff: true}
	for wb, settledAtAck := range atAck {
		t.Run(string(wb), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(l *loop) { l.cfg.WriteBack = wb })
				r.store.gate = make(chan struct{})
				r.relation()
				r.txn(200, 210, "a")
				synctest.Wait()
				r.pub.decide(1, outbox.Acked)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := r.src.lastConfirm(); got > 100 {
					t.Fatalf("confirmed %v before the position row said so", got)
				}
				rows, _ := r.loop.tracker.Held()
				if (rows == 0) != settledAtAck {
					t.Fatalf("%d tickets out after the ack", rows)
				}
				close(r.store.gate)
				synctest.Wait()
				if got := r.src.lastConfirm(); got != 210 {
					t.Fatalf("confirmed %v, want the end LSN 0/D2", got)
				}
				r.stop()
				if err := <-r.done; !errors.Is(err, errStopped) {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestMarkIsTheEndOfTheTransaction proves I3 for rows: what is confirmed after
// the last one is its transaction's end, exactly, and without the help of a
// keepalive that says so too.
func TestMarkIsTheEndOfTheTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.src.mu.Lock()
		r.src.mute = true
		r.src.mu.Unlock()
		r.relation()
		for i := range outbox.LSN(5) {
			r.txn(200+10*i, 210+10*i, "a")
			synctest.Wait()
			r.pub.decide(1, outbox.Acked)
			time.Sleep(2 * r.loop.cfg.WriteBackInterval)
			synctest.Wait()
			if got := r.src.lastConfirm(); got != 210+10*i || r.store.stored().LSN != got {
				t.Fatalf("confirmed %v, stored %v, want %v", got, r.store.stored().LSN, 210+10*i)
			}
		}
	})
}

// TestSpanIsBounded proves I12: whatever the publisher does, no more rows are
// out than the span allows, and a row larger than the span travels alone.
// Cases F16, F17 of docs/guarantees.md.
func TestSpanIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.SpanBytes = 1 })
		r.relation()
		for i := range 50 {
			r.txn(outbox.LSN(200+10*i), outbox.LSN(210+10*i), "a")
		}
		for i := range 50 {
			synctest.Wait()
			if n := r.pub.pending(); n != 1 {
				t.Fatalf("row %d: %d rows out, want one alone", i, n)
			}
			r.pub.decide(1, outbox.Acked)
			time.Sleep(r.loop.cfg.WriteBackInterval)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.src.lastConfirm(); got != 700 {
			t.Fatalf("confirmed %v, want 0/2BC", got)
		}
		r.stop()
		<-r.done
	})
}

// TestRefusedAndDivertedGoThroughTheSameDoor proves that a refused row holds
// the LSN until the batch that makes it durable is committed, like any other.
func TestRefusedAndDivertedGoThroughTheSameDoor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.WriteBack = WriteBackOff })
		r.store.gate = make(chan struct{})
		r.relation()
		r.txn(200, 210, "a", "a", "b")
		synctest.Wait()
		r.pub.decide(1, outbox.Refused)
		r.pub.decide(1, outbox.Diverted)
		r.pub.decide(1, outbox.Acked)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.src.lastConfirm(); got > 100 {
			t.Fatalf("confirmed %v over a refused row that is not durable", got)
		}
		close(r.store.gate)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.src.lastConfirm(); got != 210 {
			t.Fatalf("confirmed %v, want 0/D2", got)
		}
		lined := 0
		for _, b := range r.store.batches {
			for _, o := range b.Outcomes {
				if o.Verdict != outbox.Acked {
					lined++
				}
			}
		}
		if lined != 2 {
			t.Fatalf("%d events written to lines, want 2", lined)
		}
		r.stop()
		<-r.done
	})
}

// TestIdleMarkIsStoredSeldom proves that unrelated WAL moves the slot without
// a row of ours, but at most once a minute or 64 MiB, and never for our own
// write alone.
// Cases F1, F2 of docs/guarantees.md.
func TestIdleMarkIsStoredSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		lsn := outbox.LSN(100)
		for range 310 { // five minutes of a busy neighbour, 1 MiB a second
			lsn += 1 << 20
			r.src.keepalive(lsn)
			time.Sleep(time.Second)
		}
		if n := r.store.count(); n < 4 || n > 6 {
			t.Fatalf("%d position writes in five minutes, want about five", n)
		}
		synctest.Wait()
		before := r.store.count()
		lsn += 64 << 20
		r.src.keepalive(lsn)
		synctest.Wait()
		if r.store.count() != before+1 || r.src.lastConfirm() != lsn {
			t.Fatalf("64 MiB of unrelated WAL: %d writes, confirmed %v, want %v", r.store.count()-before, r.src.lastConfirm(), lsn)
		}
		before = r.store.count()
		for range 600 { // ten quiet minutes in which only our own writes show
			r.src.keepalive(r.loop.cut.ownWrite + 8000)
			time.Sleep(time.Second)
		}
		if n := r.store.count() - before; n != 0 {
			t.Fatalf("%d position writes for our own WAL", n)
		}
		r.stop()
		<-r.done
	})
}

// TestReplayIsLookedUp proves the start of a session: what the position row
// covers is not touched, what the table calls settled gets no ticket, what
// waits in a line stays there, absent rows are sent, and all of it in order.
// Case F30 of docs/guarantees.md.
func TestReplayIsLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pos := func(commit outbox.LSN, i int) outbox.Position {
			return outbox.Position{Timeline: 1, Commit: commit, Index: i}
		}
		r := newRig(t, func(l *loop) {
			l.own.progress = outbox.Progress{Timeline: 1, LSN: 210, NextCommit: 210, NextIndex: 1}
			l.own.lookUpTo = 250
			l.own.waiting = map[outbox.Position]struct{}{pos(210, 2): {}}
		})
		r.store.mu.Lock()
		r.store.settled = map[outbox.Position]bool{pos(210, 3): true, pos(230, 0): true}
		r.store.mu.Unlock()
		r.relation()
		r.txn(200, 210, "covered")                         // ends at the position: skipped whole
		r.txn(210, 220, "done", "sent", "line", "settled") // begins there: rows 1 is left
		r.txn(230, 240, "settled", "sent")
		r.txn(250, 260, "sent")
		r.txn(260, 270, "new")
		synctest.Wait()
		var got []outbox.Position
		for _, o := range r.pub.out {
			got = append(got, o.Event.Position)
		}
		want := []outbox.Position{pos(210, 1), pos(230, 1), pos(250, 0), pos(260, 0)}
		if len(got) != len(want) {
			t.Fatalf("published %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("published %v, want %v", got, want)
			}
		}
		if r.store.lookups != 1 || r.store.asked != 5 {
			t.Fatalf("%d look-ups for %d rows, want one for 5", r.store.lookups, r.store.asked)
		}
		r.pub.decide(4, outbox.Acked)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.src.lastConfirm(); got != 270 {
			t.Fatalf("confirmed %v, want 0/10E", got)
		}
		r.stop()
		<-r.done
	})
}

// TestFencedSessionEnds proves the loop's part of I13: a settler that is told
// of a stale nonce ends the session, and nothing is confirmed.
func TestFencedSessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.store.errs = []error{store.ErrFenced}
		r.relation()
		r.txn(200, 210, "a")
		synctest.Wait()
		r.pub.decide(1, outbox.Acked)
		if err := r.ended(t); !errors.Is(err, store.ErrFenced) {
			t.Fatalf("the session ended with %v", err)
		}
		if got := r.src.lastConfirm(); got > 100 {
			t.Fatalf("confirmed %v after being fenced", got)
		}
	})
}

// TestUnexpectedRelationEndsTheSession proves that a row of another table is
// neither skipped nor guessed at.
func TestUnexpectedRelationEndsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.src.data(0, msgRelation(testOID+1, "other"), msgBegin(200))
		bad := msgInsert(1, "a", 0)
		bad[4]++ // another relation's OID
		r.src.data(200, bad)
		var rel *RelationError
		if err := r.ended(t); !errors.As(err, &rel) || rel.Relation != "public.other" {
			t.Fatalf("the session ended with %v", err)
		}
	})
}

// TestSilentServerEndsTheSession proves that a half-open connection is given
// up, and that a span that is full is no silence.
func TestSilentServerEndsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.SpanRows = 1 })
		r.src.mu.Lock()
		r.src.mute = true
		r.src.mu.Unlock()
		r.relation()
		r.txn(200, 210, "a", "b")
		time.Sleep(time.Hour) // Kafka is down; we do not listen, so we do not judge
		synctest.Wait()
		select {
		case err := <-r.done:
			t.Fatalf("ended while the span was full: %v", err)
		default:
		}
		r.pub.decide(1, outbox.Acked)
		time.Sleep(time.Second)
		synctest.Wait()
		r.pub.decide(1, outbox.Acked)
		began := time.Now()
		var silent *SilenceError
		if err := <-r.done; !errors.As(err, &silent) {
			t.Fatalf("the session ended with %v", err)
		}
		if d := time.Since(began); d < r.loop.cfg.Silence || d > r.loop.cfg.Silence+2*r.loop.cfg.Beat {
			t.Fatalf("gave up after %v, the limit is %v", d, r.loop.cfg.Silence)
		}
	})
}

// TestFullSpanEmptiesAQuarter proves that a span that was full is read into
// again when a quarter of it is free, not for every row, and that nothing is
// left unread.
func TestFullSpanEmptiesAQuarter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.SpanRows, l.cfg.WriteBack = 8, WriteBackOff })
		r.relation()
		r.txn(200, 210, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
		for step, want := range []int{8, 7, 8, 7, 7} { // out at each step; at six, reading begins again
			synctest.Wait()
			if n := r.pub.pending(); n != want {
				t.Fatalf("step %d: %d rows are out, want %d", step, n, want)
			}
			r.pub.decide(1, outbox.Acked)
		}
	})
}

// TestStopDrains proves the two phases of a stop: nothing more is read, what
// is out is settled and confirmed, and then the loop ends.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.relation()
		r.txn(200, 210, "a", "b")
		synctest.Wait()
		r.stop()
		synctest.Wait()
		r.txn(300, 310, "late")
		time.Sleep(time.Second)
		synctest.Wait()
		if n := r.pub.pending(); n != 2 {
			t.Fatalf("%d rows out, want the two read before the stop", n)
		}
		r.pub.decide(2, outbox.Acked)
		if err := <-r.done; !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		if got := r.src.lastConfirm(); got != 210 || r.store.stored().LSN != 210 {
			t.Fatalf("confirmed %v, stored %v, want 0/D2", got, r.store.stored().LSN)
		}
	})
}

// TestStopKeepsItsGrace proves that a stop with rows that nobody decides ends
// when its grace is over, not at the next beat.
func TestStopKeepsItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.cfg.ShutdownGrace = l.cfg.Beat / 3 })
		r.relation()
		r.txn(200, 210, "a")
		synctest.Wait()
		began := time.Now()
		r.stop()
		if err := <-r.done; !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		if took := time.Since(began); took != r.loop.cfg.ShutdownGrace {
			t.Fatalf("the stop took %v, its grace is %v", took, r.loop.cfg.ShutdownGrace)
		}
		if got := r.src.lastConfirm(); got > 100 {
			t.Fatalf("confirmed %v with a row out", got)
		}
	})
}
