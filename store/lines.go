package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// How often the line of a key is made again because its last owner deleted
// it between our look and our lock. Each round needs such a deletion.
const lineTries = 5

// OrderHash names an ordering key in the line table. A topic holds no NUL,
// so one between topic and key keeps two pairs apart.
func OrderHash(topic string, key []byte) []byte {
	h := sha256.New()
	h.Write([]byte(topic))
	h.Write([]byte{0})
	h.Write(key)
	return h.Sum(nil)
}

// entry is an event on its way into a line.
type entry struct {
	event   *outbox.Event
	topic   string
	key     []byte // of the order; nil: none
	hash    []byte
	holds   bool
	reason  string
	next    *time.Time // when its line is due; nil: parked, or at once for a follower
	refused outbox.Refusal

	record, wireKey, value []byte
}

func newEntry(o outbox.Outcome) entry {
	e := entry{event: o.Event, topic: o.Record.Topic, reason: "refused", refused: o.Refusal,
		wireKey: o.Record.Key, value: o.Record.Value, record: o.Record.MarshalEnvelope(o.Event, o.Event.Defect != "")}
	if key, ok := o.Event.Key(); ok {
		e.key = []byte(key)
		if e.wireKey == nil {
			e.wireKey = e.key
		}
	}
	switch o.Verdict {
	case outbox.Diverted:
		e.reason = "behind"
	case outbox.Scheduled:
		e.reason = "scheduled"
		e.next = &o.Event.DeliverAfter
	}
	// Without a key there is no order to keep, and a scheduled event keeps
	// none either.
	e.holds = o.Holds && e.key != nil && o.Verdict != outbox.Scheduled
	if !e.holds {
		e.key = nil
	}
	e.hash = OrderHash(e.topic, e.wireKey)
	return e
}

// enqueue puts the events into their lines, in commit order, and returns how
// many were not there yet. It runs after the position row was written, whose
// lock makes it the only one to add events of the stream.
func (s *Store) enqueue(ctx context.Context, outcomes []outbox.Outcome) (int, error) {
	entries := make([]entry, 0, len(outcomes))
	for _, o := range outcomes {
		entries = append(entries, newEntry(o))
	}
	entries, err := s.dropKnown(ctx, entries)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	lines, err := s.lockLines(ctx, entries)
	if err != nil {
		return 0, err
	}
	return len(entries), s.insertEvents(ctx, entries, lines)
}

// dropKnown leaves out what an earlier session has put into a line already.
func (s *Store) dropKnown(ctx context.Context, entries []entry) ([]entry, error) {
	timelines, commits, indexes := make([]int64, len(entries)), make([]string, len(entries)), make([]int64, len(entries))
	for i, e := range entries {
		timelines[i], commits[i], indexes[i] = int64(e.event.Position.Timeline), e.event.Position.Commit.String(), int64(e.event.Position.Index)
	}
	rows, err := s.conn.Query(ctx, `select k.n::int4 from unnest($2::int8[], $3::text[], $4::int8[]) with ordinality k (tl, lsn, idx, n)
		join outbox_relay.line_event e on e.relay = $1 and e.timeline = k.tl and e.commit_lsn = k.lsn::pg_lsn and e.commit_index = k.idx
		where e.reason not in ('orphan', 'replay')`, s.cfg.Relay, timelines, commits, indexes)
	if err != nil {
		return nil, fmt.Errorf("looking for events in lines: %w", err)
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("looking for events in lines: %w", err)
	}
	fresh := entries[:0]
	for i, e := range entries {
		if !slices.Contains(known, int32(i+1)) {
			fresh = append(fresh, e)
		}
	}
	return fresh, nil
}

const insertHeldLine = `insert into outbox_relay.line (relay, topic, order_key, order_hash, holds, next_attempt_at, parked_at,
		error_class, error_code, error_detail, since)
	values ($1, $2, $3, $4, true, case when $5::text is null then now() end, case when $5::text is not null then now() end, $5, $6, $7, now())
	on conflict (relay, order_hash) where holds do nothing`

const lockHeldLines = `select id, order_hash from outbox_relay.line where relay = $1 and holds and order_hash = any($2::bytea[])
	order by order_hash for update`

// lockLines makes the missing lines of the keys that hold, and locks all of
// them, in the order of their hashes and in a statement of its own. A line
// that is there keeps its schedule; a new one is parked when its head was
// refused, and due at once when it begins with a follower.
func (s *Store) lockLines(ctx context.Context, entries []entry) (map[string]int64, error) {
	heads := map[string]entry{}
	for _, e := range entries {
		if _, ok := heads[string(e.hash)]; e.holds && !ok {
			heads[string(e.hash)] = e
		}
	}
	if len(heads) == 0 {
		return nil, nil
	}
	hashes := slices.Collect(maps.Keys(heads))
	slices.Sort(hashes)
	for range lineTries {
		lines, err := s.makeAndLock(ctx, heads, hashes)
		if err != nil || len(lines) == len(heads) {
			return lines, err
		}
	}
	return nil, fmt.Errorf("locking %d lines: they were deleted %d times meanwhile", len(heads), lineTries)
}

func (s *Store) makeAndLock(ctx context.Context, heads map[string]entry, hashes []string) (map[string]int64, error) {
	lines := make(map[string]int64, len(heads))
	keys := make([][]byte, 0, len(hashes))
	var p pgx.Batch
	for _, h := range hashes {
		e := heads[h]
		class, code, detail := s.errorTexts(e)
		p.Queue(insertHeldLine, s.cfg.Relay, s.topicText(e), e.key, e.hash, class, code, detail)
		keys = append(keys, e.hash)
	}
	p.Queue(lockHeldLines, s.cfg.Relay, keys).Query(func(r pgx.Rows) error {
		var id int64
		var hash []byte
		_, err := pgx.ForEachRow(r, []any{&id, &hash}, func() error { lines[string(hash)] = id; return nil })
		return err
	})
	if err := s.send(ctx, &p); err != nil {
		return nil, fmt.Errorf("locking %d lines: %w", len(heads), err)
	}
	return lines, nil
}

// errorTexts gives what the head's line says; nil where the event was not
// refused itself.
func (s *Store) errorTexts(e entry) (class, code, detail *string) {
	if e.reason != "refused" {
		return nil, nil, nil
	}
	text := func(v string, limit int) *string { return textOrNull(clean(v, s.encoding, limit)) }
	c := clean(string(e.refused.Class), s.encoding, codeBytes)
	return &c, text(e.refused.Code, codeBytes), text(e.refused.Detail, detailBytes)
}

// topicText is for people and for the held set; an impossible name is whole
// in the record only.
func (s *Store) topicText(e entry) string { return clean(e.topic, s.encoding, detailBytes) }

const eventColumns = `(line_id, relay, timeline, commit_lsn, commit_index, row_key, event_id, reason, record, key, value, added_at, first_failed_at, last_attempt_at)`

const eventValues = `$1::text, $2::int8::int4, $3::text::pg_lsn, $4::int4, $5::text, $6::text::uuid, $7::text, $8::bytea, $9::bytea, $10::bytea, now(),
	case when $7 = 'refused' then now() end, case when $7 = 'refused' then now() end`

const onKnown = ` on conflict (relay, timeline, commit_lsn, commit_index) where reason not in ('orphan', 'replay') do nothing`

const insertHeldEvent = `insert into outbox_relay.line_event ` + eventColumns + ` values ($11::int8, ` + eventValues + `)` + onKnown

// insertSingleEvent makes the event's own line with it.
const insertSingleEvent = `with l as (
		insert into outbox_relay.line (relay, topic, order_hash, holds, next_attempt_at, parked_at, error_class, error_code, error_detail, since)
		values ($1, $11::text, $12::bytea, false, $13::timestamptz, case when $13::timestamptz is null then now() end, $14::text, $15::text, $16::text, now())
		returning id)
	insert into outbox_relay.line_event ` + eventColumns + ` select l.id, ` + eventValues + ` from l` + onKnown

func (s *Store) queueEvent(p *pgx.Batch, e entry, lines map[string]int64) {
	pos := e.event.Position
	args := []any{s.cfg.Relay, int64(pos.Timeline), pos.Commit.String(), pos.Index, e.event.RowKey, uuidOrNull(e.event.ID), e.reason, e.record, e.wireKey, e.value}
	if e.holds {
		p.Queue(insertHeldEvent, append(args, lines[string(e.hash)])...)
		return
	}
	class, code, detail := s.errorTexts(e)
	p.Queue(insertSingleEvent, append(args, s.topicText(e), e.hash, e.next, class, code, detail)...)
}

// uuidOrNull keeps an event id of another type out of the uuid column; its
// text is in the record's headers.
func uuidOrNull(id string) *string {
	u, err := uuid.Parse(id)
	if err != nil {
		return nil
	}
	text := u.String()
	return &text
}

// insertEvents writes all events in one round trip. When a value of one of
// them is refused, each is written alone, and the refused one as a stub: it
// must neither stop the others nor be lost.
func (s *Store) insertEvents(ctx context.Context, entries []entry, lines map[string]int64) error {
	const all, one = "events", "event"
	err := s.insertInside(ctx, all, entries, lines)
	if err == nil || s.notOfData(err) {
		return err
	}
	for _, e := range entries {
		single := []entry{e}
		err := s.insertInside(ctx, one, single, lines)
		if err != nil && !s.notOfData(err) {
			s.cfg.Logger.Error().Str("sqlstate", sqlState(err)).Stringer("position", e.event.Position).
				Msg("an event cannot be stored whole; its line holds a stub that is never published")
			single[0] = stub(e, err)
			err = s.insertInside(ctx, one, single, lines)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insertInside writes events inside a savepoint and leaves it on an error.
func (s *Store) insertInside(ctx context.Context, name string, entries []entry, lines map[string]int64) error {
	var p pgx.Batch
	p.Queue("savepoint " + name)
	for _, e := range entries {
		s.queueEvent(&p, e, lines)
	}
	p.Queue("release savepoint " + name)
	err := s.send(ctx, &p)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("adding %d events to lines: %w", len(entries), err)
	if s.notOfData(err) {
		return err
	}
	if _, undo := s.conn.Exec(ctx, "rollback to savepoint "+name); undo != nil {
		return errors.Join(err, undo)
	}
	return err
}

// notOfData says that another value would not have helped.
func (s *Store) notOfData(err error) bool {
	return s.conn.IsClosed() || !ofData(sqlState(err))
}

// stubRecord is what stands in line_event.record for an event that could not
// be stored. Its version is one that outbox.UnmarshalEnvelope refuses, so
// that no reader can take the missing value for a tombstone.
type stubRecord struct {
	Version    int    `json:"version"`
	Unstorable string `json:"unstorable"` // SQLSTATE
	Topic      string `json:"topic"`
	Position   string `json:"position"`
}

func stub(e entry, cause error) entry {
	record, err := json.Marshal(stubRecord{Unstorable: sqlState(cause), Topic: e.topic, Position: e.event.Position.String()})
	if err != nil {
		panic(fmt.Sprintf("store: encoding a stub of plain fields: %v", err))
	}
	e.record, e.value, e.reason, e.next = record, nil, "refused", nil
	e.wireKey = bytes.Clone(e.key)
	e.refused = outbox.Refusal{Class: outbox.ClassInvalid, Code: "unstorable",
		Detail: "the event could not be stored whole (SQLSTATE " + sqlState(cause) + "); its row, if it still exists, has the payload"}
	return e
}

// Unstorable says whether a stored record is the stub of an event that could
// not be stored, and why (an SQLSTATE). Such an event is never published.
func Unstorable(record []byte) (why string, ok bool) {
	var r stubRecord
	if json.Unmarshal(record, &r) != nil || r.Version != 0 || r.Unstorable == "" {
		return "", false
	}
	return r.Unstorable, true
}
