package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// tableID is the outbox table as the stream names it.
type tableID struct {
	oid          uint32
	schema, name string
}

// RelationError reports a change of a table that is not the outbox: the
// publication has more in it than it should, or the table was replaced.
// Nothing is skipped or guessed; the session ends.
type RelationError struct {
	OID      uint32
	Relation string // schema.name, or "" when its Relation message never came
	LSN      outbox.LSN
}

// Error names the relation and what to do.
func (e *RelationError) Error() string {
	return fmt.Sprintf("a row of relation %q (OID %d) arrived at %v, and it is not the outbox table; "+
		"make the publication hold the outbox table alone: alter publication <name> set table <outbox>", e.Relation, e.OID, e.LSN)
}

// ColumnsError reports that the outbox, as it was when the rows that follow
// were written, lacks what table.columns maps.
type ColumnsError struct {
	Relation string
	Err      error
}

// Error names the table and says what to do.
func (e *ColumnsError) Error() string {
	return fmt.Sprintf("the columns of %s, as they were when the next rows were written, do not fit table.columns: %v", e.Relation, e.Err)
}

// Unwrap gives the column's fault.
func (e *ColumnsError) Unwrap() error { return e.Err }

// frame takes one frame from the stream. What this program cannot read, or must
// not pass, becomes the halt: everything before it is settled first, or else
// each further session would publish that again.
func (l *loop) frame(ctx context.Context, f cdc.Frame) error {
	if f.Kind == cdc.FrameKeepalive {
		return l.keepalive(ctx, f)
	}
	if err := decode.Parse(f.Data, &l.msg); err != nil {
		l.halt = fmt.Errorf("decoding the message at %v: %w", f.WALStart, err)
		return nil
	}
	l.stat.message(l.msg.Kind, len(f.Data))
	switch l.msg.Kind {
	case decode.KindBegin:
		return l.begin(f.ServerTime)
	case decode.KindInsert:
		return l.insert(ctx, f.WALStart)
	case decode.KindCommit:
		return l.commit(ctx)
	case decode.KindRelation:
		l.relation(l.msg.Relation)
		return nil
	default:
		// Update and Delete cannot come from an insert-only publication
		// (I10, checked at start); Truncate, Type, Origin and logical
		// messages mean nothing for what was inserted. All are counted.
		return nil
	}
}

// keepalive is a mark when no transaction is open; the tracker holds to that
// (I3). A server that asks for a reply gets one at once.
func (l *loop) keepalive(ctx context.Context, f cdc.Frame) error {
	l.stat.keepalive()
	l.received = max(l.received, f.WALEnd)
	if f.ReplyRequested {
		l.nextBeat = l.lastHeard
	}
	if l.replay.len() > 0 {
		if l.txn.open {
			return nil // the tracker has not seen this transaction's Begin yet
		}
		if err := l.lookUp(ctx); err != nil {
			return err
		}
	}
	l.tracker.Keepalive(f.WALEnd)
	return nil
}

func (l *loop) begin(sentAt time.Time) error {
	b := l.msg.Begin
	l.pace.sent(sentAt.Sub(b.CommitTime))
	l.txn = openTxn{open: true, commit: b.FinalLSN, time: b.CommitTime, timeline: l.own.history.at(b.FinalLSN)}
	// Strictly below: one transaction's commit LSN often equals the end of
	// the one before, which is where our position stands.
	l.txn.skip = b.FinalLSN < l.own.progress.LSN
	if l.txn.skip {
		l.stat.skipped(skipSettled, 1)
	}
	if l.replay.len() == 0 {
		l.tracker.Begin(b.FinalLSN)
	} else {
		l.replay.begin(b.FinalLSN)
	}
	return nil
}

// insert turns one row into an event and hands it on, unless an earlier
// session has settled it.
func (l *loop) insert(ctx context.Context, at outbox.LSN) error {
	if l.msg.Insert.RelationOID != l.table.oid || l.layout == nil && l.misfit == nil {
		l.halt = &RelationError{OID: l.msg.Insert.RelationOID, Relation: l.own.relationName(l.msg.Insert.RelationOID), LSN: at}
		return nil
	}
	p := outbox.Position{Timeline: l.txn.timeline, Commit: l.txn.commit, Index: l.txn.index}
	l.txn.index++
	l.stat.rowReceived()
	if l.txn.skip || l.own.progress.Covers(p) {
		l.stat.skipped(skipSettled, 1)
		return nil
	}
	if _, waits := l.own.waiting[p]; waits {
		l.stat.skipped(skipWaiting, 1)
		return nil
	}
	if l.misfit != nil {
		l.halt = l.misfit
		return nil
	}
	e := &outbox.Event{Position: p, CommitTime: l.txn.time}
	if err := l.layout.Event(l.msg.Insert, e); err != nil {
		l.halt = fmt.Errorf("reading the row at %v: %w", p, err)
		return nil
	}
	if e.Status != outbox.StatusReady {
		l.stat.skipped(skipStatus, 1)
		return nil
	}
	failpoint(fpReceived)
	if p.Commit <= l.own.lookUpTo {
		return l.replayed(ctx, e)
	}
	if err := l.lookUp(ctx); err != nil {
		return err
	}
	l.publish(e)
	return nil
}

// publish takes the ticket before anything leaves, then hands the event over.
func (l *loop) publish(e *outbox.Event) {
	t := l.tracker.Hold(e.Position.Index, e.Bytes())
	l.txn.rows = true
	l.stat.sent(t, e.CommitTime)
	failpoint(fpHeld)
	if e.DeliverAfter.After(e.CommitTime) && e.Defect == "" {
		// Both times are the database's: no clock of ours decides.
		l.box.put(outbox.Outcome{Ticket: t, Event: e, Verdict: outbox.Scheduled, Record: l.pub.Encode(e)})
		return
	}
	l.pub.Publish(t, e)
	l.pace.rows++
	failpoint(fpPublished)
}

// commit leaves the mark: the transaction's end LSN, exactly.
func (l *loop) commit(ctx context.Context) error {
	c := l.msg.Commit
	if c.CommitLSN != l.txn.commit {
		return fmt.Errorf("the stream commits %v inside the transaction of %v", c.CommitLSN, l.txn.commit)
	}
	l.txn.open = false
	l.received = max(l.received, c.EndLSN)
	l.stat.transaction(l.txn.index)
	if l.replay.len() > 0 {
		l.replay.commit(c.EndLSN)
		if l.replay.full() {
			return l.lookUp(ctx)
		}
		return nil
	}
	l.tracker.Commit(c.EndLSN)
	if l.txn.rows {
		l.cut.touch(l.lastHeard)
	}
	return nil
}

// relation replaces the cached layout: a column added, dropped or renamed
// comes as a new Relation message before the first row that has it. Columns
// that do not fit matter only once such a row has to be published.
func (l *loop) relation(r *decode.Relation) {
	l.own.sawRelation(r)
	if !l.table.is(r) {
		return // a leaf beside its root; its rows would carry the root's OID
	}
	l.table.oid, l.misfit = r.OID, nil
	var err error
	if l.layout, err = decode.NewLayout(l.cfg.Mapping, r); err != nil {
		l.layout, l.misfit = nil, &ColumnsError{Relation: r.Namespace + "." + r.Name, Err: err}
	}
}

// is matches by OID, which survives a rename, or by name, which survives a
// table that was created anew.
func (t tableID) is(r *decode.Relation) bool {
	return r.OID == t.oid || (r.Namespace == t.schema && r.Name == t.name)
}
