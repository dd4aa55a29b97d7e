package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/outbox"
)

const savepoint = "shown"

// show is one try to let rows show their statuses, inside a savepoint: any
// error of the application's table undoes the try and nothing else.
type show struct {
	store  *Store
	wanted []shown
	from   []int16 // states that may be left
	err    error   // why nothing is shown

	shown  []bool // by place in wanted
	opened bool   // the savepoint stands
	closed bool   // it was released
}

// queue adds the try to a batch. Deferred constraints fire inside the
// savepoint, not at the commit, where they would fail the whole batch.
func (w *show) queue(p *pgx.Batch) {
	w.shown = make([]bool, len(w.wanted))
	if w.err != nil || len(w.wanted) == 0 {
		return
	}
	p.Queue("savepoint " + savepoint).Exec(func(pgconn.CommandTag) error { w.opened = true; return nil })
	if w.store.blocked {
		p.Queue("select set_config('lock_timeout', $1, true)", milliseconds(shortLockTimeout))
	}
	for _, status := range []int16{int16(outbox.StatusSent), int16(outbox.StatusFailed), statusDelete} {
		w.queueStatus(p, status)
	}
	p.Queue("set constraints all immediate")
	p.Queue("release savepoint " + savepoint).Exec(func(pgconn.CommandTag) error { w.closed = true; return nil })
}

// queueStatus adds the statement for the rows that get this status.
func (w *show) queueStatus(p *pgx.Batch, status int16) {
	t := &w.store.table
	rows := t.newRowSet(len(w.wanted))
	places := make([]int, 0, len(w.wanted))
	for i := range w.wanted {
		if w.wanted[i].status == status {
			rows.add(w.wanted[i].parts, w.wanted[i].eventID)
			places = append(places, i)
		}
	}
	if rows.n == 0 {
		return
	}
	name, rest := stmtShowFree, []any{status, w.from}
	if status == statusDelete {
		name, rest = stmtRemoveFree, []any{w.from}
	}
	p.Queue(name, t.args(rows, rest...)...).Query(func(r pgx.Rows) error {
		var n int32
		_, err := pgx.ForEachRow(r, []any{&n}, func() error { w.shown[places[n-1]] = true; return nil })
		return err
	})
}

// failed takes an error of the batch that held the try; true when it is the
// try's own and the transaction can go on.
func (w *show) failed(err error) bool {
	if !w.opened || w.closed || fatal(err, w.store.conn) {
		return false
	}
	w.err = err
	return true
}

// finish leaves the savepoint of a failed try and returns what is not shown.
func (w *show) finish(ctx context.Context) (rest []shown, err error) {
	if w.err != nil {
		w.store.complain(w.err, len(w.wanted))
		if w.opened {
			if _, err := w.store.conn.Exec(ctx, "rollback to savepoint "+savepoint); err != nil {
				return nil, fmt.Errorf("undoing the statuses: %w", err)
			}
		}
		return w.wanted, nil
	}
	for i, ok := range w.shown {
		if !ok {
			rest = append(rest, w.wanted[i])
		}
	}
	return rest, nil
}

// state is what classify saw under its own lock.
type state struct {
	status *int16 // nil where the outbox has no status
	same   bool   // the row is the event's own
}

// classify takes the statuses that a first try did not show, locks the rows
// that it can, and decides: a row that we hold and that is in no state to
// leave is counted, a row that we hold and may leave (it was moved between
// the first try's snapshot and its lock) is tried again, and what is left is
// locked elsewhere, absent, or not visible yet.
func (s *Store) classify(ctx context.Context, rest []shown, from []int16, done *Settled) ([]shown, error) {
	var again, unseen []shown
	states, err := s.lockStates(ctx, rest)
	if err != nil {
		return s.undo(ctx, rest, err)
	}
	for i, w := range rest {
		switch st, held := states[i+1]; {
		case !held:
			unseen = append(unseen, w)
		case !st.same:
			done.Gone++
		case st.status == nil || slices.Contains(from, *st.status):
			again = append(again, w)
		default:
			done.Overtaken++
		}
	}
	second := show{store: s, wanted: again, from: from}
	var p pgx.Batch
	p.Queue("release savepoint " + savepoint)
	second.queue(&p)
	if err := s.send(ctx, &p); err != nil && !second.failed(err) {
		return nil, err
	}
	left, err := second.finish(ctx)
	done.Shown += len(again) - len(left)
	return append(unseen, left...), err
}

// lockStates opens a savepoint and tells the state of the rows that nobody
// else holds, by place from 1.
func (s *Store) lockStates(ctx context.Context, rest []shown) (map[int]state, error) {
	rows := s.table.newRowSet(len(rest))
	for _, w := range rest {
		rows.add(w.parts, w.eventID)
	}
	states := map[int]state{}
	var p pgx.Batch
	p.Queue("savepoint " + savepoint)
	p.Queue(stmtClassify, s.table.args(rows)...).Query(func(r pgx.Rows) error {
		var n int32
		var st state
		_, err := pgx.ForEachRow(r, []any{&n, &st.status, &st.same}, func() error {
			states[int(n)] = st
			return nil
		})
		return err
	})
	return states, s.send(ctx, &p)
}

// undo leaves the savepoint after an error of the application's table; all
// of rest then waits.
func (s *Store) undo(ctx context.Context, rest []shown, cause error) ([]shown, error) {
	if fatal(cause, s.conn) {
		return nil, cause
	}
	s.complain(cause, len(rest))
	if _, err := s.conn.Exec(ctx, "rollback to savepoint "+savepoint); err != nil {
		return nil, fmt.Errorf("undoing the look at the rows: %w", err)
	}
	return rest, nil
}

// trouble is what the log has said about statuses that could not be shown.
type trouble struct {
	since      time.Time // zero while all is well
	said       time.Time
	suppressed int
}

// complain logs the first failure at once, then at most one every 30 s.
func (s *Store) complain(err error, rows int) {
	const lockNotAvailable = "55P03"
	s.blocked = sqlState(err) == lockNotAvailable
	now := time.Now()
	if s.trouble.since.IsZero() {
		s.trouble.since = now
	} else if now.Sub(s.trouble.said) < warnEvery {
		s.trouble.suppressed++
		return
	}
	s.cfg.Logger.Warn().Str("sqlstate", sqlState(err)).Int("rows", rows).Int("suppressed", s.trouble.suppressed).
		Msg("the outbox refuses its statuses; they are pending")
	s.trouble.said, s.trouble.suppressed = now, 0
}

// calm notes a try that worked, and says so after trouble.
func (s *Store) calm(w *show) {
	if w.err != nil || len(w.wanted) == 0 {
		return
	}
	s.blocked = false
	if !s.trouble.since.IsZero() {
		s.cfg.Logger.Info().Dur("after", time.Since(s.trouble.since)).Msg("the outbox takes its statuses again")
		s.trouble = trouble{}
	}
}
