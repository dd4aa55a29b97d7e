package relay

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// renamed is the outbox's Relation message after payload was renamed.
func renamed() []byte {
	return bytes.Replace(msgRelation(testOID, "outbox"), []byte("payload"), []byte("content"), 1)
}

// TestWhatLiesBeforeAHaltIsSettled proves that a place in the log that cannot
// be passed ends the session only when everything before it is settled, so
// that the next session does not publish it again; whatever makes the place
// impassable.
func TestWhatLiesBeforeAHaltIsSettled(t *testing.T) {
	t.Parallel()
	var (
		columns     *ColumnsError
		relation    *RelationError
		publication *cdc.PublicationError
	)
	for name, c := range map[string]struct {
		feed func(r *rig)
		want func(error) bool
	}{
		"a mapped column is gone": {
			func(r *rig) { r.src.data(0, msgBegin(300), renamed(), msgInsert(3, "c", 0)) },
			func(err error) bool { return errors.As(err, &columns) && verdictOf(err).kind == mustAct },
		},
		"a row of another table": {
			func(r *rig) {
				bad := msgInsert(3, "c", 0)
				bad[4]++
				r.src.data(0, msgBegin(300), msgRelation(testOID+1, "other"), bad)
			},
			func(err error) bool { return errors.As(err, &relation) },
		},
		"a message of no kind": {
			func(r *rig) { r.src.data(0, []byte{'?'}) },
			func(err error) bool { return err != nil },
		},
		"the publication is gone": {
			func(r *rig) {
				synctest.Wait() // what was fed is read
				r.src.cut <- &cdc.PublicationError{Publication: "p"}
				r.src.Wake()
			},
			func(err error) bool { return errors.As(err, &publication) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.relation()
				r.txn(200, 210, "a", "b")
				c.feed(r)
				synctest.Wait()
				select {
				case err := <-r.done:
					t.Fatalf("ended with two rows out: %v", err)
				default:
				}
				r.pub.decide(2, outbox.Acked)
				if err := r.ended(t); !c.want(err) {
					t.Fatalf("the session ended with %v", err)
				}
				if got := r.loop.stored.LSN; got != 210 {
					t.Fatalf("stored %v, want all before the halt", got)
				}
			})
		})
	}
}

// TestAHaltHasItsGrace proves that a halt does not wait for ever for rows that
// nobody takes.
func TestAHaltHasItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.relation()
		r.txn(200, 210, "a")
		r.src.data(0, msgBegin(300), renamed(), msgInsert(3, "c", 0))
		began := time.Now()
		var columns *ColumnsError
		if err := r.ended(t); !errors.As(err, &columns) {
			t.Fatalf("the session ended with %v", err)
		}
		if took := time.Since(began); took > r.loop.cfg.ShutdownGrace+time.Second {
			t.Fatalf("ended after %v, the grace is %v", took, r.loop.cfg.ShutdownGrace)
		}
	})
}

// TestSettledRowsMayHaveOtherColumns proves that columns which do not fit are
// no obstacle where the rows that have them are settled already.
func TestSettledRowsMayHaveOtherColumns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(l *loop) { l.own.progress = outbox.Progress{Timeline: 1, LSN: 205, NextCommit: 300, NextIndex: 1} })
		r.src.data(0, msgBegin(200), renamed(), msgInsert(1, "a", 0), msgCommit(200, 205))
		r.src.data(0, msgBegin(300), msgInsert(2, "b", 0), msgRelation(testOID, "outbox"), msgInsert(3, "c", 0), msgCommit(300, 310))
		synctest.Wait()
		if n := r.pub.pending(); n != 1 {
			t.Fatalf("%d rows handed over, want the last one", n)
		}
		r.pub.decide(1, outbox.Acked)
		r.stop()
		if err := <-r.done; !errors.Is(err, errStopped) {
			t.Fatalf("the session ended with %v", err)
		}
	})
}
