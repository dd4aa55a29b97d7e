package sink

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// admin gives a client for administration.
func admin(t *testing.T, c cluster) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// A topic that is deleted and created anew takes the events that follow, in
// order, with no row charged; and no sequence number is used twice, which
// would make a broker acknowledge records without storing them.
func suiteRecreated(t *testing.T, c cluster) {
	topic := name(t, "a")
	adm := admin(t, c)
	c.CreateTopic(t, topic, 2, nil)
	r := start(t, c.Brokers())
	const runs = 3
	for run := range runs {
		var want []string
		for i := range 20 {
			e := ev(topic, "k", run*1000+i)
			want = append(want, string(e.Payload))
			r.publish(e)
			if i == 0 {
				r.allAcked() // alone, so that each run begins with a batch like the last run's
			}
		}
		r.allAcked()
		wantOrder(t, c.Dump(t, topic), map[string][]string{"k": want})
		if run == runs-1 {
			return
		}
		if _, err := adm.DeleteTopics(context.Background(), topic); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the topic to be gone", func() bool {
			found, err := adm.ListTopics(context.Background(), topic)
			return err == nil && !found.Has(topic)
		})
		c.CreateTopic(t, topic, 2+run, nil)
	}
}

// When partitions are added, the events of a key go to its old partition until
// they are decided and to its new one after; all partitions get used.
func suiteGrown(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 2, nil)
	r := start(t, c.Brokers())
	n := 0
	burst := func() {
		for range 200 {
			r.publish(ev(topic, fmt.Sprintf("k%d", n%50), n))
			n++
		}
	}
	burst()
	if _, err := admin(t, c).CreatePartitions(context.Background(), 4, topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new partitions to be seen", func() bool {
		burst()
		r.settle()
		for _, s := range r.kafka.Topics() {
			if s.Topic == topic && s.Partitions == 6 {
				return true
			}
		}
		return false
	})
	burst()
	r.allAcked()
	moved := map[string]int{} // keys to the last event seen in each of their two partitions
	used := map[int32]bool{}
	for _, rec := range c.Dump(t, topic) {
		used[rec.Partition] = true
		key, i := string(rec.Key), 0
		if _, err := fmt.Sscanf(string(rec.Value), key+"/%d", &i); err != nil {
			t.Fatal(err)
		}
		slot := fmt.Sprintf("%s in %d", key, rec.Partition)
		if last, ok := moved[slot]; ok && i <= last {
			t.Fatalf("%s: event %d comes after %d", slot, i, last)
		}
		moved[slot] = i
		if old, now := partitionOf(key, 2), partitionOf(key, 6); int(rec.Partition) != old && int(rec.Partition) != now {
			t.Fatalf("%s is neither in partition %d nor in %d", slot, old, now)
		}
	}
	if len(used) != 6 {
		t.Errorf("partitions used: %v", used)
	}
}

// Check finds a missing topic, a forbidden one, weak durability and the size
// limit; and a cluster that cannot be reached.
func suiteCheck(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "5000", "min.insync.replicas": "1"})
	r := start(t, c.Brokers())
	findings, err := r.kafka.Check(context.Background(), []string{topic, name(t, "missing"), "__internal"})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]Finding{}
	for _, f := range findings {
		codes[f.Code] = f
		if f.Message == "" || f.Observed == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
	for code, severity := range map[string]Severity{
		"topic.missing": Warning, "topic.not_allowed": Error, "topic.min_insync_weak": Warning, "topic.max_message_bytes": Info,
	} {
		if codes[code].Severity != severity {
			t.Errorf("%s: %+v", code, codes[code])
		}
	}
	if !strings.Contains(codes["topic.max_message_bytes"].Message, "5000") {
		t.Errorf("%+v", codes["topic.max_message_bytes"])
	}
	gone, err := New(Config{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	gone.pump.pace.request = 500 * time.Millisecond
	findings, err = gone.Check(context.Background(), []string{topic})
	if err != nil || len(findings) != 1 || findings[0].Code != "kafka.unreachable" || findings[0].ExitCode != 13 {
		t.Errorf("unreachable: %+v, %v", findings, err)
	}
}
