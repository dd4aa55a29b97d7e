package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// replay gathers what the log repeats after a restart until the table was
// asked which of it is settled. Transactions at or below ownership.lookUpTo
// may hold rows that an earlier session settled ahead of its position.
//
// Rows are gathered across transactions, so that a backlog of single-row
// transactions costs one look-up for 500 of them. While anything is gathered
// the tracker has not seen it: Begin, Hold and Commit follow in their order
// when the answer is there.
type replay struct {
	items  []replayItem
	events []*outbox.Event
	bytes  int
}

// replayItem is one word of the log that waits: exactly one field is set.
type replayItem struct {
	begin  outbox.LSN
	event  *outbox.Event
	commit outbox.LSN // end LSN
}

// lookUpRows is how many events one look-up asks for.
const lookUpRows = 500

func (r *replay) len() int              { return len(r.items) }
func (r *replay) full() bool            { return len(r.events) >= lookUpRows }
func (r *replay) begin(lsn outbox.LSN)  { r.items = append(r.items, replayItem{begin: lsn}) }
func (r *replay) commit(end outbox.LSN) { r.items = append(r.items, replayItem{commit: end}) }

func (r *replay) add(e *outbox.Event) {
	r.items = append(r.items, replayItem{event: e})
	r.events = append(r.events, e)
	r.bytes += e.Bytes()
}

func (r *replay) drop() { *r = replay{} }

// replayed gathers one repeated event.
func (l *loop) replayed(ctx context.Context, e *outbox.Event) error {
	l.replay.add(e)
	if l.replay.full() {
		return l.lookUp(ctx)
	}
	return nil
}

// lookUp asks the table about the gathered events and plays them on: what is
// settled gets no ticket, everything else is published. Rows that are absent
// or not visible are published: an absent row may have been inserted and
// deleted in one transaction, and nobody else will ever send it.
func (l *loop) lookUp(ctx context.Context) error {
	if l.replay.len() == 0 {
		return nil
	}
	skip, err := l.askTable(ctx, l.replay.events)
	if err != nil {
		return err
	}
	items := l.replay.items
	l.replay.drop()
	n := 0
	for _, it := range items {
		switch {
		case it.event == nil && it.commit == 0:
			l.tracker.Begin(it.begin)
			l.txn.rows = false
		case it.event == nil:
			l.tracker.Commit(it.commit)
			l.cut.touch(l.lastHeard)
		default:
			if skip[n] {
				l.stat.skipped(skipSettled, 1)
			} else {
				l.publish(it.event)
			}
			n++
		}
	}
	return nil
}

// askTable runs the look-up beside the loop, which keeps the beat (I9).
func (l *loop) askTable(ctx context.Context, events []*outbox.Event) ([]bool, error) {
	if len(events) == 0 || !l.cfg.WriteBack.writesRows() {
		return make([]bool, len(events)), nil
	}
	type answer struct {
		skip []bool
		err  error
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	got := make(chan answer, 1)
	go func() {
		skip, err := l.settler.store.Lookup(ctx, events)
		got <- answer{skip, err}
	}()
	timer := time.NewTimer(time.Until(l.nextBeat))
	defer timer.Stop()
	for {
		select {
		case a := <-got:
			if a.err != nil {
				return nil, fmt.Errorf("looking up %d repeated rows: %w", len(events), a.err)
			}
			return a.skip, nil
		case <-timer.C:
			if err := l.report(time.Now()); err != nil {
				cancel()
				<-got
				return nil, err
			}
			timer.Reset(time.Until(l.nextBeat))
		}
	}
}
