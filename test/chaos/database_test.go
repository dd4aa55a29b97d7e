package chaos

import (
	"errors"
	"strconv"
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
	whole(t, s.Judge(t, tr, j, judge.Rules{Restarts: sessions - 1, SkipsSettled: true, NoLines: true}))
}

// whole wants every row published: no fault here may cost one its place.
func whole(t *testing.T, rep judge.Report) {
	t.Helper()
	if rep.Rows == 0 || rep.Published != rep.Rows || rep.Waiting != 0 {
		t.Errorf("%d rows, %d published, %d waiting; want all published", rep.Rows, rep.Published, rep.Waiting)
	}
}

// streams counts the sessions that a relay has begun.
func streams(p *rig.Process) int { return strings.Count(p.Log.String(), `"msg":"streaming"`) }

// TestServerCrashesUnderLoad proves the position row against real servers: the
// database stops without a checkpoint three times while eight writers commit,
// once by SIGKILL of its first process, and the slot comes back older than what
// was confirmed.
func TestServerCrashesUnderLoad(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.SharedKafka(t)})
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	f := s.Flow(t, judge.Workload{Seed: 3, BigRows: 2000, Rate: 100})
	modes, older := []string{"immediate", "kill", "immediate"}, 0
	for _, mode := range modes {
		f.More(100)
		if crashed(t, s, pg, mode) {
			older++
		}
	}
	f.More(100)
	j := f.Stop()
	s.Settled(t)
	skipped := sample(t, p, `outbox_relay_rows_skipped_total{reason="settled",slot="`+s.Slot()+`"}`)
	p.Stop()
	if n := strings.Count(pg.Log(), "was not properly shut down"); n != len(modes) {
		t.Fatalf("the server recovered %d times, want %d", n, len(modes))
	}
	t.Logf("the slot came back older %d times, %v settled rows were skipped", older, skipped)
	if older == 0 {
		t.Fatal("the slot never came back older than confirmed: the crashes have not bitten")
	}
	whole(t, s.Judge(t, tr, j, judge.Rules{Restarts: streams(p) - 1, SkipsSettled: true, NoLines: true}))
}

// crashed stops a server without a checkpoint, starts it again, and says
// whether the site's slot came back older than it was.
func crashed(t *testing.T, s *rig.Site, pg *harness.Postgres, mode string) (older bool) {
	t.Helper()
	const confirmed = `select confirmed_flush_lsn from pg_replication_slots where slot_name = $1`
	before, pid := s.DB.Query1(t, confirmed, s.Slot()), pg.Pid()
	pg.Stop(t, mode)
	// After a SIGKILL the others of its processes see that it is gone one by
	// one; as long as any is there, the server refuses to start.
	rig.Eventually(t, patience, "the server starts", func() bool { return pg.Server.Start(t.Context()) == nil })
	if pg.Pid() == pid {
		t.Fatalf("the server is still process %d", pid)
	}
	return s.DB.Query1(t, `select confirmed_flush_lsn < $2::text::pg_lsn from pg_replication_slots where slot_name = $1`, s.Slot(), before) == "t"
}

// sample is one number of a relay's metrics; its absence fails the test.
func sample(t *testing.T, p *rig.Process, name string) float64 {
	t.Helper()
	for line := range strings.Lines(p.Get("/metrics")) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
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
// Case F51 of docs/guarantees.md.
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
	whole(t, s.Judge(t, tr, j, judge.Rules{Restarts: streams(p) - 1, SkipsSettled: true, NoLines: true}))
}

// TestTwoRelaysAtOnce proves that two relays which start at the same moment,
// under load, share no row: five times, one streams and the other waits until
// it is its turn, however far the first one gets meanwhile; nothing is
// published twice.
// Case F32 of docs/guarantees.md.
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
	rep := s.Judge(t, tr, j, judge.Rules{NoLines: true})
	whole(t, rep)
	if rep.Duplicates != 0 {
		t.Fatalf("%d rows repeated", rep.Duplicates)
	}
}

// TestReadOnlyForAWhile proves that a server made read-only by its default,
// without a session killed, costs a delay: rows written meanwhile by whoever
// may are settled when it ends, by the same process.
// Case F5 of docs/guarantees.md.
func TestReadOnlyForAWhile(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "before")
	s.Settled(t)
	conn := s.DB.Conn(t)
	set := func(stmt string) {
		t.Helper()
		exec(t, conn, stmt)
		exec(t, conn, `select pg_reload_conf()`)
	}
	set(`alter system set default_transaction_read_only = on`)
	rig.Eventually(t, patience, "the server is read-only", func() bool { return s.DB.Query1(t, `show default_transaction_read_only`) == "on" })
	rows, since := 1, time.Now()
	next := since
	rig.Eventually(t, patience, "30 s read-only", func() bool {
		if time.Now().After(next) {
			exec(t, conn, `begin; set transaction read write; insert into public.outbox (aggregate_id, payload) values ('during', 'hi'); commit`)
			rows, next = rows+1, next.Add(3*time.Second)
		}
		return time.Since(since) > 30*time.Second
	})
	bites := strings.Count(pg.Log(), "in a read-only transaction")
	t.Logf("%d rows, %s of them settled meanwhile, %d times refused, %d sessions, the probe said %s", rows, s.Count(t, "status = 2"), bites, streams(p), p.Get("/readyz?verbose"))
	if bites == 0 {
		t.Fatal("the server refused nothing: the setting has not bitten")
	}
	set(`alter system reset default_transaction_read_only`)
	s.Settled(t)
	p.Ready()
	if got := s.Count(t, "status = 2"); got != strconv.Itoa(rows) {
		t.Errorf("%s rows SENT, want %d", got, rows)
	}
	p.Stop() // the process that was started: it never ended
	whole(t, s.Judge(t, tr, nil, judge.Rules{Restarts: streams(p) - 1, SkipsSettled: true, NoLines: true}))
}
