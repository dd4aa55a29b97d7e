package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// changes are statements that an application's migrations may run; none of
// them touches a mapped column.
var changes = []string{
	`alter table public.outbox add column trace text not null default 'none'`,
	`alter table public.outbox rename column trace to span`,
	`alter table public.outbox add column "Tenant" int`,
	`alter table public.outbox drop column span`,
	`alter table public.outbox alter column "Tenant" type bigint`,
	`alter table public.outbox drop column "Tenant"`,
	`alter table public.outbox add column span bytea`,
}

// TestColumnsChangeMidStream proves F9: columns that nobody mapped are added,
// renamed, re-typed and dropped between rows, in transactions and beside them,
// while the relay runs and while it does not; each row keeps its own bytes.
func TestColumnsChangeMidStream(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			t.Parallel()
			s := kfakeSite(t, 0)
			tr := s.Truth(t)
			if running {
				s.Start(t).Ready()
			}
			rows := 0
			put := `insert into public.outbox (aggregate_id, payload) values ('k', convert_to('row ' || %d, 'UTF8'));`
			for _, change := range changes {
				s.DB.Exec(t, fmt.Sprintf(put, rows)) // alone
				s.DB.Exec(t, fmt.Sprintf(`begin; `+put+change+`; `+put+` commit`, rows+1, rows+2))
				rows += 3
			}
			if !running {
				s.Start(t).Ready()
			}
			s.Settled(t)
			rep := s.Judge(t, tr, nil, judge.Rules{})
			if rep.Rows != rows || rep.Duplicates != 0 || rep.Waiting != 0 {
				t.Fatalf("%d rows of %d, %d repeated, %d waiting", rep.Rows, rows, rep.Duplicates, rep.Waiting)
			}
		})
	}
}

// TestMappedColumnRenamed proves that a mapped column which is renamed stops
// the relay and not the rows before: they are published once however often
// the relay looks again, the state says what to do, and with the new name in
// the configuration it goes on where it stopped.
// Case F9 of docs/guarantees.md.
func TestMappedColumnRenamed(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "before")
	s.Settled(t)
	s.DB.Exec(t, `begin;
		insert into public.outbox (aggregate_id, payload) select 'k', 'old' from generate_series(1, 100);
		alter table public.outbox rename payload to body;
		insert into public.outbox (aggregate_id, body) select 'k', 'new' from generate_series(1, 100);
		commit`)
	p.State("failed")
	if reason := p.Get("/readyz?verbose"); !strings.Contains(reason, "payload") || !strings.Contains(reason, "table.columns") {
		t.Fatalf("the reason does not name the column and the setting: %s", reason)
	}
	says(t, p, "a person must act")
	if got := s.Count(t, "status = 2"); got != "101" {
		t.Fatalf("%s rows SENT, want the 101 from before the change", got)
	}
	p.Stop()
	if code := s.Start(t).ExitCode(); code != 2 {
		t.Fatalf("a start with the old name: exit code %d, want 2", code)
	}
	s.Set("table", "columns", map[string]any{"payload": "body"})
	p = s.Start(t)
	p.Ready()
	s.Settled(t)
	p.Stop()
	n := map[string]int{}
	for _, r := range s.Kafka.Dump(t, s.Topic) {
		n[string(r.Value)]++
	}
	if fmt.Sprint(n) != "map[hi:1 new:100 old:100]" {
		t.Fatalf("records by value: %v", n)
	}
}

// TestMappedColumnRenamedAndBack proves that names which only the log has are
// found out too: the relay stops at the first such row, having settled all
// before it, publishes nothing twice while it waits, and passes when the table
// and the configuration have these names for a while.
func TestMappedColumnRenamedAndBack(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload) select 'k', 'first' from generate_series(1, 100);`)
	s.DB.Exec(t, `alter table public.outbox rename payload to body`)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, body) values ('k', 'between')`)
	s.DB.Exec(t, `alter table public.outbox rename body to payload`)
	s.Insert(t, "k")
	values := func() string {
		n := map[string]int{}
		for _, r := range s.Kafka.Dump(t, s.Topic) {
			n[string(r.Value)]++
		}
		return fmt.Sprint(n)
	}
	for range 2 { // each start looks anew
		p := s.Start(t)
		p.State("failed")
		p.Stop()
		if got, sent := values(), s.Count(t, "status = 2"); got != "map[first:100]" || sent != "100" {
			t.Fatalf("records by value: %v, %s rows SENT; want the first 100", got, sent)
		}
	}
	s.DB.Exec(t, `alter table public.outbox rename payload to body`)
	s.Set("table", "columns", map[string]any{"payload": "body"})
	p := s.Start(t)
	p.State("failed") // at the row behind
	p.Stop()
	s.DB.Exec(t, `alter table public.outbox rename body to payload`)
	delete(s.Config, "table")
	p = s.Start(t)
	p.Ready()
	s.Settled(t)
	p.Stop()
	if got := values(); got != "map[between:1 first:100 hi:1]" {
		t.Fatalf("records by value: %v", got)
	}
}

// TestMappedColumnDropped proves that a mapped column which is dropped stops
// the relay with the documented code and not the rows before, which are
// published once and in order; headers that are dropped are mended by mapping
// them to nothing. Case F9 of docs/guarantees.md.
func TestMappedColumnDropped(t *testing.T) {
	t.Parallel()
	for column, mended := range map[string]bool{"payload": false, "headers": true} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			s := kfakeSite(t, 0)
			p := s.Start(t)
			p.Ready()
			s.DB.Exec(t, `insert into public.outbox (aggregate_id, event_type, payload) select 'k', 'old', convert_to(i::text, 'UTF8') from generate_series(1, 100) i`)
			s.DB.Exec(t, `alter table public.outbox drop column `+column)
			s.DB.Exec(t, `insert into public.outbox (aggregate_id, event_type) select 'k', 'new' from generate_series(1, 10)`)
			p.State("failed")
			p.Stop()
			if code := s.Start(t).ExitCode(); code != 2 {
				t.Fatalf("a start without the column: exit code %d, want 2", code)
			}
			if got := s.Count(t, "status = 2"); got != "100" {
				t.Fatalf("%s rows SENT, want the 100 from before the change", got)
			}
			inOrder(t, s, 100)
			if !mended {
				return
			}
			s.Set("table", "columns", map[string]any{column: nil})
			p = s.Start(t)
			p.Ready()
			s.Settled(t)
			p.Stop()
			if n := len(s.Kafka.Dump(t, s.Topic)); n != 110 {
				t.Fatalf("%d records after the repair, want 110", n)
			}
			inOrder(t, s, 100)
		})
	}
}

// inOrder wants the numbers from 1 to last, once each, as the first records.
func inOrder(t *testing.T, s *rig.Site, last int) {
	t.Helper()
	records := s.Kafka.Dump(t, s.Topic)
	if len(records) < last {
		t.Fatalf("%d records, want at least %d", len(records), last)
	}
	for i, r := range records[:last] {
		if string(r.Value) != fmt.Sprint(i+1) {
			t.Fatalf("record %d has the value %q", i, r.Value)
		}
	}
}

// TestSlotOlderThanPublication proves F25 on both kinds of servers: rows that
// were written before the publication existed are never skipped in silence.
func TestSlotOlderThanPublication(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			s := kfakeSite(t, major)
			s.DB.Exec(t, `drop publication outbox_relay_pub`)
			s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
			s.DB.Exec(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, s.Slot())
			s.Insert(t, "early")
			s.DB.Exec(t, `create publication outbox_relay_pub for table public.outbox with (publish = 'insert')`)
			s.Insert(t, "late")
			for range 2 {
				p := s.Start(t)
				p.State("failed")
				p.Stop()
				if !strings.Contains(p.Log.String(), "publication") {
					t.Fatalf("the log does not name the publication:\n%s", p.Log.String())
				}
			}
			if got := s.Count(t, "status = 0"); got != "2" {
				t.Fatalf("%s rows READY, want both", got)
			}
			if n := len(s.Kafka.Dump(t, s.Topic)); n != 0 {
				t.Fatalf("%d records past the early row", n)
			}
		})
	}
}
