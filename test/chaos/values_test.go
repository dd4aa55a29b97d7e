package chaos

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// awkward are rows as their values in SQL: key of the aggregate, message key,
// payload, headers, time.
var awkward = []struct{ name, values string }{
	{"null payload", `'a', null, null, '{}', now()`},
	{"empty payload", `'a', null, '', '{}', now()`},
	{"the word null", `'a', null, 'null', '{}', now()`},
	{"backslash first", `'a', null, '\x5c5c78', '{}', now()`},
	{"all bytes", `'a', null, (select string_agg(set_byte(' '::bytea, 0, i), ''::bytea order by i) from generate_series(0, 255) i), '{}', now()`},
	{"toasted", `'a', null, (select string_agg(sha256(i::text::bytea), ''::bytea) from generate_series(1, 16000) i), '{}', now()`},
	{"compressed", `'a', null, convert_to(repeat('long ', 150000), 'UTF8'), '{}', now()`},
	{"no key", `null, null, 'x', '{}', now()`},
	{"empty key", `'', null, 'x', '{}', now()`},
	{"empty message key", `'a', '', 'x', '{}', now()`},
	{"unicode", `'ключ ☃ 🎉', 'クエ' || U&'\0301', convert_to('payload 🎉', 'UTF8'), '{"h": "é 🎉"}', now()`},
	{"null and empty headers", `'a', null, 'x', '{"n": null, "e": "", "nan": "NaN"}', now()`},
	{"infinity", `'a', null, 'x', '{}', 'infinity'`},
	{"minus infinity", `'a', null, 'x', '{}', '-infinity'`},
	{"before Christ", `'a', null, 'x', '{}', '0044-03-15 12:00:00+00 BC'`},
	{"far future", `'a', null, 'x', '{}', '294276-12-31 00:00:00+00'`},
	{"before 1970", `'a', null, 'x', '{}', '1969-12-31 23:59:59.999+00'`},
	{"local time", `'a', null, 'x', '{}', '2026-03-29 02:30:00.123456+05:45'`},
	{"the last", `'a', null, 'x', '{}', now()`},
}

// TestAwkwardValues proves F13, F14 and F15: every value comes out as it went
// in, null is not empty, no time stops anything, by INSERT and by COPY, and
// the rows behind keep their place.
func TestAwkwardValues(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	const columns = `(aggregate_id, message_key, payload, headers, created_at, event_type)`
	for _, a := range awkward {
		s.DB.Exec(t, `insert into public.outbox `+columns+` values (`+a.values+`, '`+a.name+`')`)
	}
	if got := s.DB.Query1(t, `select count(*) || ' ' || (select pg_relation_size(reltoastrelid) > 16000 * 32 from pg_class where oid = 'public.outbox'::regclass)
		from public.outbox where event_type = 'compressed' and pg_column_compression(payload) is not null`); got != "1 true" {
		t.Fatalf("values compressed and out of line: %s, want 1 true: the server has not toasted them", got)
	}
	s.DB.Exec(t, `begin; create table public.kept as select aggregate_id, message_key, payload, headers, created_at, 'copy of ' || event_type as event_type from public.outbox order by id; commit`)
	copied := copyRows(t, s, `public.kept`, columns)
	p := s.Start(t)
	p.Ready()
	s.Settled(t)
	p.Stop()
	rep := s.Judge(t, tr, nil, judge.Rules{})
	if rep.Rows != 2*len(awkward) || copied != len(awkward) || rep.Published != rep.Rows || rep.Duplicates != 0 {
		t.Fatalf("%d rows, %d of them by COPY, %d published, %d repeated", rep.Rows, copied, rep.Published, rep.Duplicates)
	}
	records := map[string]harness.Record{}
	for _, r := range s.Kafka.Dump(t, s.Topic) {
		records[header(r, "outbox-type")] = r
	}
	wantTimes(t, s, records)
	for _, prefix := range []string{"", "copy of "} {
		null, empty, toasted := records[prefix+"null payload"], records[prefix+"empty payload"], records[prefix+"toasted"]
		if null.Value != nil || empty.Value == nil || len(empty.Value) != 0 {
			t.Errorf("%snull %v, empty %v", prefix, null.Value, empty.Value)
		}
		if sum, want := fmt.Sprintf("%x", sha256.Sum256(toasted.Value)), s.DB.Query1(t, `select encode(sha256(payload), 'hex') from public.outbox where event_type = 'toasted'`); sum != want {
			t.Errorf("%stoasted: sha256 %s, want %s", prefix, sum, want)
		}
		if key := records[prefix+"no key"].Key; key != nil {
			t.Errorf("%sno key: %q", prefix, key)
		}
		if key := records[prefix+"empty message key"].Key; key == nil || len(key) != 0 {
			t.Errorf("%sempty message key: %v", prefix, key)
		}
		if got := header(records[prefix+"unicode"], "h"); got != "é 🎉" {
			t.Errorf("%sunicode header: %q", prefix, got)
		}
	}
}

// copyRows copies a table into the outbox with COPY, as a client does it.
func copyRows(t *testing.T, s *rig.Site, from, columns string) int {
	t.Helper()
	out, in := s.DB.Conn(t), s.DB.Conn(t)
	rows := strings.NewReader(copyOut(t, out, `copy `+from+` to stdout`))
	tag, err := in.PgConn().CopyFrom(t.Context(), rows, `copy public.outbox `+columns+` from stdin`)
	if err != nil {
		t.Fatal(err)
	}
	return int(tag.RowsAffected())
}

func copyOut(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var text strings.Builder
	if _, err := conn.PgConn().CopyTo(t.Context(), &text, sql); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// wantTimes wants each record's timestamp to be the row's created_at, to the
// millisecond, and the commit's time where Kafka cannot carry it.
func wantTimes(t *testing.T, s *rig.Site, records map[string]harness.Record) {
	t.Helper()
	carried := 0
	for _, line := range column(t, s.DB, `select event_type || '|' || case when created_at >= '1970-01-01Z' and created_at < '2262-01-01Z'
		then floor(extract(epoch from created_at) * 1000)::text else 'commit' end from public.outbox`) {
		name, want, _ := strings.Cut(line, "|")
		got := records[name].Timestamp
		switch {
		case want != "commit" && fmt.Sprint(got.UnixMilli()) != want:
			t.Errorf("%s: timestamp %d, want %s", name, got.UnixMilli(), want)
		case want == "commit" && time.Since(got).Abs() > time.Hour:
			t.Errorf("%s: timestamp %v, want that of the commit", name, got)
		case want == "commit":
			carried++
		}
	}
	if carried != 10 {
		t.Errorf("%d rows with times that Kafka cannot carry, want 10", carried)
	}
}

// TestOverlappingTransactions proves F34: a transaction that began first and
// commits last is published last, also when the relay is killed between the
// two.
func TestOverlappingTransactions(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	slow := s.DB.Conn(t)
	exec(t, slow, `begin; insert into public.outbox (aggregate_id, payload) values ('k', 'first in the log')`)
	s.Insert(t, "k")
	s.Settled(t)
	p.Kill()
	exec(t, slow, `insert into public.outbox (aggregate_id, payload) values ('k', 'and another'); commit`)
	p = s.Start(t)
	s.Insert(t, "k")
	s.Settled(t)
	p.Ready()
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Rows != 4 || rep.Duplicates != 0 {
		t.Fatalf("%d rows, %d repeated", rep.Rows, rep.Duplicates)
	}
	if got := values(s.Kafka.Dump(t, s.Topic)); !slices.Equal(got, []string{"hi", "first in the log", "and another", "hi"}) {
		t.Fatalf("records: %q", got)
	}
}

// TestSavepointsAndSpilledTransactions proves F8: of a transaction that the
// server spills to disk exactly the rows that were not rolled back arrive, in
// their order against another writer; so do rows of a transaction that was
// prepared while one relay ran and committed under the next.
func TestSavepointsAndSpilledTransactions(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	s.DB.Exec(t, fmt.Sprintf(`alter database %s set logical_decoding_work_mem = '64kB'`, s.DB.Name()))
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	put := func(conn *pgx.Conn, n int, text string) {
		exec(t, conn, fmt.Sprintf(`insert into public.outbox (aggregate_id, payload) select 'k', convert_to('%s' || repeat('.', 500), 'UTF8') from generate_series(1, %d)`, text, n))
	}
	big, other, prepared := s.DB.Conn(t), s.DB.Conn(t), s.DB.Conn(t)
	exec(t, prepared, `begin`)
	put(prepared, 50, "prepared")
	exec(t, prepared, fmt.Sprintf(`prepare transaction '%s'`, s.DB.Name()))
	exec(t, big, `begin`)
	put(big, 300, "kept")
	put(other, 10, "other")
	exec(t, big, `savepoint s`)
	put(big, 600, "rolled back")
	exec(t, big, `rollback to savepoint s`)
	put(big, 5, "kept")
	exec(t, big, `do $$ begin for i in 1..100 loop
		begin
			insert into public.outbox (aggregate_id, payload) values ('k', 'in a block');
			if i % 2 = 0 then raise exception 'no'; end if;
		exception when others then null;
		end; end loop; end $$; commit`)
	put(other, 10, "other")
	s.Settled(t)
	p.Stop()
	p = s.Start(t)
	p.Ready()
	exec(t, prepared, fmt.Sprintf(`commit prepared '%s'`, s.DB.Name()))
	rig.Eventually(t, patience, "the prepared rows", func() bool { return s.Count(t, "status = 2") == "425" })
	p.Stop()
	if rep := s.Judge(t, tr, nil, judge.Rules{}); rep.Rows != 300+5+50+20+50 || rep.Duplicates != 0 {
		t.Fatalf("%d rows, %d repeated", rep.Rows, rep.Duplicates)
	}
	if spilled := s.DB.Query1(t, `select sum(spill_txns) from pg_stat_replication_slots where slot_name = $1`, s.Slot()); spilled == "0" || spilled == "" {
		t.Errorf("transactions spilled: %q; want some", spilled)
	}
}

// values are the records' values as text; they have an order where all
// records have one key.
func values(records []harness.Record) []string {
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = string(r.Value)
	}
	return texts
}
