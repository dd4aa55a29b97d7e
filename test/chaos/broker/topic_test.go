package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// topicID is the identity that the cluster gives a topic at its creation.
func topicID(t *testing.T, a *kadm.Client, topic string) kadm.TopicID {
	t.Helper()
	m, err := a.Metadata(t.Context(), topic)
	must(t, err)
	must(t, m.Topics[topic].Err)
	return m.Topics[topic].ID
}

// TestTopicDeletedAndCreatedAnew proves that a topic may vanish under a running
// stream: its events wait, the relay says for what, and the new topic of the
// same name gets each of them once, in order. What the old one had acknowledged
// is gone with it and does not come again.
func TestTopicDeletedAndCreatedAnew(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s, a := newSite(t, k), admin(t, k.Brokers())
	other := s.Topic + ".other"
	k.CreateTopic(t, other, 2, nil)
	tr := s.Truth(t)
	p := s.streaming(t)
	// Rows that are deleted again say nothing about whether they were sent.
	s.DB.Exec(t, `create function keep() returns trigger language plpgsql as 'begin return null; end'; create trigger keep before delete on public.outbox for each row execute function keep()`)
	f := s.Flow(t, judge.Workload{Seed: 61, Rate: 40, Topics: []string{s.Topic, other}})
	p.publishes(s.Topic, 300)
	first := topicID(t, a, s.Topic)
	// What the old topic may have acknowledged beyond the dump was in flight
	// when it was made, or came while the topic was still there.
	inFlight, received := p.metric("outbox_relay_inflight_records"), p.metric("outbox_relay_rows_received_total")
	dumped := map[string]bool{}
	for _, r := range k.Dump(t, s.Topic) {
		dumped[eventID(r)] = true
	}
	deleted := time.Now()
	_, err := a.DeleteTopic(t.Context(), s.Topic)
	must(t, err)
	vanished(t, a, s.Topic)
	inFlight += p.metric("outbox_relay_rows_received_total") - received
	t.Logf("named: %s", p.blocked(s.Topic, "UNKNOWN_TOPIC"))
	p.publishes(other, 200) // others flow on
	longer(t, deleted, 5*time.Second)
	old := s.sentTo(t, s.Topic) // all acknowledged by the topic that is gone
	unseen := 0
	for id := range old {
		if !dumped[id] {
			unseen++
		}
	}
	t.Logf("%d rows dumped, %d SENT and not among them, at most %v in flight", len(dumped), unseen, inFlight)
	if len(dumped) < 300 || float64(unseen) > inFlight {
		t.Errorf("%d rows say SENT that the old topic never had: more than the %v in flight", unseen, inFlight)
	}
	k.CreateTopic(t, s.Topic, 4, nil)
	created := time.Now()
	if second := topicID(t, a, s.Topic); second == first {
		t.Fatal("the fault has not bitten: the topic is the same one")
	}
	p.publishes(s.Topic, 300)
	p.healthy()
	t.Logf("%d rows were in the old topic; the new one took records within %v", len(old), time.Since(created))
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	rep := s.verdict(t, tr, j, judge.Rules{Discarded: old}, other)
	exactly(t, rep)
	for _, r := range k.Dump(t, s.Topic) {
		if id := eventID(r); old[id] {
			t.Fatalf("event %s was acknowledged by the old topic, and is in the new one", id)
		}
	}
}

// vanished waits until the brokers know no such topic.
func vanished(t *testing.T, a *kadm.Client, topic string) {
	t.Helper()
	rig.Eventually(t, patience, "the topic to be gone", func() bool {
		m, err := a.Metadata(t.Context(), topic)
		return err == nil && errors.Is(m.Topics[topic].Err, kerr.UnknownTopicOrPartition)
	})
}

// sentTo are the events of a topic that are shown as SENT, once no more of them
// come.
func (s *site) sentTo(t *testing.T, topic string) map[string]bool {
	t.Helper()
	var ids map[string]bool
	count := func() int { return s.rows(t, fmt.Sprintf("status = 2 and topic = '%s'", topic)) }
	since, last := time.Now(), -1
	rig.Eventually(t, patience, "no further row of "+topic+" to be shown", func() bool {
		if n := count(); n != last {
			since, last = time.Now(), n
		}
		return time.Since(since) > 2*time.Second
	})
	ids = map[string]bool{}
	text := s.DB.Query1(t, `select coalesce(string_agg(event_id::text, ','), '') from public.outbox where status = 2 and topic = $1`, topic)
	for id := range strings.SplitSeq(text, ",") {
		ids[id] = true
	}
	return ids
}

func eventID(r harness.Record) string {
	for _, h := range r.Headers {
		if h.Key == judge.HeaderID {
			return string(h.Value)
		}
	}
	return ""
}

// TestTopicReplacedAtOnce proves the same for a topic that is created anew in
// the moment it was deleted, so that nobody ever sees it missing. What each key
// has in the new topic is the end of its rows, without a gap: nothing is
// acknowledged between the two topics, which is where a producer that takes
// them for one loses records.
func TestTopicReplacedAtOnce(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s, a := newSite(t, k), admin(t, k.Brokers())
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 62, Rate: 40})
	const rounds = 3
	for range rounds {
		p.publishes(s.Topic, 300)
		first := topicID(t, a, s.Topic)
		_, err := a.DeleteTopic(t.Context(), s.Topic)
		must(t, err)
		k.CreateTopic(t, s.Topic, 4, nil)
		if second := topicID(t, a, s.Topic); second == first {
			t.Fatal("the fault has not bitten: the topic is the same one")
		}
		p.publishes(s.Topic, 300)
	}
	p.healthy()
	if !strings.Contains(p.Log.String(), "the topic takes records again") {
		t.Error("the relay has not seen that the topic was another one")
	}
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	must(t, tr.Read(t.Context()))
	rows, records := tr.Rows(), k.Dump(t, s.Topic)
	old := map[string]bool{} // rows before the first one of their key that the new topic has
	present := map[string]bool{}
	for _, r := range records {
		present[eventID(r)] = true
	}
	reached := map[string]bool{}
	for _, row := range rows {
		key := string(row.Key)
		reached[key] = reached[key] || present[row.EventID]
		if row.Key == nil || !reached[key] {
			old[row.EventID] = true
		}
	}
	exactly(t, s.verdict(t, tr, j, judge.Rules{Discarded: old}))
	t.Logf("%d rows in the topics that are gone or without a key, %d in the last one", len(old), len(present))
}

// TestMissingTopicIsWaitedFor proves that events for a topic that does not
// exist wait for it, by name, while those of other topics flow, also those of
// the same key; once it is created they are published in order.
// Cases F39, F40 of docs/guarantees.md.
func TestMissingTopicIsWaitedFor(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	missing := s.Topic + ".missing"
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 63, Rate: 30, Topics: []string{s.Topic, missing}})
	since := time.Now()
	t.Logf("named: %s", p.blocked(missing, "UNKNOWN_TOPIC_OR_PARTITION", "create it"))
	p.State("blocked")
	p.publishes(s.Topic, 500)
	longer(t, since, 10*time.Second)
	waiting := s.rows(t, fmt.Sprintf("topic = '%s' and status = 0", missing))
	if gone := s.rows(t, fmt.Sprintf("topic = '%s' and status <> 0", missing)); waiting < 100 || gone != 0 {
		t.Fatalf("the fault has not bitten: %d rows of the missing topic wait, %d do not", waiting, gone)
	}
	k.CreateTopic(t, missing, 3, nil)
	created := time.Now()
	p.publishes(missing, waiting)
	p.healthy()
	t.Logf("%d rows waited; published %v after the topic was there", waiting, time.Since(created))
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}, missing))
}

// TestTopicSettingsAreNoticed proves that changes of a topic reach a running
// relay within its minute: partitions that were added are used, and a raised
// max.message.bytes lets rows pass that were too large; a lowered one is
// noticed by the first row that breaks it, which alone is refused. The order of
// a key that moves to another partition is not promised to readers; kept is
// that its rows of the old partition are all stored before the first in the
// new one.
func TestTopicSettingsAreNoticed(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s, a := newSite(t, k), admin(t, k.Brokers())
	grows, sized := s.Topic+".grows", s.Topic+".sized"
	k.CreateTopic(t, grows, 2, map[string]string{"message.timestamp.type": "LogAppendTime"})
	k.CreateTopic(t, sized, 1, map[string]string{"max.message.bytes": "10000"})
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 64, Rate: 30, Topics: []string{grows}})
	p.publishes(grows, 300)
	s.sized(t, sized, "small", 1000)
	rig.Eventually(t, patience, "the small row", func() bool { return p.published(sized) == 1 })

	changed := time.Now()
	answers, err := a.CreatePartitions(t.Context(), 5, grows)
	must(t, err)
	must(t, answers.Error())
	setTopic(t, a, sized, "max.message.bytes", "50000")
	used := func() bool {
		ends, err := a.ListEndOffsets(t.Context(), grows)
		must(t, err)
		o, _ := ends.Lookup(grows, 6)
		return o.Offset > 0
	}
	rig.Eventually(t, patience, "the new partitions to be used", used)
	t.Logf("new partitions used %v after they were there", time.Since(changed))
	longer(t, changed, 67*time.Second) // a minute, and a tenth of it either way
	p.publishes(grows, 300)

	s.sized(t, sized, "raised", 40000)
	rig.Eventually(t, patience, "a row that was too large before", func() bool { return p.published(sized) == 2 })
	setTopic(t, a, sized, "max.message.bytes", "20000")
	s.sized(t, sized, "lowered", 40000)
	s.sized(t, sized, "neighbour", 1000)
	rig.Eventually(t, patience, "the neighbour", func() bool { return p.published(sized) == 3 })
	j := f.Stop()
	s.drained(t)
	lines := s.lines(t)
	if len(lines) != 1 || s.rows(t, "status = 3 and message_key = 'lowered'") != 1 {
		t.Fatalf("lines %+v, want the one row that is too large now", lines)
	}
	detail := s.DB.Query1(t, `select error_class || ' ' || error_detail from outbox_relay.line`)
	t.Logf("refused: %s", detail)
	if !strings.HasPrefix(detail, "too_large ") || !strings.Contains(detail, "uncompressed_bytes=40") || !strings.Contains(detail, "50000") {
		t.Error("the reason does not say the size and the limit that was known")
	}
	s.moved(t, tr, j, lines, grows, sized)
}

// sized commits one row of a size that no codec makes smaller.
func (s *site) sized(t *testing.T, topic, key string, size int) {
	t.Helper()
	payload := make([]byte, size)
	_, _ = rand.Read(payload)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, message_key, topic, payload) values ($1, $1, $2, $3)`,
		key, topic, payload)
}

// moved judges a topic whose keys changed their partitions: everything but
// their order is the judge's, their order goes by when each record was stored.
func (s *site) moved(t *testing.T, tr *judge.Truth, j *judge.Journal, lines []judge.Line, grows string, more ...string) {
	t.Helper()
	must(t, tr.Read(t.Context()))
	records := s.Kafka.Dump(t, grows)
	all := slices.Clone(records)
	for _, topic := range append(more, s.Topic) {
		all = append(all, s.Kafka.Dump(t, topic)...)
	}
	rep := judge.Check(judge.Evidence{Rows: tr.Rows(), Records: all, Lines: lines, Journal: j}, judge.Rules{BrokerTimes: map[string]bool{grows: true}})
	t.Logf("%v", rep)
	if rep.Lost+rep.Invented+rep.Altered+rep.Hidden+rep.Duplicates+rep.BadReplays+rep.Disagreeing != 0 {
		t.Fatal("more is broken than the order of keys that moved")
	}
	rank := map[string]int{}
	for _, row := range tr.Rows() {
		rank[row.EventID] = row.Rank
	}
	byKey := map[string][]harness.Record{}
	for _, r := range records {
		if r.Key != nil {
			byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
		}
	}
	movers := 0
	for key, of := range byKey {
		homes := map[int32]bool{}
		slices.SortStableFunc(of, func(x, y harness.Record) int { return rank[eventID(x)] - rank[eventID(y)] })
		for i, r := range of {
			homes[r.Partition] = true
			if i > 0 && r.Timestamp.Before(of[i-1].Timestamp) {
				t.Errorf("key %q: row %s was stored before row %s, which committed earlier", key, eventID(r), eventID(of[i-1]))
			}
			if i > 0 && r.Partition == of[i-1].Partition && r.Offset < of[i-1].Offset {
				t.Errorf("key %q: out of order within partition %d", key, r.Partition)
			}
		}
		if len(homes) > 2 {
			t.Errorf("key %q is in %d partitions", key, len(homes))
		}
		if len(homes) == 2 {
			movers++
		}
	}
	if movers == 0 || rep.OutOfOrder == 0 {
		t.Fatal("the fault has not bitten: no key has moved")
	}
	t.Logf("%d of %d keys moved", movers, len(byKey))
}
