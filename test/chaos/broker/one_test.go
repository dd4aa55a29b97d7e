package broker

import (
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestKilledBrokerCostsNothing proves that a broker killed with SIGKILL under
// load, twice, costs no row, no copy and no place in the order: the producer
// lives on, and the broker finds its sequence numbers in the log again.
func TestKilledBrokerCostsNothing(t *testing.T) {
	t.Parallel()
	k := harness.StartKafka(t, harness.KafkaOptions{})
	s := newSite(t, k)
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 41, Rate: 60})
	for range 2 {
		p.publishes(s.Topic, 500)
		pid := k.Pid(1)
		k.Kill(t, 1)
		sent := s.rows(t, "status = 2")
		f.More(60)
		if waiting := p.metric("outbox_relay_inflight_records"); waiting < 100 {
			t.Fatalf("the fault has not bitten: %v rows wait, %d were shown before and %d after", waiting, sent, s.rows(t, "status = 2"))
		}
		revive(t, k, 1)
		if after := k.Pid(1); after == pid || after == 0 {
			t.Fatalf("broker %d before, %d after", pid, after)
		}
		p.publishes(s.Topic, 500)
	}
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}))
}

// TestPausedBrokerDelaysAndNothingElse proves that a broker frozen for 20 s
// with its connections open, the kind of outage that looks like slowness, is
// named, and costs neither a row nor the walsender, whose patience is 3 s.
func TestPausedBrokerDelaysAndNothingElse(t *testing.T) {
	t.Parallel()
	k := harness.StartKafka(t, harness.KafkaOptions{})
	s := newSite(t, k)
	s.Set("slot", "wal_sender_timeout", "3s")
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 42, Rate: 30})
	p.publishes(s.Topic, 500)
	before := s.walsender(t)
	k.Pause(t, 1)
	since := time.Now()
	stopped(t, k.Pid(1))
	reason := p.blocked(s.Topic, "no acknowledgement")
	t.Logf("named after %v: %s", time.Since(since), reason)
	published := p.published(s.Topic)
	longer(t, since, 20*time.Second)
	if after := p.published(s.Topic); after != published {
		t.Fatalf("the fault has not bitten: %d records before, %d after", published, after)
	}
	k.Resume(t, 1)
	back := time.Now()
	p.publishes(s.Topic, 500)
	p.healthy()
	t.Logf("healthy %v after the broker was", time.Since(back))
	j := f.Stop()
	s.drained(t)
	if after := s.walsender(t); after != before {
		t.Errorf("walsender %s before, %s after: the connection was lost", before, after)
	}
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}))
}

// TestRelayKilledInAnOutage proves that nothing depends on the relay's memory:
// it is killed with the span full while the broker is away, three times: with
// requests on their way that the frozen broker will still store, as one that
// never reached a broker, and under a broker that was killed. Every row is
// published, and the copies come as replays of slices.
func TestRelayKilledInAnOutage(t *testing.T) {
	t.Parallel()
	k := harness.StartKafka(t, harness.KafkaOptions{})
	s := newSite(t, k)
	const span = 2000
	s.Set("limits", "span_rows", span)
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 43, Rate: 60})
	settled := map[string]bool{}
	die := func(p *process) {
		t.Helper()
		rig.Eventually(t, patience, "the span to be full", func() bool {
			return p.metric("outbox_relay_inflight_records") >= span && p.metric("outbox_relay_backpressure_seconds_total") > 0
		})
		p.Signal(syscall.SIGKILL)
		if by := p.KilledBy(); by != syscall.SIGKILL {
			t.Fatalf("the relay ended by %v", by)
		}
		s.Released(t)
		maps.Copy(settled, s.SentIDs(t))
	}
	p.publishes(s.Topic, 500)
	k.Pause(t, 1)
	stopped(t, k.Pid(1))
	die(p)
	die(s.start(t))
	k.Resume(t, 1)
	p = s.streaming(t)
	p.publishes(s.Topic, span)
	k.Kill(t, 1)
	die(p)
	p = s.start(t)
	t.Log(p.blocked("connection refused"))
	j := f.Stop()
	revive(t, k, 1)
	s.drained(t)
	p.healthy()
	s.refusedNothing(t)
	rep := s.verdict(t, tr, j, judge.Rules{Restarts: 3, Settled: settled, NoLines: true})
	if most := 3 * (span + 500); rep.Published < span || rep.Duplicates == 0 || rep.Duplicates > most {
		t.Fatalf("%d rows published; %d copies, want some, for requests were on their way, and at most %d", rep.Published, rep.Duplicates, most)
	}
}
