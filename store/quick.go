package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Nearly every batch shows one status in rows that are all there, free and
// READY, in a session that owns the position row. Such a batch needs no
// savepoint, no answer a row, and one round trip with its COMMIT in it: what
// must hold is put so that the server raises an error where it does not, and
// after an error nothing more of a pipeline is executed (PostgreSQL
// documentation, "Pipeline Mode"). Then the long way takes the batch, and for a
// while every batch.

// fenced raises an error unless the position row is this session's. The text is
// for whoever reads the server's log.
const fenced = `with p as (` + updatePosition + ` returning 1)
	select case count(*) when 1 then 0 else ('outbox-relay: ' || count(*) || ' position rows are of this session')::int end from p`

// quickly says whether the batch may be tried the quick way.
func (s *Store) quickly(wanted []shown) bool {
	for _, w := range wanted {
		if w.status != wanted[0].status {
			return false
		}
	}
	return !s.blocked && time.Now().After(s.waitAgain)
}

// quick tries to write the batch in one round trip. done false without an
// error means that nothing was written and the long way must be gone.
func (s *Store) quick(ctx context.Context, b Batch, wanted []shown) (at outbox.LSN, done bool, err error) {
	var p pgx.Batch
	p.Queue("begin")
	p.Queue(fenced, s.progressArgs(b)...)
	if len(wanted) > 0 {
		p.Queue("select set_config('lock_timeout', $1, true)", milliseconds(shortLockTimeout))
		rows := s.table.newRowSet(len(wanted))
		for _, w := range wanted {
			rows.add(w.parts, w.eventID)
		}
		name, rest := stmtShowAll, []any{wanted[0].status, fromReady, len(wanted)}
		if wanted[0].status == statusDelete {
			name, rest = stmtRemoveAll, []any{fromReady, len(wanted)}
		}
		p.Queue(name, s.table.args(rows, rest...)...)
	}
	// What an application deferred fires here, so that a warning from now on
	// is the commit's own.
	p.Queue("set constraints all immediate").Exec(func(pgconn.CommandTag) error {
		s.committing, s.warned = true, false
		return nil
	})
	commit := s.queueCommit(&p)
	s.committing, s.warned = false, false
	err = s.send(ctx, &p)
	s.committing = false
	at, err = commit(err)
	if err == nil {
		s.calm(&show{wanted: wanted})
		return at, true, nil
	}
	if !refusedCommit(err) {
		return 0, false, err
	}
	s.abort(ctx)
	if s.conn.IsClosed() {
		return 0, false, fmt.Errorf("undoing a batch: %w", err)
	}
	s.waitAgain = time.Now().Add(aroundFor)
	return 0, false, nil
}
