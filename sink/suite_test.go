package sink

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// suite holds the laws that are proven on the fake and on a real Kafka alike.
var suite = []struct {
	name string
	test func(*testing.T, cluster)
}{
	{"KeyOrderHolds", suiteOrder},
	{"ContractBytesArrive", suiteContract},
	{"SizesAreExact", suiteSizes},
	{"OversizedRowAlonePays", suiteOversized},
	{"EveryCodecWorks", suiteCodecs},
	{"MissingTopicWaits", suiteMissing},
	{"MissingTopicIsRefusedWhenAskedFor", suiteMissingRefused},
	{"BadRoutesDoNotDelayOthers", suiteRoutes},
	{"KeylessFillPartitionsInTurn", suiteKeyless},
	{"RecreatedTopicHeals", suiteRecreated},
	{"AddedPartitionsAreUsed", suiteGrown},
	{"CheckTellsWhatIsWrong", suiteCheck},
}

// The laws hold on the fake cluster.
// Cases F39, F40 of docs/guarantees.md.
func TestSuiteOnFake(t *testing.T) {
	t.Parallel()
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.test(t, fake(t, 3))
		})
	}
}

// The laws hold on brokers as old as Kafka 3.0, whose produce requests name
// topics and not their ids.
func TestSuiteOnOldFake(t *testing.T) {
	t.Parallel()
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.test(t, fake(t, 2, kfake.MaxVersions(kversion.V3_0_0())))
		})
	}
}

// name makes a topic's name that no other test uses.
func name(t *testing.T, suffix string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '#' {
			return '.'
		}
		return r
	}, t.Name()) + "-" + suffix
}

func suiteOrder(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 6, nil)
	r := start(t, c.Brokers())
	want := map[string][]string{}
	for i := range 20_000 {
		key := "k" + strconv.Itoa(i%97)
		e := ev(topic, key, i)
		want[key] = append(want[key], string(e.Payload))
		r.next++
		r.session.Publish(r.next, e)
		if i%1000 == 0 {
			r.session.Kick()
		}
	}
	r.session.Kick()
	r.allAcked()
	wantOrder(t, c.Dump(t, topic), want)
	for _, rec := range c.Dump(t, topic) {
		if want := partitionOf(string(rec.Key), 6); int(rec.Partition) != want {
			t.Fatalf("key %s is in partition %d, want %d", rec.Key, rec.Partition, want)
		}
	}
}

func suiteContract(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 1, nil)
	r := start(t, c.Brokers())
	events := []*outbox.Event{full(), full(), full(), full(), full()}
	events[0].Headers = `{"traceparent": "00-4bf92f-00f067-01", "n": null, "e": "", "b": {"base64": "AP8="}, "num": 12345678901234567890}`
	events[1].Payload = nil
	events[2].Payload = []byte{}
	events[3].HasMessageKey = true // the empty key
	events[4].HasAggregate = false // no key
	var want []string
	for _, e := range events {
		e.Topic = topic
		want = append(want, render(newRecord(e, topic)))
	}
	r.publish(events...)
	r.allAcked()
	var got []string
	for _, rec := range c.Dump(t, topic) {
		o := &outbox.Record{Topic: topic, Timestamp: rec.Timestamp, Key: rec.Key, Value: rec.Value, Headers: []outbox.Header{}}
		for _, h := range rec.Headers {
			o.Headers = append(o.Headers, outbox.Header{Key: h.Key, Value: h.Value})
		}
		got = append(got, render(o))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sized gives the event a payload so that its batch has exactly n bytes.
func sized(t testing.TB, e *outbox.Event, n int) *outbox.Event {
	t.Helper()
	for fill := n; fill > 0; fill-- {
		e.Payload = bytes.Repeat([]byte{'x'}, fill)
		var a arena
		var r kgo.Record
		a.reset()
		if refusal := a.encode(e, &r); refusal != nil {
			t.Fatal(refusal.Detail)
		}
		if batchOverhead+recordSize(&r, 0, 0) == n {
			return e
		}
	}
	t.Fatalf("no payload makes a batch of %d bytes", n)
	return nil
}

// A record of exactly the limit is taken by the broker, one byte more is
// refused before it is sent: so our count is the broker's.
func suiteSizes(t *testing.T, c cluster) {
	topic := name(t, "a")
	const limit = 4096
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": strconv.Itoa(limit)})
	r := start(t, c.Brokers(), func(c *Config) { c.Codec = "none" })
	headers := `{"h": "` + strings.Repeat("y", 2000) + `"}`
	exact, over := ev(topic, "a", 1), ev(topic, "b", 2)
	exact.Headers, over.Headers = headers, headers
	r.publish(sized(t, exact, limit), sized(t, over, limit+1))
	r.settle()
	if v := r.outcome(1); v.Verdict != outbox.Acked {
		t.Errorf("a batch of exactly the limit: %+v", v)
	}
	v := r.outcome(2)
	if v.Verdict != outbox.Refused || v.Refusal.Class != outbox.ClassTooLarge || !strings.Contains(v.Refusal.Detail, "4097") ||
		!strings.Contains(v.Refusal.Detail, "4096") || !strings.Contains(v.Refusal.Detail, "max.message.bytes") {
		t.Errorf("a batch beyond the limit: %+v", v)
	}
}

// Of many rows of one key the oversized one is refused, the ones before it are
// published, the ones after it wait; other keys are not touched. The whole
// record comes with the refusal.
func suiteOversized(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "4096"})
	r := start(t, c.Brokers())
	var events []*outbox.Event
	for i := range 500 {
		events = append(events, ev(topic, fmt.Sprintf("k%d", i%2), i))
	}
	events[250].Payload = bytes.Repeat([]byte("z"), 9000) // of k0
	r.publish(events...)
	r.settle()
	n := r.verdicts()
	if n[outbox.Acked] != 375 || n[outbox.Refused] != 1 || n[outbox.Diverted] != 124 {
		t.Fatalf("verdicts %v", n)
	}
	o := r.outcome(251)
	if o.Verdict != outbox.Refused || !o.Holds || o.Record == nil || len(o.Record.Value) != 9000 || string(o.Record.Key) != "k0" || o.Record.Topic != topic {
		t.Errorf("the refused one: %+v", o)
	}
	want := map[string][]string{}
	for i, e := range events {
		if i%2 == 1 || i < 250 {
			want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
		}
	}
	wantOrder(t, c.Dump(t, topic), want)
}

func suiteCodecs(t *testing.T, c cluster) {
	for codec := range codecs {
		topic := name(t, codec)
		c.CreateTopic(t, topic, 2, nil)
		r := start(t, c.Brokers(), func(c *Config) { c.Codec = codec })
		for i := range 300 {
			r.publish(ev(topic, "k"+strconv.Itoa(i%7), i))
		}
		r.allAcked()
		if got := len(c.Dump(t, topic)); got != 300 {
			t.Errorf("%s: %d records", codec, got)
		}
	}
}

// A missing topic delays its own events only, and they arrive once it exists.
func suiteMissing(t *testing.T, c cluster) {
	known, missing := name(t, "known"), name(t, "missing")
	c.CreateTopic(t, known, 2, nil)
	r := start(t, c.Brokers())
	first := r.publish(ev(known, "a", 1), ev(missing, "a", 2), ev(known, "b", 3), ev(missing, "a", 4))
	r.rec.until(t, "the known topic's events", func() bool { return len(r.rec.outcomes) == 2 })
	if b := r.blocked(missing); !strings.Contains(b.Reason, "does not exist") || b.Since.IsZero() {
		t.Errorf("blocked: %+v", b)
	}
	if r.outcome(first+1).Verdict != 0 {
		t.Error("an event of the missing topic has an outcome")
	}
	c.CreateTopic(t, missing, 3, nil)
	r.allAcked()
	wantOrder(t, c.Dump(t, missing), map[string][]string{"a": {"a/2", "a/4"}})
	eventually(t, "nothing to be blocked", func() bool { return len(r.kafka.Blocked()) == 0 })
}

func suiteMissingRefused(t *testing.T, c cluster) {
	missing := name(t, "missing")
	r := start(t, c.Brokers(), func(c *Config) { c.Route.OnMissingTopic = "refuse" })
	r.publish(ev(missing, "a", 1), ev(missing, "a", 2), keyless(ev(missing, "", 3)))
	r.settle()
	if n := r.verdicts(); n[outbox.Refused] != 2 || n[outbox.Diverted] != 1 {
		t.Fatalf("verdicts %v", n)
	}
	o := r.outcome(1)
	if o.Refusal.Class != outbox.ClassRoute || o.Refusal.Code != "UNKNOWN_TOPIC_OR_PARTITION" || !o.Holds {
		t.Errorf("%+v", o)
	}
	if o := r.outcome(3); o.Verdict != outbox.Refused || o.Holds {
		t.Errorf("keyless: %+v", o)
	}
	c.CreateTopic(t, missing, 1, nil)
	r.publish(ev(missing, "b", 4))
	eventually(t, "the created topic to be used", func() bool {
		if r.verdicts()[outbox.Acked] == 1 {
			return true
		}
		if r.decided() == int(r.next) { // refused while brokers had not heard of it
			r.publish(keyless(ev(missing, "", 5)))
		}
		return false
	})
}

func suiteRoutes(t *testing.T, c cluster) {
	good := name(t, "good")
	c.CreateTopic(t, good, 2, nil)
	r := start(t, c.Brokers())
	began := time.Now()
	bad := []string{"Dont care", ".", "..", "a/b", strings.Repeat("a", 250), "ünï", "__consumer_offsets"}
	for i, topic := range bad {
		r.publish(ev(topic, "k", i), ev(good, "k", 100+i))
	}
	r.settle()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if n := r.verdicts(); n[outbox.Acked] != len(bad) || n[outbox.Refused] != len(bad) {
		t.Errorf("verdicts %v", n)
	}
}

// Events without a key go to all partitions, none is diverted, and a refused
// one holds nobody.
func suiteKeyless(t *testing.T, c cluster) {
	topic := name(t, "a")
	c.CreateTopic(t, topic, 4, map[string]string{"max.message.bytes": "4096"})
	r := start(t, c.Brokers())
	for i := range 4000 {
		e := keyless(ev(topic, "", i))
		if i == 100 {
			e.Payload = bytes.Repeat([]byte("z"), 9000)
		}
		r.next++
		r.session.Publish(r.next, e)
	}
	r.session.Kick()
	r.settle()
	if n := r.verdicts(); n[outbox.Acked] != 3999 || n[outbox.Refused] != 1 {
		t.Fatalf("verdicts %v", n)
	}
	per := map[int32]int{}
	for _, rec := range c.Dump(t, topic) {
		per[rec.Partition]++
		if rec.Key != nil {
			t.Fatalf("a key: %q", rec.Key)
		}
	}
	if len(per) != 4 {
		t.Errorf("records by partition: %v", per)
	}
}
