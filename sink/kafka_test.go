package sink

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// The laws hold on a real Kafka.
func TestSuiteOnKafka(t *testing.T) {
	t.Parallel()
	c := harness.SharedKafka(t)
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.test(t, c)
		})
	}
	t.Run("QuotaSlowsAndChargesNobody", func(t *testing.T) {
		t.Parallel()
		kafkaQuota(t, c)
	})
	t.Run("TimestampsBeyondTheTopicsRangeAreRefusedAlone", func(t *testing.T) {
		t.Parallel()
		kafkaTimestamps(t, c)
	})
	t.Run("KeylessRecordInCompactedTopicIsRefusedAlone", func(t *testing.T) {
		t.Parallel()
		kafkaCompacted(t, c)
	})
}

// throttled is how often brokers told the client to wait, as the metrics say.
func throttled(t testing.TB, registry *prometheus.Registry) (n uint64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "outbox_relay_kafka_request_throttled_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetHistogram().GetSampleCount()
		}
	}
	return n
}

// A byte quota makes it slower and nothing else: no copies, no refusals. The
// metrics tell.
func kafkaQuota(t *testing.T, c cluster) {
	topic, id := name(t, "a"), "throttled"
	c.CreateTopic(t, topic, 2, nil)
	adm := admin(t, c)
	clientType := "client-id"
	entry := kadm.AlterClientQuotaEntry{
		Entity: kadm.ClientQuotaEntity{{Type: clientType, Name: &id}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 100_000}},
	}
	if _, err := adm.AlterClientQuotas(context.Background(), []kadm.AlterClientQuotaEntry{entry}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	r := start(t, c.Brokers(), plainCodec, func(c *Config) {
		c.ClientID, c.Registerer = id, registry
	})
	want := map[string][]string{}
	i := 0
	for round := 0; throttled(t, registry) < 3; round++ {
		if round == 50 {
			t.Fatal("15 MB at 100 kB/s were not throttled")
		}
		for range 1000 {
			e := ev(topic, "k"+strconv.Itoa(i%9), i)
			e.Payload = append(e.Payload, make([]byte, 300)...)
			want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
			r.publish(e)
			i++
		}
		r.allAcked()
	}
	wantOrder(t, c.Dump(t, topic), want)
}

// created_at far ahead of the broker's clock is refused by real brokers, for
// this record alone.
func kafkaTimestamps(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 1, map[string]string{"message.timestamp.after.max.ms": "3600000"})
	r := start(t, c.Brokers())
	var events []*outbox.Event
	for i := range 100 {
		events = append(events, ev(topic, "k"+strconv.Itoa(i), i))
	}
	events[40].CreatedAt = time.Now().Add(48 * time.Hour)
	r.publish(events...)
	r.settle()
	if n := r.verdicts(); n[outbox.Acked] != 99 || n[outbox.Refused] != 1 {
		t.Fatalf("verdicts %v", n)
	}
	if o := r.outcome(41); o.Refusal.Code != "INVALID_TIMESTAMP" || o.Refusal.Class != outbox.ClassInvalid {
		t.Errorf("%+v", o)
	}
}

// A compacted topic takes no record without a key; the broker's answer names
// no record, and the one is found.
func kafkaCompacted(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 1, map[string]string{"cleanup.policy": "compact"})
	r := start(t, c.Brokers())
	var events []*outbox.Event
	for i := range 100 {
		events = append(events, ev(topic, "k"+strconv.Itoa(i), i))
	}
	keyless(events[60])
	r.publish(events...)
	r.settle()
	if n := r.verdicts(); n[outbox.Acked] != 99 || n[outbox.Refused] != 1 {
		t.Fatalf("verdicts %v", n)
	}
	if o := r.outcome(61); o.Verdict != outbox.Refused || o.Holds {
		t.Errorf("%+v", o)
	}
	t.Logf("refused with %+v", r.outcome(61).Refusal)
}

// Brokers that restart one after another cost neither order nor copies nor
// rows; and a topic that wants all three copies waits while one is away.
func TestRestartingBrokersChargeNobody(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three brokers")
	}
	c := harness.StartKafka(t, harness.KafkaOptions{Nodes: 3})
	two, three := name(t, "two"), name(t, "three")
	c.CreateTopic(t, two, 6, map[string]string{"replication.factor": "3", "min.insync.replicas": "2"})
	c.CreateTopic(t, three, 2, map[string]string{"replication.factor": "3", "min.insync.replicas": "3"})
	r := start(t, c.Brokers())
	wantTwo, wantThree := map[string][]string{}, map[string][]string{}
	n := 0
	burst := func(topic string, want map[string][]string) {
		for range 500 {
			e := ev(topic, "k"+strconv.Itoa(n%10), n)
			want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
			r.publish(e)
			n++
		}
	}
	burst(two, wantTwo)
	burst(three, wantThree)
	r.allAcked()
	for node := 1; node <= 3; node++ {
		c.Stop(t, node)
		before := r.decided()
		burst(three, wantThree)
		burst(two, wantTwo)
		r.rec.until(t, "the topic that two copies suffice for", func() bool { return len(r.rec.outcomes) >= before+500 })
		if got := r.verdicts()[outbox.Acked]; got != before+500 {
			t.Errorf("node %d away: %d acknowledged, want %d", node, got, before+500)
		}
		c.Start(t, node)
		r.allAcked()
	}
	wantOrder(t, c.Dump(t, two), wantTwo)
	wantOrder(t, c.Dump(t, three), wantThree)
}
