package harness

import (
	"testing"
	"time"
)

// Law: a standby that keeps failover slots has one that a consumer moved on,
// and after the promotion it gives what came since.
func TestFailoverSlotSurvivesPromotion(t *testing.T) {
	t.Parallel()
	Need(t, PostgresMajor(17))
	p := StartPostgres(t, PostgresOptions{Major: 17})
	d := p.CreateDatabase(t)
	d.Exec(t, "create table x (id int)")
	d.Exec(t, "select pg_create_logical_replication_slot('kept', 'test_decoding', false, false, true)")
	b := p.Standby(t, StandbyOptions{SyncSlots: true, Database: d.Name()})
	on := d.On(b)
	i := 0
	Eventually(t, time.Minute, "the slot to be kept for good", func() bool {
		i++
		d.Exec(t, "insert into x values ($1)", i)
		d.Exec(t, "select pg_log_standby_snapshot()")
		d.Exec(t, "select count(*) from pg_logical_slot_get_changes('kept', null, null)")
		return on.Query1(t, "select count(*) from pg_replication_slots where slot_name = 'kept' and synced and not temporary and invalidation_reason is null") == "1"
	})
	d.Exec(t, "insert into x values (-1)")
	b.WaitFor(t, p)
	p.Crash(t)
	b.Promote(t)
	got := on.Query1(t, "select count(*) from pg_logical_slot_peek_changes('kept', null, null) where data like '%id[integer]:-1'")
	if got != "1" {
		t.Errorf("the kept slot gives the last row %s times, want once", got)
	}
}
