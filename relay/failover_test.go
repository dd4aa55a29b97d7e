package relay_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// failover stops the primary without a checkpoint once the standby has all of
// it, promotes the standby and turns the site to it.
func (s *site) failover(t *testing.T, primary, standby *harness.Postgres) {
	t.Helper()
	standby.WaitFor(t, primary)
	primary.Crash(t)
	standby.Promote(t)
	s.db = s.db.On(standby)
	if got := s.db.Query1(t, `select timeline_id from pg_control_checkpoint()`); got == "0" {
		t.Fatal("no timeline")
	}
}

// TestPromotionWithSyncedSlot proves the fork check on PostgreSQL 17: the
// position row of timeline 1 is carried over to timeline 2, what was
// committed and not yet published arrives, what was published is not
// repeated, and each record says which timeline wrote it.
// Case F62 of docs/guarantees.md.
func TestPromotionWithSyncedSlot(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.PostgresMajor(17))
	primary := harness.StartPostgres(t, harness.PostgresOptions{Major: 17})
	s := newSite(t, primary)
	standby := primary.Standby(t, harness.StandbyOptions{SyncSlots: true, Database: s.db.Name()})
	r := s.start(t, func(c *relay.Config) { c.Failover = true })
	streaming(t, r)
	n := 0
	eventually(t, "the standby keeps the slot", func() bool {
		s.insert(t, "a")
		n++
		s.waitStatus(t, 2, n)
		s.db.Exec(t, `select pg_log_standby_snapshot()`)
		return s.db.On(standby).Query1(t, `select count(*) from pg_replication_slots where slot_name = $1 and synced and not temporary`, s.slotName()) == "1"
	})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	s.insert(t, "a", "b", "c")
	s.failover(t, primary, standby)
	s.insert(t, "a", "d")
	r = s.start(t, nil)
	streaming(t, r)
	s.waitStatus(t, 2, n+5)
	if got := r.Status().Timeline; got != 2 {
		t.Fatalf("timeline %d after the promotion, want 2", got)
	}
	records := s.kafka.Dump(t, topic)
	if len(records) != n+5 {
		t.Fatalf("%d records for %d rows: something was lost or repeated", len(records), n+5)
	}
	byTimeline := map[uint32]int{}
	for _, rec := range records {
		for _, h := range rec.Headers {
			if h.Key == "outbox-position" {
				p, err := outbox.ParsePosition(string(h.Value))
				if err != nil {
					t.Fatal(err)
				}
				byTimeline[p.Timeline]++
			}
		}
	}
	if byTimeline[1] != n+3 || byTimeline[2] != 2 {
		t.Fatalf("positions by timeline: %v, want %d of timeline 1 and 2 of timeline 2", byTimeline, n+3)
	}
}

// TestPromotionWithoutSlot proves that a promoted server without the slot, as
// before PostgreSQL 17, is an incident that names the interval: the relay
// does not make a slot that would skip the rows in between.
// Case F4 of docs/guarantees.md.
func TestPromotionWithoutSlot(t *testing.T) {
	t.Parallel()
	primary := harness.StartPostgres(t, harness.PostgresOptions{Major: 15})
	s := newSite(t, primary)
	standby := primary.Standby(t, harness.StandbyOptions{})
	r := s.start(t, nil)
	streaming(t, r)
	s.insert(t, "a")
	s.waitStatus(t, 2, 1)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	s.insert(t, "unseen")
	s.failover(t, primary, standby)
	r = s.start(t, nil)
	eventually(t, "failed", func() bool { return r.Status().State == relay.Failed })
	var fatal *relay.FatalError
	err := r.stop()
	if !errors.As(err, &fatal) || fatal.ExitCode != 10 || !strings.Contains(err.Error(), "settled up to") {
		t.Fatalf("run returned %v, want exit code 10 and the interval", err)
	}
	if got := s.db.Query1(t, `select count(*) from public.outbox where status = 0`); got != "1" {
		t.Fatalf("%s rows READY, want the unseen one", got)
	}
}

// TestPromotionUnderLoad proves the same with writers and a relay that are
// running when the primary dies: on a standby that had everything, nothing is
// lost.
func TestPromotionUnderLoad(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.PostgresMajor(17))
	primary := harness.StartPostgres(t, harness.PostgresOptions{Major: 17})
	s := newSite(t, primary)
	standby := primary.Standby(t, harness.StandbyOptions{SyncSlots: true, Database: s.db.Name()})
	r := s.start(t, func(c *relay.Config) { c.Failover = true })
	streaming(t, r)
	j, err := judge.Workload{Connect: judge.Dial(s.db.DSN()), Seed: 3, Transactions: 200, BigRows: 500}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the standby keeps the slot", func() bool {
		s.db.Exec(t, `select pg_log_standby_snapshot()`)
		s.insert(t, "a")
		return s.db.On(standby).Query1(t, `select count(*) from pg_replication_slots where slot_name = $1 and synced and not temporary`, s.slotName()) == "1"
	})
	s.insert(t, "a", "b")
	s.failover(t, primary, standby)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = s.start(t, nil)
	streaming(t, r)
	eventually(t, "nothing is READY", func() bool { return s.db.Query1(t, `select count(*) from public.outbox where status = 0`) == "0" })
	ids := map[string]bool{}
	for _, rec := range s.kafka.Dump(t, topic) {
		for _, h := range rec.Headers {
			if h.Key == "outbox-id" {
				ids[string(h.Value)] = true
			}
		}
	}
	for _, id := range j.Committed {
		if !ids[id] {
			t.Errorf("row %s was committed and is in no topic", id)
		}
	}
}

// TestStallBehindAStandbyIsNamed proves that a server which holds the stream
// back for a standby named in synchronized_standby_slots is told apart from an
// idle one: the state is blocked, in words, and ends by itself.
func TestStallBehindAStandbyIsNamed(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.PostgresMajor(17))
	primary := harness.StartPostgres(t, harness.PostgresOptions{Major: 17})
	s := newSite(t, primary)
	r := s.start(t, func(c *relay.Config) {
		c.Failover = true
		c.FactsEvery = 200 * time.Millisecond
	})
	streaming(t, r)
	s.insert(t, "a")
	s.waitStatus(t, 2, 1)
	s.db.Exec(t, `select pg_create_physical_replication_slot('standby_1')`)
	s.db.Exec(t, `alter system set synchronized_standby_slots = 'standby_1'`)
	s.db.Exec(t, `select pg_reload_conf()`)
	eventually(t, "the setting", func() bool { return s.db.Query1(t, `show synchronized_standby_slots`) == "standby_1" })
	s.insert(t, "b")
	eventually(t, "blocked", func() bool {
		st := r.Status()
		return st.State == relay.Blocked && strings.Contains(st.Reason, "synchronized_standby_slots")
	})
	if got := s.db.Query1(t, `select count(*) from public.outbox where status = 0`); got != "1" {
		t.Fatalf("the stall has not bitten: %s rows READY", got)
	}
	s.db.Exec(t, `alter system reset synchronized_standby_slots`)
	s.db.Exec(t, `select pg_reload_conf()`)
	s.waitStatus(t, 2, 2)
	streaming(t, r)
}
