package store

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// A row's xid is older than the transaction that puts its status here: the
// row was in the log before we could decode it. So an entry's xid column,
// which the server fills, tells when an absent row is truly gone: once every
// transaction older than it is over for our snapshot. Until then the row may
// be one that its writer cannot show yet, as behind a synchronous standby
// that does not answer.
const upsertPending = `insert into outbox_relay.pending_status (relay, row_hash, row_key, event_id, status, error_code, at)
	select $1, k.h, k.row_key, k.event_id, k.status, k.code, now()
	from unnest($2::bytea[], $3::text[], $4::text[], $5::int2[], $6::text[]) as k (h, row_key, event_id, status, code)
	on conflict (relay, row_hash) do update set event_id = excluded.event_id, status = excluded.status,
		error_code = excluded.error_code, at = excluded.at, xid = excluded.xid`

// pend lists statuses for later. A newer event of the same row key replaces
// an older one: its row is gone.
func (s *Store) pend(ctx context.Context, rest []shown) error {
	last := make(map[string]int, len(rest))
	for i, w := range rest {
		last[w.rowKey] = i
	}
	var hashes [][]byte
	var keys []string
	var ids, codes []*string
	var statuses []*int16
	for i, w := range rest {
		if last[w.rowKey] != i {
			continue
		}
		hash := sha256.Sum256([]byte(w.rowKey))
		hashes, keys = append(hashes, hash[:]), append(keys, w.rowKey)
		ids = append(ids, s.eventID(w.eventID))
		codes = append(codes, textOrNull(clean(w.code, s.encoding, codeBytes)))
		status := &w.status
		if w.status == statusDelete {
			status = nil
		}
		statuses = append(statuses, status)
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := s.conn.Exec(ctx, upsertPending, s.cfg.Relay, hashes, keys, ids, statuses, codes); err != nil {
		return fmt.Errorf("listing %d statuses as pending: %w", len(keys), err)
	}
	return nil
}

// eventID is null where the outbox has no such column, so that look-ups
// compare like with like.
func (s *Store) eventID(id string) *string {
	if s.table.EventID == "" {
		return nil
	}
	return textOrNull(id)
}

// pendingEntry is a row of pending_status under our lock.
type pendingEntry struct {
	shown
	hash   []byte
	proven bool // an absent row is gone
}

const selectPending = `select row_hash, row_key, coalesce(event_id, ''), coalesce(status, -1), coalesce(error_code, ''),
		pg_snapshot_xmin(pg_current_snapshot()) > xid
	from outbox_relay.pending_status where relay = $1 and row_hash > $2::bytea order by row_hash limit $3 for update skip locked`

// DrainPending shows up to limit of the statuses that wait, and returns how
// many entries are done with. It walks all entries in turn, so that one that
// stays locked does not hide the others: call it at intervals while it
// returns 0 too.
func (s *Store) DrainPending(ctx context.Context, limit int) (done int, err error) {
	err = s.exclusive(ctx, "draining pending statuses", func() error {
		if s.session == "" {
			return errNoTakeOver
		}
		if s.cfg.Mode == WriteOff || (s.cfg.Mode != WriteDelete && s.table.Status == "") {
			return nil
		}
		if err := s.prepare(ctx, stmtShowFree, stmtRemoveFree, stmtClassify, stmtPresent); err != nil {
			return err
		}
		done, err = s.drain(ctx, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return done, nil
}

func (s *Store) drain(ctx context.Context, limit int) (int, error) {
	entries, err := s.lockPending(ctx, limit)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	left, err := s.drainEntries(ctx, entries)
	if err != nil {
		return 0, err
	}
	finished := make([][]byte, 0, len(entries))
	for _, e := range entries {
		if _, ok := left[e.rowKey]; !ok {
			finished = append(finished, e.hash)
		}
	}
	_, err = s.conn.Exec(ctx, `delete from outbox_relay.pending_status where relay = $1 and row_hash = any($2::bytea[])`, s.cfg.Relay, finished)
	if err != nil {
		return 0, fmt.Errorf("removing %d entries: %w", len(finished), err)
	}
	if _, err := s.commit(ctx); err != nil {
		return 0, err
	}
	return len(finished), nil
}

// lockPending begins the transaction, proves the session and locks the next
// entries after the cursor; at the end it begins again at the first.
func (s *Store) lockPending(ctx context.Context, limit int) ([]pendingEntry, error) {
	var p pgx.Batch
	owned := false
	p.Queue("begin")
	p.Queue(`select from outbox_relay.position where relay = $1 and session = $2::text::uuid for key share`, s.cfg.Relay, s.session).
		Query(func(r pgx.Rows) error { owned = r.Next(); return nil })
	if err := s.send(ctx, &p); err != nil {
		return nil, err
	}
	if !owned {
		return nil, ErrFenced
	}
	entries, err := s.nextPending(ctx, limit)
	if err == nil && len(entries) == 0 && s.cursor != nil {
		s.cursor = nil
		entries, err = s.nextPending(ctx, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("locking entries: %w", err)
	}
	return entries, nil
}

func (s *Store) nextPending(ctx context.Context, limit int) ([]pendingEntry, error) {
	after := s.cursor
	if after == nil {
		after = []byte{}
	}
	rows, err := s.conn.Query(ctx, selectPending, s.cfg.Relay, after, limit)
	if err != nil {
		return nil, err
	}
	entries, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (e pendingEntry, err error) {
		err = r.Scan(&e.hash, &e.rowKey, &e.eventID, &e.status, &e.code, &e.proven)
		return e, err
	})
	if n := len(entries); err == nil && n > 0 {
		s.cursor = entries[n-1].hash
	}
	return entries, err
}

// drainEntries tries all entries at once and, when the outbox refuses one,
// each alone. It returns the keys of those that stay.
func (s *Store) drainEntries(ctx context.Context, entries []pendingEntry) (map[string]struct{}, error) {
	left := map[string]struct{}{}
	refused, err := s.drainTogether(ctx, entries, left)
	if err != nil || !refused || len(entries) == 1 {
		return left, err
	}
	clear(left)
	for i := range entries {
		if _, err := s.drainTogether(ctx, entries[i:i+1], left); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// drainTogether shows the entries' statuses in one try; refused says that the
// outbox raised an error and everything stays.
func (s *Store) drainTogether(ctx context.Context, entries []pendingEntry, left map[string]struct{}) (refused bool, err error) {
	var done Settled
	stay := func(w shown) { left[w.rowKey] = struct{}{} }
	absentIsGone := map[string]bool{}
	for status, from := range leavable {
		var wanted []shown
		for _, e := range entries {
			parts, ok := s.table.address(e.rowKey)
			if ok && e.status == status {
				e.parts = parts
				wanted = append(wanted, e.shown)
				absentIsGone[e.rowKey] = e.proven
			}
		}
		if len(wanted) == 0 {
			continue
		}
		rest, err := s.tryShow(ctx, wanted, from, &done)
		if err != nil {
			return false, err
		}
		refused = refused || rest.refused
		present, err := s.present(ctx, rest.unseen)
		if err != nil {
			return false, err
		}
		for i, w := range rest.unseen {
			if rest.refused || present[i] || !absentIsGone[w.rowKey] {
				stay(w)
			}
		}
	}
	return refused, nil
}

// leavable are the states that a drained status may leave: the stream has
// moved on, and the poller may have claimed the row since.
var leavable = map[int16][]int16{
	int16(outbox.StatusSent):   {0, 1, 3},
	int16(outbox.StatusFailed): {0, 1},
	statusDelete:               {0, 1, 3},
}

// tried is what a try to show left over.
type tried struct {
	unseen  []shown
	refused bool
}

func (s *Store) tryShow(ctx context.Context, wanted []shown, from []int16, done *Settled) (tried, error) {
	w := show{store: s, wanted: wanted, from: from}
	var p pgx.Batch
	w.queue(&p)
	if err := s.send(ctx, &p); err != nil && !w.failed(err) {
		return tried{}, err
	}
	rest, err := w.finish(ctx)
	if err != nil || w.err != nil || len(rest) == 0 {
		s.calm(&w)
		return tried{rest, w.err != nil}, err
	}
	rest, err = s.classify(ctx, rest, from, done)
	return tried{unseen: rest}, err
}

// present tells which rows a snapshot of now shows, locked or not.
func (s *Store) present(ctx context.Context, rest []shown) ([]bool, error) {
	found := make([]bool, len(rest))
	if len(rest) == 0 {
		return found, nil
	}
	set := s.table.newRowSet(len(rest))
	for _, w := range rest {
		set.add(w.parts, w.eventID)
	}
	rows, err := s.conn.Query(ctx, stmtPresent, s.table.args(set)...)
	if err != nil {
		return nil, fmt.Errorf("looking for rows: %w", err)
	}
	var n int32
	if _, err := pgx.ForEachRow(rows, []any{&n}, func() error { found[n-1] = true; return nil }); err != nil {
		return nil, fmt.Errorf("looking for rows: %w", err)
	}
	return found, nil
}
