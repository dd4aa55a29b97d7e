package sink

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// plan is one drawn run of the order property.
type plan struct {
	topic      string
	partitions int
	keys       int
	rows       int
	skip       bool
	bad        map[int]string // row to the way in which it is bad
	kick       int            // rows between two kicks
	chunk      int            // records in a chunk
	trouble    *kerr.Error    // an answer that comes now and then
	every      uint32
}

func drawPlan(t *rapid.T, topic string) plan {
	p := plan{
		topic:      topic,
		partitions: rapid.IntRange(1, 4).Draw(t, "partitions"),
		keys:       rapid.IntRange(1, 12).Draw(t, "keys"),
		rows:       rapid.IntRange(1, 400).Draw(t, "rows"),
		skip:       rapid.Bool().Draw(t, "skip"),
		kick:       rapid.SampledFrom([]int{1, 7, 50, 1000}).Draw(t, "kick"),
		chunk:      rapid.SampledFrom([]int{1, 3, 20, 4096}).Draw(t, "chunk"),
		every:      uint32(rapid.IntRange(2, 9).Draw(t, "every")),
		trouble: rapid.SampledFrom([]*kerr.Error{
			nil, kerr.NotLeaderForPartition, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut,
			kerr.TopicAuthorizationFailed, kerr.UnsupportedCompressionType,
		}).Draw(t, "trouble"),
		bad: map[int]string{},
	}
	if p.chunk < 20 {
		p.rows = min(p.rows, 40) // each chunk is a round trip
	}
	if p.trouble != nil {
		// A refused batch makes the client raise its epoch, and the fake keeps
		// epochs for the cluster where brokers keep them per partition: it
		// would refuse what another partition sends again.
		p.partitions = 1
	}
	for range rapid.IntRange(0, 12).Draw(t, "bad rows") {
		row := rapid.IntRange(0, p.rows-1).Draw(t, "row")
		p.bad[row] = rapid.SampledFrom([]string{"poison", "large", "headers", "defect"}).Draw(t, "way")
	}
	return p
}

func (p plan) event(i int) *outbox.Event {
	e := ev(p.topic, "k"+strconv.Itoa(i*7%p.keys), i)
	switch p.bad[i] {
	case "poison":
		e.Payload = append(e.Payload, " POISON"...)
	case "large":
		e.Payload = append(e.Payload, make([]byte, 5000)...)
	case "headers":
		e.Headers = `{"outbox-id": "x"}`
	case "defect":
		e.Defect = "bad"
	}
	return e
}

// model says what must become of each row, and what each key's log must hold.
func (p plan) model() (verdicts []outbox.Verdict, log map[string][]string) {
	log = map[string][]string{}
	held := map[string]bool{}
	for i := range p.rows {
		e := p.event(i)
		switch {
		case held[e.AggregateID]:
			verdicts = append(verdicts, outbox.Diverted)
		case p.bad[i] != "":
			verdicts = append(verdicts, outbox.Refused)
			held[e.AggregateID] = !p.skip
		default:
			verdicts = append(verdicts, outbox.Acked)
			log[e.AggregateID] = append(log[e.AggregateID], string(e.Payload))
		}
	}
	return verdicts, log
}

// I8: rows of one key are published in order, refused ones included. Random
// rows are refused by the broker, for their size, for their headers or for
// their values, while other answers fail that are repeated. The model: under
// hold a key's log is everything before its first refusal, that one is Refused
// and all after it Diverted; under skip it is everything but the refused.
// I4: each ticket has exactly one outcome (settle fails on two or none).
func TestKeyOrderHoldsUnderRandomRefusals(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt, fmt.Sprintf("t%d", runs.Add(1)))
		if problem := p.run(t, k); problem != "" {
			rt.Fatalf("%+v: %s", p, problem)
		}
	})
}

func (p plan) run(t *testing.T, k *harness.Kfake) (problem string) {
	k.CreateTopic(t, p.topic, p.partitions, map[string]string{"max.message.bytes": "3000"})
	poison := poisons(k.Cluster, p.topic, p.partitions, "POISON", kerr.InvalidRecord)
	defer poison.Remove()
	if p.chunk < 20 {
		p.rows = min(p.rows, 40) // each chunk is a round trip
	}
	if p.trouble != nil {
		var n atomic.Uint32
		trouble := k.Cluster.Fault(kfake.Fault{Keys: produceKey, Topic: p.topic, Err: p.trouble, Count: -1,
			When: func(kmsg.Request) bool { return n.Add(1)*2654435761>>16%p.every == 0 }})
		defer trouble.Remove()
	}
	r := start(t, k.Brokers(), plainCodec, func(c *Config) {
		if p.skip {
			c.Policy.Default = ActionSkip
		}
	})
	defer r.kafka.Close()
	r.kafka.pump.box.call(func() { r.kafka.pump.pace.chunkRecords = p.chunk })
	for i := range p.rows {
		r.next++
		r.session.Publish(r.next, p.event(i))
		if i%p.kick == 0 {
			r.session.Kick()
		}
	}
	r.session.Kick()
	r.settle()
	verdicts, log := p.model()
	for i, want := range verdicts {
		o := r.outcome(outbox.Ticket(i + 1))
		if o.Verdict != want || o.Holds != (want != outbox.Acked && !p.skip) || (want != outbox.Acked) != (o.Record != nil) {
			return fmt.Sprintf("row %d is %v (holds %v, %+v), want %v", i, o.Verdict, o.Holds, o.Refusal, want)
		}
	}
	got := byKey(k.Dump(t, p.topic))
	for key, want := range log {
		if fmt.Sprint(got[key]) != fmt.Sprint(want) {
			return fmt.Sprintf("key %s: log %q, want %q", key, got[key], want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		return fmt.Sprintf("keys in the log that should have nothing: %d", len(got))
	}
	return ""
}
