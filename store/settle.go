package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Batch is what one transaction settles. It may hold no outcome (an idle
// mark). The caller bounds it: 500 outcomes, 16 MiB or one event.
type Batch struct {
	// Progress holds once the batch commits. A smaller one than is stored
	// leaves the stored one.
	Progress outbox.Progress
	Outcomes []outbox.Outcome // Settle sorts them by ticket, in place
	// Stop, where it is not "", stops the line in the same commit, with
	// this reason; the first stop is kept.
	Stop string
}

// Settled counts what became of a batch's outcomes.
type Settled struct {
	Shown     int // rows that show their status
	Pending   int // statuses that wait in pending_status
	Overtaken int // rows that somebody had moved on, mostly a consumer
	Gone      int // rows that are another event's by now, or that no key names
	Lined     int // events that entered a line
	// LSN is at or above the end of the batch's commit; 0 when unknown.
	LSN outbox.LSN
}

// The states that a stream's outcome may leave, and what it shows.
var fromReady = []int16{int16(outbox.StatusReady)}

const statusDelete int16 = -1 // stored as null

// shown is a status on its way to a row.
type shown struct {
	rowKey  string
	eventID string
	parts   []string // of rowKey
	status  int16
	code    string
}

// Settle writes a batch: one transaction, or nothing. After ErrFenced the
// session is over; after ErrCommitUnknown it must be ended, since the batch
// may stand or not. Any other error wrote nothing, and the same batch may be
// tried again while Usable; settling an event twice changes nothing.
func (s *Store) Settle(ctx context.Context, b Batch) (done Settled, err error) {
	what := fmt.Sprintf("settling %d outcomes", len(b.Outcomes))
	err = s.exclusive(ctx, what, func() error {
		if s.session == "" {
			return errNoTakeOver
		}
		if b.Progress.Timeline != s.timeline {
			return fmt.Errorf("progress of timeline %d in a session of timeline %d", b.Progress.Timeline, s.timeline)
		}
		done, err = s.settle(ctx, b)
		return err
	})
	if err != nil {
		return Settled{}, err
	}
	return done, nil
}

func (s *Store) settle(ctx context.Context, b Batch) (done Settled, err error) {
	// In the order of the log, whatever order they were decided in.
	slices.SortStableFunc(b.Outcomes, func(x, y outbox.Outcome) int { return cmp.Compare(x.Ticket, y.Ticket) })
	lined, wanted, err := s.sort(b.Outcomes, &done)
	if err != nil {
		return done, err
	}
	unready := s.prepare(ctx, stmtShowAll, stmtShowFree, stmtRemoveAll, stmtRemoveFree, stmtClassify)
	if fatal(unready, s.conn) {
		return done, unready
	}
	if unready == nil && len(lined) == 0 && s.quickly(wanted) {
		at, written, err := s.quick(ctx, b, wanted)
		if written {
			done.Shown, done.LSN = len(wanted), at
		}
		if written || err != nil {
			return done, err
		}
	}
	first := show{store: s, wanted: wanted, from: fromReady, err: unready}
	var p pgx.Batch
	owned := s.queueProgress(&p, b)
	if len(lined) == 0 {
		first.queue(&p)
	}
	if err := s.send(ctx, &p); err != nil && !first.failed(err) {
		return done, err
	}
	if !*owned {
		return done, ErrFenced
	}
	if len(lined) > 0 {
		if done.Lined, err = s.enqueue(ctx, lined); err != nil {
			return done, err
		}
		var p pgx.Batch
		first.queue(&p)
		if err := s.send(ctx, &p); err != nil && !first.failed(err) {
			return done, err
		}
	}
	if err := s.finishShow(ctx, &first, &done); err != nil {
		return done, err
	}
	done.LSN, err = s.commit(ctx)
	return done, err
}

// sort splits the outcomes into those that enter a line and the statuses to
// show, and counts those whose row no key names.
func (s *Store) sort(outcomes []outbox.Outcome, done *Settled) (lined []outbox.Outcome, wanted []shown, err error) {
	for _, o := range outcomes {
		status, code := int16(outbox.StatusFailed), ""
		switch o.Verdict {
		case outbox.Acked:
			status = int16(outbox.StatusSent)
			if s.cfg.Mode == WriteDelete {
				status = statusDelete
			}
		case outbox.Refused, outbox.Diverted, outbox.Scheduled:
			if o.Record == nil {
				return nil, nil, fmt.Errorf("outcome %d is %s and has no record", o.Ticket, o.Verdict)
			}
			code = o.Refusal.Code
			lined = append(lined, o)
		default:
			return nil, nil, fmt.Errorf("outcome %d has the verdict %d, which means nothing", o.Ticket, o.Verdict)
		}
		if !s.writes(status) {
			continue
		}
		parts, ok := s.table.address(o.Event.RowKey)
		if !ok {
			done.Gone++
			continue
		}
		wanted = append(wanted, shown{o.Event.RowKey, o.Event.ID, parts, status, code})
	}
	return lined, wanted, nil
}

// writes says whether the outbox can show this status at all.
func (s *Store) writes(status int16) bool {
	return s.cfg.Mode != WriteOff && (status == statusDelete || s.table.Status != "")
}

const updatePosition = `update outbox_relay.position p set
	lsn = case when ` + ahead + ` then $3::text::pg_lsn else p.lsn end,
	next_commit = case when ` + ahead + ` then nullif($4::text::pg_lsn, '0/0') else p.next_commit end,
	next_index = case when ` + ahead + ` then $5::int4 else p.next_index end,
	reached = greatest(p.reached, nullif($6::text::pg_lsn, '0/0')),
	stopped_why = case when $7::text <> '' and p.stopped_at is null then $7 else p.stopped_why end,
	stopped_at = case when $7::text <> '' and p.stopped_at is null then now() else p.stopped_at end,
	updated_at = now()
	where p.relay = $1 and p.session = $2::text::uuid`

// ahead is outbox.Progress.Before in SQL.
const ahead = `(p.lsn, coalesce(p.next_commit, '0/0'), p.next_index) < ($3::text::pg_lsn, $4::text::pg_lsn, $5::int4)`

// queueProgress begins the transaction and writes the position row, which is
// the fence: the result says whether the row is still this session's.
func (s *Store) queueProgress(p *pgx.Batch, b Batch) (owned *bool) {
	owned = new(bool)
	p.Queue("begin")
	p.Queue(updatePosition, s.progressArgs(b)...).Exec(func(tag pgconn.CommandTag) error {
		*owned = tag.RowsAffected() == 1
		return nil
	})
	return owned
}

func (s *Store) progressArgs(b Batch) []any {
	var reached outbox.LSN
	for i := range b.Outcomes {
		reached = max(reached, b.Outcomes[i].Event.Position.Commit)
	}
	return []any{s.cfg.Relay, s.session, b.Progress.LSN.String(), b.Progress.NextCommit.String(), b.Progress.NextIndex,
		reached.String(), clean(b.Stop, s.encoding, detailBytes)}
}

// finishShow gives every status that is not shown yet its place: another try
// with a fresh snapshot, a count, or pending_status.
func (s *Store) finishShow(ctx context.Context, first *show, done *Settled) error {
	rest, err := first.finish(ctx)
	if err != nil {
		return err
	}
	done.Shown = len(first.wanted) - len(rest)
	if len(rest) == 0 {
		s.calm(first)
		return nil
	}
	if first.err == nil {
		if rest, err = s.classify(ctx, rest, fromReady, done); err != nil {
			return err
		}
	}
	done.Pending = len(rest)
	return s.pend(ctx, rest)
}

// prepare makes the named statements known to the server, outside of any
// transaction. What fails here is the application's table: to analyse an
// UPDATE the server locks its target as the UPDATE would.
func (s *Store) prepare(ctx context.Context, names ...string) error {
	names = slices.DeleteFunc(names, func(n string) bool {
		_, known := s.prepared[n]
		return known || s.sql[n] == ""
	})
	if len(names) == 0 || s.cfg.Mode == WriteOff {
		return nil
	}
	if s.blocked {
		if err := s.setLockTimeout(ctx, shortLockTimeout); err != nil {
			return err
		}
		defer func() { _ = s.setLockTimeout(ctx, s.cfg.LockTimeout) }() // fails with the connection only
	}
	for _, n := range names {
		if _, err := s.conn.Prepare(ctx, n, s.sql[n]); err != nil {
			return fmt.Errorf("preparing %s: %w", n, err)
		}
		s.prepared[n] = struct{}{}
	}
	return nil
}

func (s *Store) setLockTimeout(ctx context.Context, d time.Duration) error {
	_, err := s.conn.Exec(ctx, "set lock_timeout = "+milliseconds(d))
	return err
}

// fatal says that an error is not the application's table's: the connection
// is gone, the server leaves, or the statement never reached it.
func fatal(err error, conn *pgx.Conn) bool {
	if err == nil {
		return false
	}
	var pg *pgconn.PgError
	return conn.IsClosed() || !errors.As(err, &pg) || errors.Is(judge(err), ErrServerStopping) || errors.Is(judge(err), ErrReadOnly)
}
