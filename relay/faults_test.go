package relay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// truth opens the judge's own slot; rows committed from now on count.
func (s *site) truth(t *testing.T) *judge.Truth {
	t.Helper()
	tr, err := judge.OpenTruth(t.Context(), judge.Dial(s.db.DSN()), judge.TruthOptions{Slot: "truth_" + s.db.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// judge gives the verdict over the whole run.
func (s *site) judge(t *testing.T, tr *judge.Truth, journal *judge.Journal, rules judge.Rules) judge.Report {
	t.Helper()
	conn := s.db.Conn(t)
	lines, err := judge.ReadLines(t.Context(), conn, "default", "public.outbox")
	if err != nil {
		t.Fatal(err)
	}
	return judge.Verdict(t, tr, [][]kafkaserver.Record{s.kafka.Dump(t, topic)}, lines, journal, rules)
}

func (s *site) activePID(t *testing.T) string {
	t.Helper()
	return s.db.Query1(t, `select coalesce(active_pid, 0) from pg_replication_slots where slot_name = $1`, s.slotName())
}

// stall makes every produce request fail until the returned func is called,
// and counts how many did.
func (s *site) stall() (bitten func() int, release func()) {
	n, over := 0, false
	s.kafka.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if over {
			return nil, nil, false
		}
		s.kafka.Cluster.KeepControl()
		n++
		return nil, errors.New("the broker is away"), true
	})
	return func() int { return n }, func() { over = true }
}

func streaming(t *testing.T, r *running) {
	t.Helper()
	eventually(t, "streaming", func() bool { return r.Status().State == relay.Streaming })
}

// TestBrokerOutageKeepsTheWalsender proves the beat on real servers: the
// broker is away for four times wal_sender_timeout, and the walsender stays,
// memory is bounded, and no row is blamed.
// Case F18 of docs/guarantees.md.
func TestBrokerOutageKeepsTheWalsender(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	tr := s.truth(t)
	r := s.start(t, func(c *relay.Config) {
		c.WALSenderTimeout = 2 * time.Second
		c.SpanRows = 50
	})
	streaming(t, r)
	s.insert(t, "warm")
	s.waitStatus(t, 2, 1)
	before := s.activePID(t)
	bitten, release := s.stall()
	s.db.Exec(t, `insert into public.outbox (aggregate_type, aggregate_id, event_type, payload) select 'order', 'k'||i%7, 'placed', 'hi' from generate_series(1,2000) i`)
	eventually(t, "the span is full", func() bool { return r.Status().HeldRows >= 50 })
	outage := time.Now()
	for time.Since(outage) < 8*time.Second {
		if st := r.Status(); st.HeldRows > 50 {
			t.Fatalf("%d rows held with a span of 50", st.HeldRows)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if bitten() == 0 {
		t.Fatal("the outage has not bitten")
	}
	release()
	s.waitStatus(t, 2, 2001)
	if after := s.activePID(t); after != before {
		t.Fatalf("walsender %s before the outage, %s after it", before, after)
	}
	if rep := s.judge(t, tr, nil, judge.Rules{}); rep.Waiting != 0 {
		t.Fatalf("%d rows refused for an outage", rep.Waiting)
	}
}

// TestRefusedRowAmong500 proves that one row that cannot be published leaves
// its neighbours in order, waits whole in its line with the reason, and that
// the rows of its key wait behind it.
// Case F47 of docs/guarantees.md.
func TestRefusedRowAmong500(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	tr := s.truth(t)
	r := s.start(t, nil)
	streaming(t, r)
	s.db.Exec(t, `insert into public.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
		select 'order', 'k'||i%10, 'placed', 'hi', case when i = 250 then '{"outbox-id": "forged"}'::jsonb else '{}' end from generate_series(1,500) i`)
	s.waitStatus(t, 3, 26) // row 250 and the 25 rows of k0 behind it
	s.waitStatus(t, 2, 474)
	s.judge(t, tr, nil, judge.Rules{})
	if got := s.db.Query1(t, `select count(*) || ' ' || min(error_class) from outbox_relay.line where parked_at is not null`); got != "1 encode" {
		t.Fatalf("lines: %s", got)
	}
	// A new session knows the held key from the table.
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = s.start(t, nil)
	streaming(t, r)
	s.insert(t, "k0", "k1")
	s.waitStatus(t, 3, 27)
	s.waitStatus(t, 2, 475)
	s.judge(t, tr, nil, judge.Rules{})
}

// TestServerCrashLosesNothing proves the position row: the server stops
// without a checkpoint under load, the slot comes back older than confirmed,
// and nothing is lost or out of order.
func TestServerCrashLosesNothing(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := newSite(t, pg)
	tr := s.truth(t)
	r := s.start(t, nil)
	streaming(t, r)
	journal := make(chan judge.Journal, 1)
	crash := make(chan struct{})
	go func() {
		n := 0
		j, err := judge.Workload{Connect: judge.Dial(s.db.DSN()), Seed: 7, Transactions: 600, BigRows: 2000, Rate: 150,
			Done: func(int) {
				if n++; n == 200 || n == 400 {
					crash <- struct{}{}
				}
			}}.Run(t.Context())
		if err != nil {
			t.Error(err)
		}
		close(crash)
		journal <- j
	}()
	crashes := 0
	for range crash {
		pg.Crash(t)
		pg.Start(t)
		crashes++
	}
	if crashes != 2 {
		t.Fatalf("%d crashes, want 2", crashes)
	}
	j := <-journal
	eventually(t, "nothing is READY", func() bool { return s.db.Query1(t, `select count(*) from public.outbox where status = 0`) == "0" })
	rep := s.judge(t, tr, &j, judge.Rules{Restarts: 2 * crashes, SkipsSettled: true})
	t.Logf("%v", rep)
}

// TestFastStopIsNotHeldUp proves I14: with rows in flight to a broker that is
// away, and idle, the server is down within seconds; after its restart the
// relay goes on.
func TestFastStopIsNotHeldUp(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := newSite(t, pg)
	tr := s.truth(t)
	r := s.start(t, nil)
	streaming(t, r)
	s.insert(t, "a")
	s.waitStatus(t, 2, 1)
	began := time.Now()
	pg.Stop(t, "fast")
	idle := time.Since(began)
	pg.Start(t)
	streaming(t, r)
	bitten, release := s.stall()
	s.insert(t, "a", "b", "c")
	eventually(t, "rows in flight", func() bool { return r.Status().HeldRows == 3 && bitten() > 0 })
	began = time.Now()
	pg.Stop(t, "fast")
	busy := time.Since(began)
	t.Logf("the server stopped in %v idle, in %v with rows in flight", idle, busy)
	if idle > 10*time.Second || busy > 10*time.Second {
		t.Fatal("the server was kept waiting")
	}
	release()
	pg.Start(t)
	s.waitStatus(t, 2, 4)
	s.judge(t, tr, nil, judge.Rules{Restarts: 4, SkipsSettled: true})
}

// TestEndOfTheQueryConnectionIsHeard proves the half of I14 that a quick server
// hides: the watch listens on its connection all the time, so that a shutdown
// is heard although nothing is asked and nothing is written.
func TestEndOfTheQueryConnectionIsHeard(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	r := s.start(t, func(c *relay.Config) { c.FactsEvery = time.Hour })
	streaming(t, r)
	before := s.activePID(t)
	s.db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like 'outbox_relay%admin%'`)
	eventually(t, "the next session", func() bool { now := s.activePID(t); return now != before && now != "0" })
}

// TestSecondRelayStandsBy proves that a busy slot is waited for, and taken
// over when the first relay leaves it.
// Case F32 of docs/guarantees.md.
func TestSecondRelayStandsBy(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	tr := s.truth(t)
	first := s.start(t, nil)
	streaming(t, first)
	second := s.start(t, nil)
	eventually(t, "standby", func() bool { return second.Status().State == relay.Standby })
	s.insert(t, "a")
	s.waitStatus(t, 2, 1)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	streaming(t, second)
	s.insert(t, "a")
	s.waitStatus(t, 2, 2)
	s.judge(t, tr, nil, judge.Rules{})
}

// TestOwnConnectionsEndAndTheSessionRecovers proves that each connection of
// ours may be ended by an administrator, one kind at a time.
// Case F21 of docs/guarantees.md.
func TestOwnConnectionsEndAndTheSessionRecovers(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	tr := s.truth(t)
	r := s.start(t, nil)
	streaming(t, r)
	n := 0
	for _, which := range []string{`backend_type = 'walsender'`, `application_name like 'outbox_relay%admin%'`, `application_name like 'outbox_relay%' and backend_type = 'client backend' and application_name not like '%admin%'`} {
		ended := s.db.Query1(t, fmt.Sprintf(`select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and %s`, which))
		if ended == "0" {
			t.Fatalf("no connection where %s", which)
		}
		s.insert(t, "a")
		n++
		s.waitStatus(t, 2, n)
	}
	s.judge(t, tr, nil, judge.Rules{Restarts: 3, SkipsSettled: true})
}

// TestBrokenPublicationIsLoud proves that a publication that is dropped or
// narrowed while rows are written ends in state failed, on every generation
// of servers, also when the role hides warnings.
// Case F7 of docs/guarantees.md.
func TestBrokenPublicationIsLoud(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 17, 18} {
		for name, stmt := range map[string]string{
			"dropped":  `drop publication outbox_relay_pub`,
			"emptied":  `alter publication outbox_relay_pub drop table public.outbox`,
			"narrowed": `alter publication outbox_relay_pub set (publish = 'update')`,
			"filtered": `alter publication outbox_relay_pub set table public.outbox where (id > 0)`,
		} {
			t.Run(fmt.Sprintf("%d %s", major, name), func(t *testing.T) {
				t.Parallel()
				harness.Need(t, harness.PostgresMajor(major))
				s := newSite(t, harness.SharedPostgres(t, major))
				s.db.Exec(t, fmt.Sprintf(`alter role postgres in database %s set client_min_messages = 'error'`, s.db.Name()))
				r := s.start(t, func(c *relay.Config) { c.FactsEvery = time.Second })
				streaming(t, r)
				s.insert(t, "a")
				s.waitStatus(t, 2, 1)
				s.db.Exec(t, stmt)
				s.insert(t, "hidden")
				eventually(t, "failed", func() bool { return r.Status().State == relay.Failed })
				t.Log(r.Status().Reason)
				if !strings.Contains(r.Status().Reason, "ublication") {
					t.Fatalf("the reason does not name the publication: %s", r.Status().Reason)
				}
			})
		}
	}
}

// TestMissingSlotIsAnIncident proves that a slot which is gone although a
// position is known is never made anew in silence, even with on_missing
// create; that a slot which somebody moved ahead is found out; and that nothing
// is read from a server whose log ends before the position: it would start
// there in silence, and pass over what commits up to there.
// Case F30 of docs/guarantees.md.
func TestMissingSlotIsAnIncident(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"missing": `select pg_drop_replication_slot($1)`,
		"ahead":   `select pg_replication_slot_advance($1, pg_current_wal_lsn())`,
		"rewound": `update outbox_relay.position set lsn = pg_current_wal_lsn() + 1000000000 where slot = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, harness.SharedPostgres(t, 0))
			r := s.start(t, nil)
			streaming(t, r)
			s.insert(t, "a")
			s.waitStatus(t, 2, 1)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			s.insert(t, "b")
			s.db.Exec(t, damage, s.slotName())
			r = s.start(t, nil)
			eventually(t, "failed", func() bool { return r.Status().State == relay.Failed })
			var fatal *relay.FatalError
			if err := r.stop(); !errors.As(err, &fatal) || fatal.ExitCode != 10 {
				t.Fatalf("run returned %v, want exit code 10", err)
			}
			s.waitStatus(t, 2, 1)
			if n := s.db.Query1(t, `select count(*) from pg_replication_slots where slot_name = $1`, s.slotName()); name == "missing" && n != "0" {
				t.Fatal("the slot was made anew")
			}
		})
	}
}

// TestSynchronousStandbyIsRefused proves that the relay never becomes the
// standby that commits wait for.
func TestSynchronousStandbyIsRefused(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := newSite(t, pg)
	s.db.Exec(t, `alter system set synchronous_standby_names = '*'`)
	s.db.Exec(t, `select pg_reload_conf()`)
	t.Cleanup(func() { // else the clean-up's own commits would wait for ever
		s.db.Exec(t, `alter system reset synchronous_standby_names`)
		s.db.Exec(t, `select pg_reload_conf()`)
	})
	eventually(t, "the setting", func() bool { return s.db.Query1(t, `show synchronous_standby_names`) == "*" })
	r := s.start(t, nil)
	eventually(t, "failed", func() bool { return r.Status().State == relay.Failed })
	var fatal *relay.FatalError
	if err := r.stop(); !errors.As(err, &fatal) || !strings.Contains(fatal.Error(), "synchronous") {
		t.Fatalf("run returned %v", err)
	}
}

// TestLineFaultIsNobodysFault proves that a topic that is not authorised
// blames no row, and heals.
func TestLineFaultIsNobodysFault(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	tr := s.truth(t)
	r := s.start(t, func(c *relay.Config) { c.FactsEvery = 200 * time.Millisecond })
	streaming(t, r)
	refusals := 0
	s.kafka.Cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if refusals >= 3 {
			return nil, nil, false
		}
		s.kafka.Cluster.KeepControl()
		refusals++
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range produce.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.TopicAuthorizationFailed.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	s.insert(t, "a", "a", "a", "a")
	s.waitStatus(t, 2, 4)
	if refusals < 3 {
		t.Fatal("the fault has not bitten")
	}
	s.judge(t, tr, nil, judge.Rules{})
}
