package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestStalledSynchronousStandby proves what the relay does when the server's
// commits wait for a standby that is away: it is sent rows that no SELECT
// shows yet, its own commits wait like everybody's, it confirms nothing
// meanwhile, says that it is held up and keeps its connections, and goes on
// when the standby is back; also when it was killed and started again in
// between.
func TestStalledSynchronousStandby(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed meanwhile %v", killed), func(t *testing.T) {
			t.Parallel()
			stallStandby(t, killed)
		})
	}
}

func stallStandby(t *testing.T, killed bool) {
	primary := harness.StartPostgres(t, harness.PostgresOptions{})
	s := rig.New(t, rig.Options{Postgres: primary, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	standby := primary.Standby(t, harness.StandbyOptions{})
	synchronous(t, s.DB, s.DB.On(standby).Query1(t, `show cluster_name`))
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "before")
	s.Settled(t)
	serving := walsender(t, s)

	standby.Stop(t, "fast")
	insert := waitingInsert(t, s, "during")
	rig.Eventually(t, patience, "the row is published before its COMMIT returns", func() bool { return len(s.Kafka.Dump(t, s.Topic)) == 2 })
	rig.Eventually(t, patience, "the relay's own commit waits too", func() bool {
		return s.DB.Query1(t, `select count(*) from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'outbox-relay store'`) == "1"
	})
	at := s.DB.Query1(t, `select confirmed_flush_lsn from pg_replication_slots where slot_name = $1`, s.Slot())
	if got := s.Count(t, "aggregate_id = 'during'"); got != "0" || len(insert) != 0 {
		t.Fatalf("%s rows visible: the stall has not bitten", got)
	}
	if killed {
		p.Kill()
		p = s.Start(t)
	}
	since := time.Now()
	rig.Eventually(t, patience, "longer than wal_sender_timeout", func() bool {
		if got := s.DB.Query1(t, `select confirmed_flush_lsn from pg_replication_slots where slot_name = $1`, s.Slot()); got != at {
			t.Fatalf("confirmed %s while no commit came back, before %s", got, at)
		}
		return time.Since(since) > 12*time.Second
	})
	if after := walsender(t, s); !killed && after != serving {
		t.Fatalf("walsender %s before, %q after", serving, after)
	}

	p.State(map[bool]string{false: "blocked", true: "starting"}[killed])
	t.Logf("meanwhile the probe said %s", p.Get("/readyz?verbose"))

	standby.Start(t)
	if err := <-insert; err != nil {
		t.Fatal(err)
	}
	s.Insert(t, "after")
	s.Settled(t)
	p.Ready()
	p.Stop()
	restarts := map[bool]int{true: 1}[killed]
	rep := s.Judge(t, tr, nil, judge.Rules{Restarts: restarts, SkipsSettled: true, NoLines: true})
	whole(t, rep)
	if rep.Rows != 3 || rep.Duplicates > restarts {
		t.Fatalf("%d rows, %d repeated", rep.Rows, rep.Duplicates)
	}
}

// synchronous lets commits wait for a standby, until the test ends.
func synchronous(t *testing.T, db *harness.Database, name string) {
	t.Helper()
	set := func(stmt string) {
		db.Exec(t, stmt)
		db.Exec(t, `select pg_reload_conf()`)
	}
	set(fmt.Sprintf(`alter system set synchronous_standby_names = '"%s"'`, name))
	t.Cleanup(func() { set(`alter system reset synchronous_standby_names`) })
	rig.Eventually(t, patience, "a synchronous standby", func() bool {
		return db.Query1(t, `select count(*) from pg_stat_replication where sync_state = 'sync'`) == "1"
	})
}

// waitingInsert commits a row beside the test; the channel has the COMMIT's
// answer when there is one.
func waitingInsert(t *testing.T, s *rig.Site, key string) <-chan error {
	t.Helper()
	conn := s.DB.Conn(t)
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), `insert into public.outbox (aggregate_id, payload) values ($1, 'hi')`, key)
		answer <- err
	}()
	rig.Eventually(t, patience, "a COMMIT that waits", func() bool {
		return s.DB.Query1(t, `select count(*) from pg_stat_activity where wait_event = 'SyncRep' and pid = $1::int`, conn.PgConn().PID()) == "1"
	})
	return answer
}
