package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestStartsThatOnlyAPersonCanMend proves F26, F27 and F56 on the built
// program: a publication that brings too little or too much, and a slot name
// that something else has, end the start with the right code and words, and
// nothing is published or consumed.
func TestStartsThatOnlyAPersonCanMend(t *testing.T) {
	t.Parallel()
	dropSlot := func(s *rig.Site, t *testing.T) {
		s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
	}
	for name, c := range map[string]struct {
		harm func(t *testing.T, s *rig.Site)
		code int
		says string
	}{
		"publication of nothing": {func(t *testing.T, s *rig.Site) {
			s.DB.Exec(t, `drop publication outbox_relay_pub; create publication outbox_relay_pub with (publish = 'insert')`)
		}, 15, "publication.no_table"},
		"publication of updates": {func(t *testing.T, s *rig.Site) {
			s.DB.Exec(t, `alter publication outbox_relay_pub set (publish = 'update, delete')`)
		}, 15, "publication.no_insert"},
		"publication of another table": {func(t *testing.T, s *rig.Site) {
			s.DB.Exec(t, `create schema audit; create table audit.outbox (like public.outbox including all); alter publication outbox_relay_pub set table audit.outbox`)
		}, 15, "publication.no_table"},
		"publication of all tables": {func(t *testing.T, s *rig.Site) {
			s.DB.Exec(t, `drop publication outbox_relay_pub; create publication outbox_relay_pub for all tables with (publish = 'insert')`)
		}, 15, "publication.all_tables"},
		"slot of another database": {func(t *testing.T, s *rig.Site) {
			dropSlot(s, t)
			other := s.DB.Server().CreateDatabase(t)
			other.Exec(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, s.Slot())
		}, 10, "slot.database"},
		"slot of another plugin": {func(t *testing.T, s *rig.Site) {
			dropSlot(s, t)
			s.DB.Exec(t, `select pg_create_logical_replication_slot($1, 'test_decoding')`, s.Slot())
		}, 10, "slot.plugin"},
		"physical slot": {func(t *testing.T, s *rig.Site) {
			dropSlot(s, t)
			s.DB.Exec(t, `select pg_create_physical_replication_slot($1)`, s.Slot())
			t.Cleanup(func() { dropSlot(s, t) }) // it belongs to no database
		}, 10, "slot.kind"},
		"slot name with capitals": {func(_ *testing.T, s *rig.Site) {
			s.Set("slot", "name", "Outbox-Relay")
		}, 2, "slot.name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kfakeSite(t, 0)
			c.harm(t, s)
			s.Insert(t, "a")
			refused(t, s, c.code, c.says)
		})
	}
}

// refused wants a start to end with a code and words, without a record.
func refused(t *testing.T, s *rig.Site, code int, says string) {
	t.Helper()
	p := s.Start(t)
	if got := p.ExitCode(); got != code || !strings.Contains(p.Log.String(), says) {
		t.Errorf("exit code %d, want %d and the word %s:\n%s", got, code, says, rig.Tail(p.Log.String(), 2000))
	}
	if n := len(s.Kafka.Dump(t, s.Topic)); n != 0 {
		t.Errorf("%d records", n)
	}
}

// TestNoFreeSlot proves the last case of F56: a server whose slots are all in
// use is named as that.
func TestNoFreeSlot(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{Settings: map[string]string{"max_replication_slots": "1"}})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
	s.DB.Exec(t, `select pg_create_physical_replication_slot('somebody')`)
	s.Set("slot", "on_missing", "create")
	refused(t, s, 12, "server.slots_full")
}

// TestAwkwardPublicationName proves F10 on the built program: set-up and run
// with a name that needs both kinds of quotes, on both kinds of servers.
func TestAwkwardPublicationName(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			harness.Need(t, harness.PostgresMajor(major))
			s := kfakeSite(t, major)
			s.DB.Exec(t, `drop publication outbox_relay_pub`)
			s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
			s.Set("publication", "name", `Relay-Pub, it's "ours"`)
			if out, err := s.Command(t, "setup", "--apply", "--yes").CombinedOutput(); err != nil {
				t.Fatalf("setup: %v\n%s", err, out)
			}
			tr := s.Truth(t)
			p := s.Start(t)
			p.Ready()
			s.Insert(t, "a", "b")
			s.Settled(t)
			p.Stop()
			s.Judge(t, tr, nil, judge.Rules{})
		})
	}
}
