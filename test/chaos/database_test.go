package chaos

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestWalsenderEndedTwentyTimes proves that a lost stream costs nothing but a
// replay: the backend that serves it is ended twenty times under load, in four
// lives of the relay.
func TestWalsenderEndedTwentyTimes(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	f := s.Flow(t, judge.Workload{Seed: 20, BigRows: 500, Rate: 40})
	last, ended, sessions := "", 0, 0
	for range 4 {
		p := s.Start(t)
		for range 5 {
			rig.Eventually(t, patience, "another walsender", func() bool {
				pid := walsender(t, s)
				return pid != "" && pid != last
			})
			last = walsender(t, s)
			f.More(10)
			if got := s.DB.Query1(t, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, s.Slot()); got != "t" {
				t.Fatalf("walsender %s: nothing was ended: %q", last, got)
			}
			ended++
		}
		rig.Eventually(t, patience, "the next session", func() bool { return streams(p) == 6 })
		p.Stop()
		sessions += streams(p)
	}
	p := s.Start(t)
	j := f.Stop()
	s.Settled(t)
	p.Stop()
	sessions += streams(p)
	if ended != 20 || sessions < 24 {
		t.Fatalf("%d walsenders ended, %d sessions: the faults have not bitten", ended, sessions)
	}
	s.Judge(t, tr, j, judge.Rules{Restarts: sessions - 1, SkipsSettled: true})
}

// streams counts the sessions that a relay has begun.
func streams(p *rig.Process) int { return strings.Count(p.Log.String(), `"msg":"streaming"`) }

// TestServerCrashesUnderLoad proves the position row against real servers: the
// database stops without a checkpoint three times while eight writers commit,
// and the slot comes back older than what was confirmed.
func TestServerCrashesUnderLoad(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.SharedKafka(t)})
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	f := s.Flow(t, judge.Workload{Seed: 3, BigRows: 2000, Rate: 100})
	const crashes = 3
	for range crashes {
		f.More(100)
		pid := pg.Pid()
		pg.Crash(t)
		pg.Start(t)
		if pg.Pid() == pid {
			t.Fatalf("the server is still process %d", pid)
		}
	}
	f.More(100)
	j := f.Stop()
	s.Settled(t)
	p.Stop()
	if n := strings.Count(pg.Log(), "was not properly shut down"); n != crashes {
		t.Fatalf("the server recovered %d times, want %d", n, crashes)
	}
	s.Judge(t, tr, j, judge.Rules{Restarts: streams(p) - 1, SkipsSettled: true})
}

// stall makes every produce request of the broker fail until release is
// called; bitten counts them.
func stall(k *harness.Kfake) (bitten func() int, release func()) {
	counts, over := make(chan int, 1), make(chan struct{})
	counts <- 0
	k.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-over:
			return nil, nil, false
		default:
		}
		k.Cluster.KeepControl()
		counts <- 1 + <-counts
		return nil, errors.New("the broker is away"), true
	})
	bitten = func() int {
		n := <-counts
		counts <- n
		return n
	}
	return bitten, func() { close(over) }
}

// TestFastStopUnderLoad proves I14 on the built program: a server in fast
// shutdown is down within 10 s although rows are in flight, first with a broker
// that answers, then with one that is away; and nothing is lost by it.
func TestFastStopUnderLoad(t *testing.T) {
	t.Parallel()
	k := harness.StartKfake(t, harness.KfakeOptions{})
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: k})
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	f := s.Flow(t, judge.Workload{Seed: 4, BigRows: 2000, Rate: 100})
	stop := func(how string) {
		t.Helper()
		began := time.Now()
		pg.Stop(t, "fast")
		took := time.Since(began)
		t.Logf("%s: the server was down after %v", how, took)
		if took > 10*time.Second {
			t.Errorf("%s: the server was kept waiting for %v", how, took)
		}
		pg.Start(t)
	}
	f.More(100)
	stop("broker answers")
	f.More(100)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload) values ('before the stall', 'hi')`)
	rig.Eventually(t, patience, "the relay is back", func() bool { return s.Count(t, "aggregate_id = 'before the stall' and status = 2") == "1" })
	bitten, release := stall(k)
	f.More(50)
	rig.Eventually(t, patience, "rows in flight", func() bool {
		return bitten() > 0 && !strings.Contains(p.Get("/metrics"), `outbox_relay_inflight_records{slot="`+s.Slot()+`"} 0`)
	})
	stop("broker away")
	release()
	f.More(50)
	j := f.Stop()
	s.Settled(t)
	p.Stop()
	if n := strings.Count(pg.Log(), "received fast shutdown request"); n != 2 {
		t.Fatalf("%d fast shutdowns, want 2", n)
	}
	s.Judge(t, tr, j, judge.Rules{Restarts: streams(p) - 1, SkipsSettled: true})
}

// TestTwoRelaysAtOnce proves that two relays which start at the same moment,
// under load, share no row: five times, one streams and the other waits until
// it is its turn, however far the first one gets meanwhile; nothing is
// published twice.
func TestTwoRelaysAtOnce(t *testing.T) {
	t.Parallel()
	s := kfakeSite(t, 0)
	tr := s.Truth(t)
	f := s.Flow(t, judge.Workload{Seed: 2, Rate: 100})
	for range 5 {
		relays := []*rig.Process{s.Start(t), s.Start(t)}
		winner, loser := relays[0], relays[1]
		rig.Eventually(t, patience, "one streams and one stands by", func() bool {
			if !winner.Running() || !loser.Running() {
				t.Fatal("a relay has ended")
			}
			if winner.StateNow() == "standby" {
				winner, loser = loser, winner
			}
			return winner.StateNow() == "streaming" && loser.StateNow() == "standby"
		})
		f.More(200) // some tries of the loser
		if streams(loser) != 0 {
			t.Fatal("both relays have streamed")
		}
		says(t, loser, "another relay owns the slot")
		winner.Stop()
		loser.State("streaming", "catching_up")
		f.More(20)
		loser.Stop()
	}
	p := s.Start(t)
	j := f.Stop()
	p.Ready()
	s.Settled(t)
	p.Stop()
	if rep := s.Judge(t, tr, j, judge.Rules{}); rep.Duplicates != 0 {
		t.Fatalf("%d rows repeated", rep.Duplicates)
	}
}
