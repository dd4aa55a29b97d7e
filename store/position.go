package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// PositionRow is the relay's row in outbox_relay.position.
type PositionRow struct {
	SystemID string
	Slot     string
	Session  string // nonce of the session that owns it
	Progress outbox.Progress
	// Reached is the highest commit position of any outcome ever written;
	// 0 when there was none.
	Reached    outbox.LSN
	StoppedAt  *time.Time // by policy; nil while the stream may run
	StoppedWhy string
	UpdatedAt  time.Time
}

// Takeover says who takes the slot, and what the stream found.
type Takeover struct {
	SystemID string
	// Timeline is the server's. It may be newer than the stored one; the
	// caller has checked the fork point.
	Timeline uint32
	Start    outbox.LSN // where a relay without a position row starts
}

// HeldKey is an event of an ordering key behind which later events wait.
type HeldKey struct {
	Topic, Key string
	// ID is the event's position as it was stored, with the timeline of
	// that time. An event that never came through the log has timeline 0
	// and its Seq as commit position.
	ID  outbox.Position
	Seq int64 // line_event.seq
}

// Owned is what a session finds when it has taken over.
type Owned struct {
	Progress outbox.Progress
	// Reached bounds what may have been settled before: a row of a
	// transaction that commits above it was never settled by any session.
	Reached outbox.LSN
	// InsertLSN is the end of the log at takeover.
	InsertLSN outbox.LSN
	Held      []HeldKey
	// Waiting holds the events at or beyond Progress that are in lines,
	// by their stored positions.
	Waiting    map[outbox.Position]struct{}
	LineEvents int64
	LineBytes  int64
	StoppedAt  *time.Time
}

const selectPosition = `select system_identifier, slot, session::text, timeline, lsn::text, coalesce(next_commit, '0/0')::text, next_index,
	coalesce(reached, '0/0')::text, stopped_at, coalesce(stopped_why, ''), updated_at from outbox_relay.position where relay = $1`

func scanPosition(row pgx.Row) (PositionRow, error) {
	var p PositionRow
	var timeline int32
	var lsn, next, reached string
	err := row.Scan(&p.SystemID, &p.Slot, &p.Session, &timeline, &lsn, &next, &p.Progress.NextIndex, &reached,
		&p.StoppedAt, &p.StoppedWhy, &p.UpdatedAt)
	if err != nil {
		return p, err
	}
	p.Progress.Timeline = uint32(timeline)
	var errs [3]error
	p.Progress.LSN, errs[0] = outbox.ParseLSN(lsn)
	p.Progress.NextCommit, errs[1] = outbox.ParseLSN(next)
	p.Reached, errs[2] = outbox.ParseLSN(reached)
	return p, errors.Join(errs[:]...)
}

// Position reads the position row without taking it over; false when the
// relay has none yet.
func (s *Store) Position(ctx context.Context) (p PositionRow, found bool, err error) {
	err = s.exclusive(ctx, "reading the position row", func() error {
		p, err = scanPosition(s.conn.QueryRow(ctx, selectPosition, s.cfg.Relay))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = err == nil
		return err
	})
	return p, found, err
}

// TakeOver makes this Store the only session that can write for the relay,
// and reads what the session starts from. Call it after the slot is held.
// It first commits a new nonce, which waits for the old session's last
// transaction and fences every later one, and only then reads: nothing that
// it read can change but by its own writes. A row that belongs to another
// cluster, slot or a later timeline gives a *MismatchError.
func (s *Store) TakeOver(ctx context.Context, t Takeover) (owned Owned, err error) {
	err = s.exclusive(ctx, "taking over the position row", func() error {
		nonce := uuid.NewString()
		if err := s.writeNonce(ctx, t, nonce); err != nil {
			return err
		}
		s.session, s.timeline, s.cursor = nonce, t.Timeline, nil
		owned, err = s.readOwned(ctx)
		return err
	})
	return owned, err
}

// writeNonce is the first transaction of a takeover.
func (s *Store) writeNonce(ctx context.Context, t Takeover, nonce string) error {
	if _, err := s.conn.Exec(ctx, "begin"); err != nil {
		return err
	}
	// A first start; two of them at once meet at the primary key.
	_, err := s.conn.Exec(ctx, `insert into outbox_relay.position (relay, slot, system_identifier, timeline, lsn, session, updated_at)
		values ($1, $2, $3, $4, $5::text::pg_lsn, $6::text::uuid, now()) on conflict (relay) do nothing`,
		s.cfg.Relay, s.cfg.Slot, t.SystemID, int64(t.Timeline), t.Start.String(), nonce)
	if err != nil {
		return fmt.Errorf("making the row: %w", err)
	}
	row, err := scanPosition(s.conn.QueryRow(ctx, selectPosition+` for update`, s.cfg.Relay))
	if err != nil {
		return fmt.Errorf("locking the row: %w", err)
	}
	if err := s.matches(row, t); err != nil {
		return err
	}
	// What was settled inside a transaction belongs to the timeline that
	// wrote it: after a failover another transaction may stand at that LSN.
	_, err = s.conn.Exec(ctx, `update outbox_relay.position set session = $2::text::uuid, timeline = $3, updated_at = now(),
		next_commit = case when timeline = $3 then next_commit end, next_index = case when timeline = $3 then next_index else 0 end where relay = $1`,
		s.cfg.Relay, nonce, int64(t.Timeline))
	if err != nil {
		return fmt.Errorf("writing the nonce: %w", err)
	}
	_, err = s.commit(ctx)
	return err
}

// matches says whether the stored row is of the same history.
func (s *Store) matches(row PositionRow, t Takeover) error {
	timeline := strconv.FormatUint(uint64(row.Progress.Timeline), 10)
	switch {
	case row.SystemID != t.SystemID:
		return &MismatchError{s.cfg.Relay, "system identifier", row.SystemID, t.SystemID}
	case row.Slot != s.cfg.Slot:
		return &MismatchError{s.cfg.Relay, "slot", strconv.Quote(row.Slot), strconv.Quote(s.cfg.Slot)}
	case row.Progress.Timeline > t.Timeline:
		return &MismatchError{s.cfg.Relay, "timeline", timeline, strconv.FormatUint(uint64(t.Timeline), 10)}
	}
	return nil
}

// readOwned is the second transaction of a takeover.
func (s *Store) readOwned(ctx context.Context) (o Owned, err error) {
	if _, err := s.conn.Exec(ctx, "begin"); err != nil {
		return o, err
	}
	row, err := scanPosition(s.conn.QueryRow(ctx, selectPosition+` and session = $2::text::uuid for key share`, s.cfg.Relay, s.session))
	if errors.Is(err, pgx.ErrNoRows) {
		return o, ErrFenced
	}
	if err != nil {
		return o, fmt.Errorf("reading the row: %w", err)
	}
	o.Progress, o.Reached, o.StoppedAt = row.Progress, row.Reached, row.StoppedAt
	var insert string
	if err := s.conn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&insert); err != nil {
		return o, fmt.Errorf("reading the end of the log: %w", err)
	}
	if o.InsertLSN, err = outbox.ParseLSN(insert); err != nil {
		return o, err
	}
	if err := s.readLines(ctx, &o); err != nil {
		return o, err
	}
	_, err = s.conn.Exec(ctx, "commit")
	return o, err
}

// readLines reads the held set and the events that wait beyond the progress.
func (s *Store) readLines(ctx context.Context, o *Owned) error {
	o.Waiting = map[outbox.Position]struct{}{}
	rows, err := s.conn.Query(ctx, `select l.holds, e.reason not in ('orphan', 'replay') and e.commit_lsn >= $2::text::pg_lsn,
			l.topic, coalesce(l.order_key, ''), e.seq, coalesce(e.timeline, 0), coalesce(e.commit_lsn, '0/0')::text, coalesce(e.commit_index, 0)
		from outbox_relay.line l join outbox_relay.line_event e on e.line_id = l.id
		where l.relay = $1 and (l.holds or e.commit_lsn >= $2::text::pg_lsn)
		order by e.commit_lsn, e.commit_index, e.seq`, s.cfg.Relay, o.Progress.LSN.String())
	if err != nil {
		return fmt.Errorf("reading the lines: %w", err)
	}
	var holds bool
	var waits *bool // null where the event has no position
	var h HeldKey
	var key []byte
	var timeline int32
	var commit string
	_, err = pgx.ForEachRow(rows, []any{&holds, &waits, &h.Topic, &key, &h.Seq, &timeline, &commit, &h.ID.Index}, func() (err error) {
		h.ID.Timeline, h.Key = uint32(timeline), string(key)
		if h.ID.Commit, err = outbox.ParseLSN(commit); err != nil {
			return err
		}
		if waits != nil && *waits {
			o.Waiting[h.ID] = struct{}{}
		}
		if h.ID == (outbox.Position{}) {
			h.ID.Commit = outbox.LSN(h.Seq)
		}
		if holds {
			o.Held = append(o.Held, h)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the lines: %w", err)
	}
	return s.conn.QueryRow(ctx, `select count(*), coalesce(sum(octet_length(record) + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)), 0)::int8
		from outbox_relay.line_event where relay = $1`, s.cfg.Relay).Scan(&o.LineEvents, &o.LineBytes)
}
