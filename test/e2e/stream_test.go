package e2e

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// TestKillNineUnderLoad proves I11 and the shape of duplicates: the relay is
// killed six times while eight writers commit, savepoints, rollbacks, COPY and
// big transactions among them; every committed row is in Kafka, first copies
// are in commit order per key, and what is repeated is a contiguous slice but
// for rows that were settled, and no more than the span for each kill.
func TestKillNineUnderLoad(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	s := newSite(t, harness.SharedPostgres(t, 0), harness.SharedKafka(t))
	const kills, span, batch = 6, 1000, 500
	s.set("limits", "span_rows", span)
	s.set("write_back", "rows", batch)
	tr := s.truth(t)
	p := s.start(t)
	p.ready()
	due := make(chan struct{}, kills)
	var done atomic.Int64
	journal := make(chan judge.Journal, 1)
	go func() {
		defer close(due)
		journal <- s.workload(t, judge.Workload{Seed: 11, Transactions: 900, BigRows: 5000, Rate: 120, Done: func(int) {
			if n := done.Add(1); n%120 == 0 && n/120 <= kills {
				due <- struct{}{}
			}
		}})
	}()
	n, settled := 0, map[string]bool{}
	for range due {
		p.kill()
		n++
		s.rig.Released(t)
		maps.Copy(settled, s.rig.SentIDs(t))
		p = s.start(t)
		p.ready()
	}
	j := <-journal
	if n != kills {
		t.Fatalf("%d kills, want %d", n, kills)
	}
	s.settled(t)
	rep := s.judge(t, tr, &j, judge.Rules{Restarts: n, Settled: settled, NoLines: true})
	if most := n * (span + batch); rep.Published == 0 || rep.Duplicates > most {
		t.Fatalf("%d rows published, %d repeated; want at most %d", rep.Published, rep.Duplicates, most)
	}
}

// TestSIGTERMUnderLoadRepeatsNothing proves the two phases of a stop: with
// writers running, five stops and starts leave no duplicate.
// Case F52 of docs/guarantees.md.
func TestSIGTERMUnderLoadRepeatsNothing(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	s := newSite(t, harness.SharedPostgres(t, 0), harness.SharedKafka(t))
	tr := s.truth(t)
	p := s.start(t)
	p.ready()
	journal := make(chan judge.Journal, 1)
	go func() {
		journal <- s.workload(t, judge.Workload{Seed: 5, Transactions: 600, BigRows: 2000, Rate: 100})
	}()
	for i := range 5 {
		before := len(s.kafka.Dump(t, s.topic))
		eventually(t, time.Minute, "the stream moves", func() bool { return len(s.kafka.Dump(t, s.topic)) > before+20 })
		p.stop()
		if !strings.Contains(p.log.String(), "everything received is settled and confirmed") {
			t.Errorf("stop %d: the relay did not see its last confirm in the catalog", i)
		}
		p = s.start(t)
		p.ready()
	}
	j := <-journal
	s.settled(t)
	if rep := s.judge(t, tr, &j, judge.Rules{}); rep.Duplicates != 0 {
		t.Fatalf("%d duplicates after clean restarts", rep.Duplicates)
	}
}

// TestBrokerStopped60s proves the beat on a real broker: it is down for a
// minute with wal_sender_timeout at 3 s; the walsender stays the same,
// memory is bounded, and no row is refused.
// Case F18 of docs/guarantees.md.
func TestBrokerStopped60s(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	k := harness.StartKafka(t, harness.KafkaOptions{})
	s := newSite(t, harness.SharedPostgres(t, 0), k)
	s.set("slot", "wal_sender_timeout", "3s")
	tr := s.truth(t)
	p := s.start(t)
	p.ready()
	s.insert(t, "warm")
	s.settled(t)
	pid := func() string {
		return s.db.Query1(t, `select coalesce(active_pid, 0) from pg_replication_slots where slot_name = $1`, "s_"+s.db.Name())
	}
	before, memory := pid(), p.rssMB()
	k.Stop(t, 1)
	down := time.Now()
	s.db.Exec(t, `insert into public.outbox (aggregate_id, payload) select 'k' || i % 50, convert_to(repeat('x', 500), 'UTF8') from generate_series(1, 200000) i`)
	peak := 0
	eventually(t, 2*time.Minute, "a minute without the broker", func() bool {
		peak = max(peak, p.rssMB())
		return time.Since(down) > time.Minute
	})
	if s.count(t, "status <> 2") != "200000" {
		t.Fatal("the outage has not bitten: rows changed while the broker was down")
	}
	k.Start(t, 1)
	s.settled(t)
	if after := pid(); after != before {
		t.Fatalf("walsender %s before, %s after: the connection was lost", before, after)
	}
	t.Logf("memory: %d MiB before, at most %d MiB in the outage", memory, peak)
	if peak > memory+64 {
		t.Errorf("memory grew from %d to %d MiB", memory, peak)
	}
	if rep := s.judge(t, tr, nil, judge.Rules{}); rep.Waiting != 0 || rep.Duplicates != 0 {
		t.Fatalf("%d rows refused, %d repeated for an outage", rep.Waiting, rep.Duplicates)
	}
}

// TestPausedRelayIsOvertakenAndWritesNothing proves I13 end to end: a relay
// frozen with SIGSTOP loses the slot to a second one; woken, it changes
// nothing in the database and stands by.
func TestPausedRelayIsOvertakenAndWritesNothing(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	s := newSite(t, harness.SharedPostgres(t, 0), harness.SharedKafka(t))
	s.set("slot", "wal_sender_timeout", "3s")
	tr := s.truth(t)
	first := s.start(t)
	first.ready()
	s.insert(t, "a", "b")
	s.settled(t)
	first.signal(syscall.SIGSTOP)
	second := s.start(t)
	second.ready()
	s.insert(t, "a", "c")
	s.settled(t)
	state := func() string {
		return s.db.Query1(t, `select p.session::text || p.lsn::text || (select string_agg(id || ':' || status, ',' order by id) from public.outbox) from outbox_relay.position p`)
	}
	before := state()
	first.signal(syscall.SIGCONT)
	first.state("standby")
	if after := state(); after != before {
		t.Fatalf("the woken relay changed something:\n%s\n%s", before, after)
	}
	s.insert(t, "d")
	s.settled(t)
	s.judge(t, tr, nil, judge.Rules{Restarts: 1, SkipsSettled: true})
}

// TestOneOversizedRowAmong500 proves on a real broker that a row larger than
// its topic allows is refused with both sizes before it is sent, and that
// nothing else is touched.
// Cases F37, F38 of docs/guarantees.md.
func TestOneOversizedRowAmong500(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	s := newSite(t, harness.SharedPostgres(t, 0), harness.SharedKafka(t))
	small := s.topic + ".small"
	s.kafka.CreateTopic(t, small, 2, map[string]string{"max.message.bytes": "10000"})
	p := s.start(t)
	p.ready()
	s.db.Exec(t, fmt.Sprintf(`insert into public.outbox (aggregate_id, topic, payload)
		select 'k' || i %% 10, '%s', convert_to(repeat('x', case when i = 250 then 20000 else 100 end), 'UTF8') from generate_series(1, 500) i`, small))
	s.settled(t)
	if failed := s.count(t, "status = 3"); failed != "26" {
		t.Fatalf("%s rows FAILED, want the oversized one and the 25 behind it", failed)
	}
	if n := len(s.kafka.Dump(t, small)); n != 474 {
		t.Fatalf("%d records, want 474", n)
	}
	detail := s.db.Query1(t, `select error_class || ' ' || error_detail from outbox_relay.line`)
	if !strings.Contains(detail, "too_large") || !strings.Contains(detail, "10000") {
		t.Fatalf("the reason does not say both sizes: %s", detail)
	}
}

// TestMetricsAreServed proves that the listener gives the stream's metrics by
// their names, without a duplicate (which would be an error of the whole
// answer), while rows flow.
func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0), harness.StartKfake(t, harness.KfakeOptions{}))
	p := s.start(t)
	p.ready()
	s.insert(t, "a", "b", "c")
	s.settled(t)
	var text string
	eventually(t, 30*time.Second, "the facts are read", func() bool {
		text = p.get("/metrics")
		return strings.Contains(text, "outbox_relay_slot_lag_bytes{") && strings.Contains(text, `outcome="shown"`) && !strings.Contains(text, `outcome="shown",slot="s_`+s.db.Name()+`"} 0`)
	})
	slot := fmt.Sprintf(`slot="s_%s"`, s.db.Name())
	for _, want := range []string{
		`outbox_relay_state{` + slot + `,state="streaming"} 1`,
		`outbox_relay_rows_received_total{op="insert",` + slot + `} 3`,
		`outbox_relay_records_published_total{` + slot + `,source="stream",topic="` + s.topic + `"} 3`,
		`outbox_relay_status_updates_total{outcome="shown",` + slot + `} 3`,
		`outbox_relay_inflight_records{` + slot + `} 0`,
		`outbox_relay_publication_ok{publication="outbox_relay_pub",` + slot + `} 1`,
		`outbox_relay_slot_active{` + slot + `} 1`,
		`outbox_relay_commit_to_ack_seconds_count{` + slot + `} 3`,
		"outbox_relay_build_info{", "outbox_relay_kafka_connects_total{", "go_goroutines", "process_resident_memory_bytes",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
