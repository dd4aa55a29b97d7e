package store_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
)

// keyed gives events that all have one ordering key.
func keyed(key string, events ...*outbox.Event) []*outbox.Event {
	for _, e := range events {
		e.AggregateID = key
	}
	return events
}

// Law: a refused event and those behind it form one parked line, whole and in
// commit order whatever order they were reported in; the line tells why.
func TestRefusedAndFollowersFormOneLine(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := keyed("k", s.insert(5, 200)...)
	first, second, third := s.refused(e[0], "12 bytes, allowed 10"), s.diverted(e[1]), s.diverted(e[2])
	s.counts(s.settle(st, 150, third, first, second), store.Settled{Shown: 3, Lined: 3})
	s.counts(s.settle(st, 160, s.diverted(e[3])), store.Settled{Shown: 1, Lined: 1})
	s.want("1", `select count(*) from outbox_relay.line where holds and parked_at is not null and next_attempt_at is null and order_key = 'k'
		and error_class = 'too_large' and error_code = 'MESSAGE_TOO_LARGE' and error_detail = '12 bytes, allowed 10' and topic = 'orders' and attempts = 0`)
	s.want("refused0 behind1 behind2 behind3", `select string_agg(reason || commit_index, ' ' order by seq) from outbox_relay.line_event`)
	s.want("t", `select bool_and((first_failed_at is not null) = (reason = 'refused')) from outbox_relay.line_event`)
	s.want(hex.EncodeToString(store.OrderHash("orders", []byte("k"))), `select encode(order_hash, 'hex') from outbox_relay.line`)
	var key, value, stored []byte
	err := s.db.Conn(t).QueryRow(t.Context(), `select key, value, record from outbox_relay.line_event order by seq limit 1`).Scan(&key, &value, &stored)
	if err != nil {
		t.Fatal(err)
	}
	r, err := outbox.UnmarshalEnvelope(stored)
	if err != nil || r.Topic != "orders" || string(key) != "k" || string(value) != "value" || string(r.Headers[0].Value) != e[0].ID {
		t.Errorf("stored %q %q %+v, %v", key, value, r, err)
	}
}

// Law: an event that a replay brings again is already in its line: nothing is
// added, and no empty line is made for it.
func TestReplayedLineEventsChangeNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(4, 200)
	keyed("k", e[:2]...)
	single := s.refused(e[2], "x")
	single.Holds = false
	scheduled := s.diverted(e[3])
	scheduled.Verdict, scheduled.Holds, scheduled.Event.DeliverAfter = outbox.Scheduled, false, time.Now().Add(time.Hour)
	batch := []outbox.Outcome{s.refused(e[0], "x"), s.diverted(e[1]), single, scheduled}
	s.counts(s.settle(st, 300, batch...), store.Settled{Shown: 4, Lined: 4})
	before := s.db.Query1(t, lineState)
	st = s.session()
	s.counts(s.settle(st, 300, batch...), store.Settled{Overtaken: 4})
	s.want(before, lineState)
	s.want("3 4", `select (select count(*) from outbox_relay.line) || ' ' || (select count(*) from outbox_relay.line_event)`)
}

const lineState = `select (select string_agg(l::text, ',' order by id) from outbox_relay.line l) || (select string_agg(e::text, ',' order by seq) from outbox_relay.line_event e)`

// Law: what keeps no order gets a line of its own: a refusal that does not
// hold is parked, a scheduled event is due at its deliver_after, an event without a
// key never holds.
func TestSingleLines(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := keyed("k", s.insert(4, 200)...)
	due := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	a, b := s.refused(e[0], "x"), s.refused(e[1], "y")
	a.Holds, b.Holds = false, false
	later := s.diverted(e[2])
	later.Verdict, later.Event.DeliverAfter = outbox.Scheduled, due
	e[3].HasAggregate = false
	keyless := s.refused(e[3], "z")
	keyless.Record.Key = nil
	s.counts(s.settle(st, 300, a, b, later, keyless), store.Settled{Shown: 4, Lined: 4})
	s.want("4", `select count(*) from outbox_relay.line where not holds and order_key is null`)
	s.want("3", `select count(*) from outbox_relay.line where parked_at is not null and error_class = 'too_large'`)
	s.want("1", `select count(*) from outbox_relay.line where next_attempt_at = '2100-01-01 00:00:00+00' and error_class is null`)
	s.want("1", `select count(*) from outbox_relay.line_event where key is null and commit_index = 3`)
	if owned := s.takeOver(st); len(owned.Held) != 0 {
		t.Errorf("held %v, want none", owned.Held)
	}
}

// Law: a follower whose line was emptied meanwhile begins a new line that is
// due at once, and a line that is there keeps its schedule.
func TestFollowerWithoutLineIsDueAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := keyed("k", s.insert(2, 200)...)
	s.settle(st, 300, s.diverted(e[0]))
	s.want("1", `select count(*) from outbox_relay.line where holds and parked_at is null and next_attempt_at <= now() and error_class is null`)
	s.db.Exec(t, `update outbox_relay.line set next_attempt_at = null, locked_until = '2100-01-01', claim_generation = 3`)
	s.settle(st, 300, s.diverted(e[1]))
	s.want("2100-01-01 00:00:00+00 3", `select locked_until at time zone 'UTC' || '+00 ' || claim_generation from outbox_relay.line`)
	s.want("2", `select count(*) from outbox_relay.line_event e join outbox_relay.line l on l.id = e.line_id`)
}

// Law: no event is lost between a settler that adds to a line and an owner
// that empties and deletes it at the same time.
func TestAddingRacesWithDeletingLines(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lockTimeout = 30 * time.Second
	st := s.session()
	const batches, size = 60, 5
	e := keyed("k", s.insert(batches*size, 200)...)
	stop, taken := make(chan struct{}), make(chan int64, 1)
	conn := s.db.Conn(t)
	go func() {
		var n int64
		for stopped := false; !stopped; {
			select {
			case <-stop:
				stopped = true // one round more: the last batch is in
			default:
			}
			n += emptyLines(t, conn)
		}
		taken <- n
	}()
	for i := range batches {
		var out []outbox.Outcome
		for _, x := range e[i*size : (i+1)*size] {
			out = append(out, s.diverted(x))
		}
		s.counts(s.settle(st, 300, out...), store.Settled{Shown: size, Lined: size})
	}
	close(stop)
	if n := <-taken; n != batches*size {
		t.Errorf("the owner took %d events, want %d", n, batches*size)
	}
	s.want("0", `select (select count(*) from outbox_relay.line) + (select count(*) from outbox_relay.line_event)`)
}

// emptyLines is what the owner of a claim does: lock, take, judge, delete, in
// statements of their own, and only in the line that it locked.
func emptyLines(t *testing.T, conn *pgx.Conn) (n int64) {
	var line int64
	run := func(sql string) int64 {
		tag, err := conn.Exec(t.Context(), strings.ReplaceAll(sql, "$1", strconv.FormatInt(line, 10)))
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		return tag.RowsAffected()
	}
	run("begin")
	defer run("commit")
	if err := conn.QueryRow(t.Context(), "select id from outbox_relay.line for update").Scan(&line); err != nil {
		return 0 // none
	}
	n = run("delete from outbox_relay.line_event where line_id = $1")
	run("delete from outbox_relay.line l where id = $1 and not exists (select from outbox_relay.line_event where line_id = l.id)")
	return n
}

// Law: one event that cannot be stored neither stops the others nor is lost:
// its line holds a stub that no reader takes for a record.
func TestUnstorableEventBecomesAStub(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	// Stands for any value that the server refuses.
	s.db.Exec(t, `alter table outbox_relay.line_event add check (value is null or value <> 'poison')`)
	e := s.insert(5, 200)
	keyed("k", e[1], e[2])
	poison, alone := s.diverted(e[2]), s.refused(e[3], "x")
	poison.Record.Value, alone.Record.Value, alone.Holds = []byte("poison"), []byte("poison"), false
	s.counts(s.settle(st, 300, append(s.acked(e[0]), s.refused(e[1], "x"), poison, alone, s.diverted(e[4]))...),
		store.Settled{Shown: 5, Lined: 4})
	s.want("1 2 3 4", `select string_agg(commit_index::text, ' ' order by commit_index) from outbox_relay.line_event`)
	s.want("2:value,behind", `select count(*) filter (where value is null) || ':' || string_agg(convert_from(value, 'UTF8'), ',' order by commit_index) from outbox_relay.line_event`)
	s.want("1", `select count(*) from outbox_relay.line where error_code = 'unstorable' and parked_at is not null and not holds`)
	rows, err := s.db.Conn(t).Query(t.Context(), `select record from outbox_relay.line_event where value is null`)
	if err != nil {
		t.Fatal(err)
	}
	stubs, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range stubs {
		if why, ok := store.Unstorable(record); !ok || why != "23514" {
			t.Errorf("stub %s: %q, %v", record, why, ok)
		}
		if _, err := outbox.UnmarshalEnvelope(record); err == nil {
			t.Errorf("stub %s reads as a record", record)
		}
	}
	whole := record(e[0], "v").MarshalEnvelope(e[0], false)
	if _, ok := store.Unstorable(whole); ok {
		t.Error("a whole record counts as a stub")
	}
}

// Law: keys that no index could hold are stored: an ordering key of a
// megabyte, and a row key whose JSON is longer than an index entry.
func TestHugeKeys(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.db.Exec(t, `create table public.wide (id text primary key, status smallint not null default 0)`)
	s.table = store.Table{Schema: "public", Name: "wide", Key: []store.Column{{Name: "id"}}, Status: "status"}
	random := make([]byte, 1<<19)
	_, _ = rand.Read(random)
	id := ""
	for i := range 600 {
		id += hex.EncodeToString(random)[3*i:3*i+3] + `"` // JSON escapes the quote
	}
	s.db.Exec(t, `insert into public.wide (id) values ($1)`, id)
	st := s.session()
	e := event(200, 0, "", id)
	e.AggregateID = hex.EncodeToString(random)
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin`)
	mustExec(t, holder, `select from public.wide for update`)
	s.counts(s.settle(st, 300, s.refused(e, "x")), store.Settled{Pending: 1, Lined: 1})
	s.want("t", `select octet_length(row_key) > 2704 from outbox_relay.pending_status`)
	mustExec(t, holder, `commit`)
	if n := s.drain(st, 10); n != 1 {
		t.Fatalf("drained %d, want 1", n)
	}
	s.want("3", `select status from public.wide`)
	owned := s.takeOver(st)
	if len(owned.Held) != 1 || owned.Held[0].Key != e.AggregateID {
		t.Error("the held key came back changed")
	}
}

// Law: the takeover finds what waits: held keys with their events' ids, the
// events at or beyond the progress, the totals. Orphans have ids of their
// own, and what lies below the progress is no longer waited for.
func TestTakeOverFindsLines(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(4, 200)
	keyed("a", e[0], e[1])
	later := event(400, 7, e[3].ID, "4")
	alone := s.refused(later, "x")
	alone.Holds = false
	s.settle(st, 300, s.refused(e[0], "x"), s.diverted(e[1]), s.refused(e[2], "y"), alone)
	s.db.Exec(t, `insert into outbox_relay.line_event (line_id, relay, row_key, reason, record, added_at)
		select id, relay, '["9"]', 'orphan', '\x00', now() from outbox_relay.line where order_key = 'a'`)
	s.db.Exec(t, `insert into outbox_relay.line (relay, topic, order_key, order_hash, holds, parked_at, since) values ('other', 't', 'k', '\x01', true, now(), now())`)
	owned := s.takeOver(s.open())
	var held []string
	for _, h := range owned.Held {
		held = append(held, fmt.Sprintf("%s/%s/%v", h.Topic, h.Key, h.ID))
	}
	want := fmt.Sprintf("orders/a/1:0/C8:0 orders/a/1:0/C8:1 orders/key 3/1:0/C8:2 orders/a/0:0/%X:0", owned.Held[len(owned.Held)-1].Seq)
	if got := strings.Join(held, " "); got != want {
		t.Errorf("held\n%s, want\n%s", got, want)
	}
	if _, ok := owned.Waiting[later.Position]; !ok || len(owned.Waiting) != 1 {
		t.Errorf("waiting %v, want only %v", owned.Waiting, later.Position)
	}
	if owned.LineEvents != 5 || owned.LineBytes < 100 || owned.Reached != 400 || owned.Progress.LSN != 300 || owned.InsertLSN == 0 {
		t.Errorf("owned %+v", owned)
	}
}
