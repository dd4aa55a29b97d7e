package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: whatever the key's types, rows are found, statuses are shown at once and by
// the drain, and look-ups answer. The names want quoting.
func TestKeyTypes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, column string
		keys         []string
		events       [][]string
	}{
		{"uuid", `id uuid primary key`, []string{"'0f0e0d0c-0b0a-0908-0706-050403020100'", "gen_random_uuid()"}, nil},
		{"char5", `id char(5) primary key`, []string{"'ab'", "'abcde'"}, [][]string{{"ab   "}, {"abcde"}}},
		{"text with quotes", `id text primary key`, []string{`'a"b\c'`, `'é, "'`}, nil},
		{"numeric", `id numeric(20,3) primary key`, []string{"1.5", "-12345678901234567.125"}, nil},
		{"timestamptz", `id timestamptz primary key`, []string{"'2026-02-28 23:59:59.123456+02'", "now()"}, nil},
		{"composite", `id bigint, "P""art" text, primary key (id, "P""art")`, []string{"1, 'a'", "1, 'b'"}, [][]string{{"1", "a"}, {"1", "b"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := bareScene(t, harness.SharedPostgres(t, 0).CreateDatabase(t))
			s.db.Exec(t, `create schema "we;ird"; create table "we;ird"."o ""x" (`+c.column+`, "St;at" int not null default 0)`)
			s.table = store.Table{Schema: "we;ird", Name: `o "x`, Key: []store.Column{{Name: "id"}}, Status: "St;at"}
			if len(c.events) > 0 && len(c.events[0]) == 2 {
				s.table.Key = append(s.table.Key, store.Column{Name: `P"art`})
			}
			var events []*outbox.Event
			for i, k := range c.keys {
				s.db.Exec(t, `insert into "we;ird"."o ""x" values (`+k+`)`)
				key := []string{s.db.Query1(t, `select id from "we;ird"."o ""x" where ctid = '(0,`+fmt.Sprint(i+1)+`)'`)}
				if c.events != nil {
					key = c.events[i]
				}
				events = append(events, event(200, i, "", key...))
			}
			showsAndFinds(s, events)
			s.want("2 2", `select string_agg("St;at"::text, ' ') from "we;ird"."o ""x"`)
		})
	}
}

// showsAndFinds settles two events, the second while its row is held.
func showsAndFinds(s *scene, events []*outbox.Event) {
	s.t.Helper()
	st := s.session()
	s.finds(st, events, "[false false]")
	s.counts(s.settle(st, 300, s.acked(events[0])...), store.Settled{Shown: 1})
	s.finds(st, events, "[true false]")
	holder := s.db.Conn(s.t)
	mustExec(s.t, holder, `begin`)
	mustExec(s.t, holder, `select from `+quoted(s.table)+` for update`)
	s.counts(s.settle(st, 300, s.acked(events[1])...), store.Settled{Pending: 1})
	s.finds(st, events, "[true true]")
	mustExec(s.t, holder, `commit`)
	if n := s.drain(st, 10); n != 1 {
		s.t.Fatalf("drained %d, want 1", n)
	}
	s.finds(st, events, "[true true]")
}

func (s *scene) finds(st *store.Store, events []*outbox.Event, want string) {
	s.t.Helper()
	skip, err := st.Lookup(s.t.Context(), events)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := fmt.Sprint(skip); got != want {
		s.t.Errorf("lookup gives %s, want %s", got, want)
	}
}

func quoted(t store.Table) string {
	if t.Schema == "we;ird" {
		return `"we;ird"."o ""x"`
	}
	return t.Schema + "." + t.Name
}

// Law: the whole life works on every supported server, with a composite key
// on a partitioned outbox: settle, look-up, pending, drain, lines, takeover.
// Case F28 of docs/guarantees.md.
func TestPartitionedOutboxOnEveryServer(t *testing.T) {
	t.Parallel()
	for _, major := range []int{14, 15, 16, 17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			s := bareScene(t, harness.SharedPostgres(t, major).CreateDatabase(t))
			o := migrations.OutboxOptions{Layout: migrations.Partitioned}
			ddl, err := migrations.OutboxDDL(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, day := range []time.Time{time.Now(), time.Now().Add(24 * time.Hour)} {
				partition, err := migrations.PartitionDDL(o, day)
				if err != nil {
					t.Fatal(err)
				}
				ddl = append(ddl, partition)
			}
			for _, d := range ddl {
				s.db.Exec(t, d)
			}
			s.table.Key = append(s.table.Key, store.Column{Name: "created_at"})
			s.db.Exec(t, `insert into public.outbox (aggregate_type, event_type, created_at) values ('a', 'b', now()), ('a', 'b', now() + interval '1 day')`)
			s.db.Exec(t, `alter database `+s.db.Name()+` set timezone = 'America/New_York'`)
			var events []*outbox.Event
			for i := range 2 {
				key := func(col string) string {
					return s.db.Query1(t, `select (`+col+`)::text from public.outbox where id = $1::int`, i+1)
				}
				events = append(events, event(200, i, key("event_id"), key("id"), key("created_at at time zone 'UTC'")+"+00"))
			}
			showsAndFinds(s, events)
			st := s.session()
			s.counts(s.settle(st, 300, s.refused(event(300, 0, "", "3", "2026-01-01 00:00:00+00"), "x")), store.Settled{Pending: 1, Lined: 1})
			if owned := s.takeOver(st); len(owned.Held) != 1 || owned.Reached != 300 {
				t.Errorf("owned %+v", owned)
			}
		})
	}
}

// Law: write-back delete removes what was acked and only that: a row that a consumer
// works on stays, a refused row shows FAILED, a held row goes later.
func TestDeleteMode(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.mode = store.WriteDelete
	st := s.session()
	e := s.insert(5, 200)
	s.db.Exec(t, `update public.outbox set status = 5 where id = 2`)
	holder := s.db.Conn(t)
	mustExec(t, holder, `begin`)
	mustExec(t, holder, `select from public.outbox where id = 4 for update`)
	s.counts(s.settle(st, 300, append(s.acked(e[0], e[1], e[3]), s.refused(e[2], "x"))...),
		store.Settled{Shown: 2, Overtaken: 1, Pending: 1, Lined: 1})
	s.finds(st, e, "[false true false true false]")
	mustExec(t, holder, `commit`)
	if n := s.drain(st, 10); n != 1 {
		t.Fatalf("drained %d, want 1", n)
	}
	s.want("2:5 3:3 5:0", `select string_agg(id || ':' || status, ' ' order by id) from public.outbox`)
}

// Law: a table with nothing but a key is relayed: write-back off touches
// nothing, delete removes, and refusals are as durable as ever.
func TestTableWithoutStatus(t *testing.T) {
	t.Parallel()
	for mode, left := range map[store.WriteBack]string{store.WriteOff: "2", store.WriteStatus: "2", store.WriteDelete: "1"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := bareScene(t, harness.SharedPostgres(t, 0).CreateDatabase(t))
			s.db.Exec(t, `create table public.bare (id int primary key); insert into public.bare values (1), (2)`)
			s.table, s.mode = store.Table{Schema: "public", Name: "bare", Key: []store.Column{{Name: "id"}}}, mode
			st := s.session()
			e := []*outbox.Event{event(200, 0, "", "1"), event(200, 1, "", "2")}
			done := s.settle(st, 300, append(s.acked(e[0]), s.refused(e[1], "x"))...)
			if done.Lined != 1 || done.Pending != 0 {
				t.Errorf("settled %+v", done)
			}
			s.want(left, `select count(*) from public.bare`)
			s.want("0/12C 1", `select lsn || ' ' || (select count(*) from outbox_relay.line_event) from outbox_relay.position`)
			s.finds(st, e, "[false false]")
			if n := s.drain(st, 10); n != 0 {
				t.Errorf("drained %d", n)
			}
		})
	}
}

// Law: a look-up skips what is published and nothing else: SENT, CONSUMED and
// CONSUMING with the same event id. Absent rows are sent.
func TestLookup(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	e := s.insert(6, 200)
	s.db.Exec(t, `update public.outbox set status = id - 1`)
	s.finds(st, e, "[false false true false true true]")
	other := event(200, 2, "00000000-0000-4000-8000-000000000000", "3")
	absent := event(200, 2, "00000000-0000-4000-8000-000000000001", "99")
	broken := event(200, 2, "00000000-0000-4000-8000-000000000002")
	s.finds(st, []*outbox.Event{other, absent, broken, e[2]}, "[false false false true]")
	s.finds(st, nil, "[]")
}

// Law: a mapped table or column that is not there is refused when the store
// opens, with what to correct.
func TestOpenRefusesWrongMapping(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, change := range []func(*store.Config){
		func(c *store.Config) { c.Table.Name = "nothing" },
		func(c *store.Config) { c.Table.Status = "state" },
		func(c *store.Config) { c.Table.Key = []store.Column{{Name: "key"}} },
		func(c *store.Config) { c.Table.Key = nil },
		func(c *store.Config) { c.Mode = "sometimes" },
		func(c *store.Config) { c.Relay = "" },
	} {
		cfg := s.config()
		change(&cfg)
		if st, err := store.Open(t.Context(), cfg); err == nil {
			_ = st.Close(t.Context())
			t.Errorf("opened %+v", cfg.Table)
		}
	}
}

// Law: an event whose key names no row of this table is counted, and stops
// nothing; refused, it still waits in its line.
func TestUnaddressableRowsAreCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	good := s.insert(1, 200)[0]
	bad := event(200, 1, "", "1", "2")
	none := &outbox.Event{Position: outbox.Position{Timeline: 1, Commit: 200, Index: 2}}
	s.counts(s.settle(st, 300, append(s.acked(good, bad), s.refused(none, "x"))...), store.Settled{Shown: 1, Gone: 2, Lined: 1})
	s.want("2:1", statuses)
}
