package store

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

const lookupPending = `select k.n::int4 from unnest($2::bytea[], $3::text[]) with ordinality as k (h, eid, n)
	join outbox_relay.pending_status p on p.relay = $1 and p.row_hash = k.h and p.event_id is not distinct from k.eid
	where coalesce(p.status, 2) = 2`

// Lookup tells which of the events are published already, so that a replay
// may skip them: their row, with the same event id where the outbox has one,
// says SENT, CONSUMED or CONSUMING, or its SENT (or its removal) waits in
// pending_status. A row that is absent or not visible is not skipped: it may
// have been inserted and deleted in one transaction. Without a status column
// nothing is known and nothing is skipped.
func (s *Store) Lookup(ctx context.Context, events []*outbox.Event) ([]bool, error) {
	skip := make([]bool, len(events))
	if len(events) == 0 {
		return skip, nil
	}
	what := fmt.Sprintf("looking up %d events", len(events))
	err := s.exclusive(ctx, what, func() error { return s.lookup(ctx, events, skip) })
	if err != nil {
		return nil, err
	}
	return skip, nil
}

func (s *Store) lookup(ctx context.Context, events []*outbox.Event, skip []bool) error {
	var p pgx.Batch
	mark := func(places []int) func(pgx.Rows) error {
		return func(r pgx.Rows) error {
			var n int32
			_, err := pgx.ForEachRow(r, []any{&n}, func() error { skip[places[n-1]] = true; return nil })
			return err
		}
	}
	set, places := s.table.newRowSet(len(events)), make([]int, 0, len(events))
	hashes, ids, everyPlace := make([][]byte, len(events)), make([]*string, len(events)), make([]int, len(events))
	for i, e := range events {
		if parts, ok := s.table.address(e.RowKey); ok {
			set.add(parts, e.ID)
			places = append(places, i)
		}
		hash := sha256.Sum256([]byte(e.RowKey))
		hashes[i], ids[i], everyPlace[i] = hash[:], s.eventID(e.ID), i
	}
	if sql := s.sql[stmtLookup]; sql != "" && set.n > 0 {
		p.Queue(sql, s.table.args(set)...).Query(mark(places))
	}
	p.Queue(lookupPending, s.cfg.Relay, hashes, ids).Query(mark(everyPlace))
	return s.send(ctx, &p)
}
