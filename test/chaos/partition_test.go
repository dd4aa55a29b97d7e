package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestPartitionedOutbox proves F28 end to end: rows of every partition are
// published under the root's name and get their status, also of partitions
// that are attached while the relay runs, rows that are inserted into a leaf
// directly, and rows whose partition is detached or dropped before the relay
// has read them.
func TestPartitionedOutbox(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			harness.Need(t, harness.PostgresMajor(major))
			partitions(t, major)
		})
	}
}

// day n as a timestamp, and the partition that holds it.
func day(n int) (at, table string) {
	d := time.Date(2026, 3, 1+n, 0, 0, 0, 0, time.UTC)
	return d.Format("2006-01-02") + " 12:00:00+00", "public.outbox_" + d.Format("20060102")
}

// partitioned makes the outbox with partitions for some days.
func partitioned(t *testing.T, db *harness.Database, days int) {
	t.Helper()
	o := migrations.OutboxOptions{Layout: migrations.Partitioned}
	ddl, err := migrations.OutboxDDL(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range days {
		one, err := migrations.PartitionDDL(o, time.Date(2026, 3, 1+i, 0, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		ddl = append(ddl, one)
	}
	for _, stmt := range ddl {
		db.Exec(t, stmt)
	}
}

func partitions(t *testing.T, major int) {
	s := rig.New(t, rig.Options{
		Postgres: harness.SharedPostgres(t, major), Kafka: harness.StartKfake(t, harness.KfakeOptions{}),
		Prepare: func(db *harness.Database) { partitioned(t, db, 3) },
	})
	var tables []string
	for i := range 4 {
		_, table := day(i)
		tables = append(tables, table)
	}
	tr := s.Truth(t, tables...)
	rows := 0
	put := func(table string, days ...int) {
		for _, d := range days {
			at, _ := day(d)
			s.DB.Exec(t, fmt.Sprintf(`insert into %s (aggregate_id, payload, created_at) select 'k' || i %% 3, convert_to('day %d', 'UTF8'), '%s' from generate_series(1, 10) i`, table, d, at))
			rows += 10
		}
	}
	sent := func(n int) {
		t.Helper()
		rig.Eventually(t, patience, fmt.Sprintf("%d rows SENT", n), func() bool { return s.Count(t, "status = 2 and sent_at is not null") == fmt.Sprint(n) })
	}
	p := s.Start(t)
	p.Ready()
	put("public.outbox", 0, 1, 2, 0)
	sent(40)

	// Attached while the relay runs: through the root, and into the leaf.
	s.DB.Exec(t, fmt.Sprintf(`create table %s (like public.outbox including defaults including constraints including indexes);
		alter table public.outbox attach partition %[1]s for values from ('2026-03-04 00:00:00+00') to ('2026-03-05 00:00:00+00')`, tables[3]))
	put("public.outbox", 3)
	put(tables[3], 3)
	sent(60)

	// Detached while the relay runs, with rows on their way or not.
	put("public.outbox", 0)
	s.DB.Exec(t, `alter table public.outbox detach partition `+tables[0])
	put("public.outbox", 1)
	sent(40)

	// Detached, and dropped, before the relay has read it.
	s.Settled(t)
	p.Stop()
	put("public.outbox", 1, 2, 3)
	s.DB.Exec(t, `alter table public.outbox detach partition `+tables[1]+`; alter table public.outbox detach partition `+tables[2]+`; drop table `+tables[2])
	put("public.outbox", 3)
	p = s.Start(t)
	p.Ready()
	sent(40)
	s.Settled(t)
	p.Stop()
	rep := s.Judge(t, tr, nil, judge.Rules{})
	if rep.Rows != rows || rep.Published != rows || rep.Duplicates != 0 {
		t.Fatalf("%d rows of %d, %d published, %d repeated", rep.Rows, rows, rep.Published, rep.Duplicates)
	}
}
