package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestThreeNodes runs what needs leaders, followers and a quorum, one after the
// other on one cluster. Each leaves the cluster whole.
// Cases F41, F45 of docs/guarantees.md.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	k := harness.StartKafka(t, harness.KafkaOptions{Nodes: 3})
	t.Run("LeadersMove", func(t *testing.T) { leadersMove(t, k) })
	t.Run("LeaderIsKilled", func(t *testing.T) { leaderIsKilled(t, k) })
	t.Run("TooFewReplicas", func(t *testing.T) { tooFewReplicas(t, k) })
}

// replicated is a site whose topic has three copies, of which two must be in
// sync.
func replicated(t *testing.T, k *harness.Kafka) (*site, *kadm.Client) {
	t.Helper()
	s, a := newSite(t, k), admin(t, k.Brokers())
	setTopic(t, a, s.Topic, "min.insync.replicas", "2")
	whole(t, a, s.Topic)
	return s, a
}

// whole waits until every partition has all its copies in sync.
func whole(t *testing.T, a *kadm.Client, topic string) {
	t.Helper()
	rig.Eventually(t, patience, "all copies in sync", func() bool { return inSync(t, a, topic) })
}

func inSync(t *testing.T, a *kadm.Client, topic string) bool {
	t.Helper()
	for _, p := range partitions(t, a, topic) {
		if len(p.ISR) != 3 || p.Leader < 0 {
			return false
		}
	}
	return true
}

// leadersMove proves that planned moves of leaders under load, five of each
// partition, cost no row, no copy and no place in the order.
func leadersMove(t *testing.T, k *harness.Kafka) {
	s, a := replicated(t, k)
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 51, Rate: 40})
	p.publishes(s.Topic, 300)
	const rounds = 5
	before := partitions(t, a, s.Topic)
	for range rounds {
		moveLeaders(t, a, s.Topic)
		p.publishes(s.Topic, 100)
	}
	moves := 0
	for n, after := range partitions(t, a, s.Topic) {
		moves += int(after.LeaderEpoch - before[n].LeaderEpoch)
	}
	if moves < rounds*len(before) {
		t.Fatalf("the fault has not bitten: leader epochs rose by %d in all, want %d", moves, rounds*len(before))
	}
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}))
	t.Logf("%d moves", moves)
}

// moveLeaders makes the next copy of every partition its preferred one, has it
// elected, and waits until it leads.
func moveLeaders(t *testing.T, a *kadm.Client, topic string) {
	t.Helper()
	var plan kadm.AlterPartitionAssignmentsReq
	want := map[int32]int32{}
	var all kadm.TopicsSet
	for n, p := range partitions(t, a, topic) {
		turned := append(p.Replicas[1:len(p.Replicas):len(p.Replicas)], p.Replicas[0])
		want[n] = turned[0]
		plan.Assign(topic, n, turned)
		all.Add(topic, n)
	}
	answers, err := a.AlterPartitionAssignments(t.Context(), plan)
	must(t, err)
	must(t, answers.Error())
	rig.Eventually(t, patience, "leaders to move", func() bool {
		for n, p := range partitions(t, a, topic) {
			if p.Leader != want[n] {
				_, err := a.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, all)
				must(t, err)
				return false
			}
		}
		return true
	})
}

// leaderIsKilled proves that a leader killed with SIGKILL costs a pause: the
// stream goes on while it is away, and no row, copy or place is lost.
func leaderIsKilled(t *testing.T, k *harness.Kafka) {
	s, a := replicated(t, k)
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 52, Rate: 40})
	p.publishes(s.Topic, 300)
	before := partitions(t, a, s.Topic)[0]
	victim := int(before.Leader)
	pid := k.Pid(victim)
	k.Kill(t, victim)
	began := time.Now()
	rig.Eventually(t, patience, "another leader", func() bool {
		now := partitions(t, a, s.Topic)[0]
		return now.Leader >= 0 && now.Leader != before.Leader && now.LeaderEpoch > before.LeaderEpoch
	})
	t.Logf("another leader after %v", time.Since(began))
	f.More(20)
	sent := s.rows(t, "status = 2")
	rig.Eventually(t, patience, "rows SENT while a node is away", func() bool { return s.rows(t, "status = 2") > sent+300 })
	revive(t, k, victim)
	if after := k.Pid(victim); after == pid || after == 0 {
		t.Fatalf("node %d is process %d, was %d", victim, after, pid)
	}
	p.publishes(s.Topic, 300)
	whole(t, a, s.Topic)
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}))
}

// tooFewReplicas proves that brokers which refuse for want of copies in sync
// refuse no row: for 15 s two of three nodes are away. One relay lives through
// it and repeats nothing; another gets SIGTERM in the middle, ends within its
// grace all the same, and its successor loses nothing.
func tooFewReplicas(t *testing.T, k *harness.Kafka) {
	s, a := replicated(t, k)
	s2, _ := replicated(t, k)
	const grace = 2 * time.Second
	s2.Set("shutdown", "grace", grace.String())
	tr, tr2 := s.Truth(t), s2.Truth(t)
	p, p2 := s.streaming(t), s2.streaming(t)
	f, f2 := s.Flow(t, judge.Workload{Seed: 53, Rate: 20}), s2.Flow(t, judge.Workload{Seed: 54, Rate: 20})
	p.publishes(s.Topic, 200)
	p2.publishes(s2.Topic, 200)
	k.Stop(t, 2)
	k.Stop(t, 3)
	refusal(t, k, s.Topic)
	since, sent := time.Now(), s.rows(t, "status = 2")
	t.Logf("named: %s", p.blocked(s.Topic, "no acknowledgement"))
	f2.More(10)

	p2.blocked(s2.Topic)
	told := time.Now()
	p2.Signal(syscall.SIGTERM)
	if code := p2.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM in an outage", code)
	}
	if took := time.Since(told); took < grace || took > grace+10*time.Second {
		t.Errorf("the relay ended after %v with a grace of %v", took, grace)
	}
	if !strings.Contains(p2.Log.String(), "stopping with rows unsettled") {
		t.Error("the relay does not say that it left rows behind")
	}
	p2 = s2.start(t)

	longer(t, since, 15*time.Second)
	if now := s.rows(t, "status = 2"); now != sent {
		t.Fatalf("the fault has not bitten: %d rows SENT at its beginning, %d at its end", sent, now)
	}
	refusal(t, k, s.Topic)
	reviveTwo(t, k, a, s.Topic)
	p.publishes(s.Topic, 200)
	p.healthy()
	j, j2 := f.Stop(), f2.Stop()
	s.drained(t)
	s2.drained(t)
	p2.healthy()
	s.refusedNothing(t)
	s2.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}))
	s2.verdict(t, tr2, j2, judge.Rules{Restarts: 1, SkipsSettled: true})
}

// reviveTwo starts nodes 2 and 3 and waits until the topic is whole. Kafka 4.3
// was seen to get stuck on the way, on a machine without time to spare: after
// the quorum had been lost, node 1 led a partition, node 2 fetched it, and for
// minutes was not taken into the copies in sync. Then node 1 is killed and
// started too, which for the relay is only more of the same.
func reviveTwo(t *testing.T, k *harness.Kafka, a *kadm.Client, topic string) {
	t.Helper()
	var starting sync.WaitGroup
	for _, node := range []int{2, 3} {
		starting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := k.StartNode(ctx, node); err != nil {
				t.Logf("starting node %d: %v", node, err)
			}
		})
	}
	starting.Wait()
	began := time.Now()
	rig.Eventually(t, patience, "all copies in sync, or a minute to pass", func() bool {
		return inSync(t, a, topic) || time.Since(began) > time.Minute
	})
	if !inSync(t, a, topic) {
		t.Log("the copies do not come back by themselves: node 1 is restarted")
		k.Kill(t, 1)
		revive(t, k, 1)
	}
	whole(t, a, topic)
}

// refusal has a record of our own refused by every partition's leader for want
// of copies in sync.
func refusal(t *testing.T, k *harness.Kafka, topic string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(0), kgo.RecordDeliveryTimeout(20*time.Second))
	must(t, err)
	defer c.Close()
	for n := range int32(4) {
		rig.Eventually(t, patience, fmt.Sprintf("partition %d to refuse for want of copies", n), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: n, Value: []byte("refused")}).FirstErr()
			if err == nil {
				t.Fatalf("partition %d took a record", n)
			}
			return errors.Is(err, kerr.NotEnoughReplicas)
		})
	}
}
