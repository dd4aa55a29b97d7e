package sink

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// patience is how long a test waits for something that must happen.
const patience = 60 * time.Second

// cluster is what a fake and a real Kafka have in common.
type cluster interface {
	Brokers() []string
	CreateTopic(t testing.TB, name string, partitions int, settings map[string]string)
	Dump(t testing.TB, topic string) []harness.Record
}

// fake starts a fake cluster.
func fake(t testing.TB, brokers int, options ...kfake.Opt) *harness.Kfake {
	t.Helper()
	options = append([]kfake.Opt{kfake.NumBrokers(brokers)}, options...)
	return harness.StartKfake(t, harness.KfakeOptions{Brokers: brokers, Options: options})
}

// recorder takes outcomes and wakes whoever waits for them.
type recorder struct {
	mu          sync.Mutex
	outcomes    map[outbox.Ticket]outbox.Outcome
	order       []outbox.Outcome
	twice       []outbox.Ticket
	interrupted []error
	changed     chan struct{} // closed and replaced at each change
}

func newRecorder() *recorder {
	return &recorder{outcomes: map[outbox.Ticket]outbox.Outcome{}, changed: make(chan struct{})}
}

func (r *recorder) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) report(o outbox.Outcome) {
	r.change(func() {
		if _, again := r.outcomes[o.Ticket]; again {
			r.twice = append(r.twice, o.Ticket)
		}
		r.outcomes[o.Ticket] = o
		r.order = append(r.order, o)
	})
}

func (r *recorder) interrupt(err error) {
	r.change(func() { r.interrupted = append(r.interrupted, err) })
}

// until waits for a condition on the recorder.
func (r *recorder) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		done, changed, n := ok(), r.changed, len(r.outcomes)
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited %v for %s; %d outcomes came", patience, what, n)
		}
	}
}

// rig is a sink with one session at a time.
type rig struct {
	t       testing.TB
	kafka   *Kafka
	session *Session
	rec     *recorder
	next    outbox.Ticket
	batches batchCount
}

// batchCount counts the batches that brokers took, with records.
type batchCount struct{ batches, records atomic.Int64 }

func (b *batchCount) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	b.batches.Add(1)
	b.records.Add(int64(m.NumRecords))
}

// start makes a sink with short pauses and its first session.
func start(t testing.TB, brokers []string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t}
	config := Config{Brokers: brokers, Slot: "test", ClientOptions: []kgo.Opt{kgo.WithHooks(&r.batches), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond })}}
	for _, f := range change {
		f(&config)
	}
	kafka, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	p := &kafka.pump.pace
	p.nudge, p.backoffFirst, p.backoffLast, p.refresh = 10*time.Millisecond, 5*time.Millisecond, 40*time.Millisecond, 200*time.Millisecond
	r.kafka = kafka
	r.begin()
	return r
}

// begin starts the next session with a recorder of its own.
func (r *rig) begin(held ...HeldEvent) {
	r.t.Helper()
	r.rec, r.next = newRecorder(), 0
	session, err := r.kafka.NewSession(context.Background(), SessionOptions{Report: r.rec.report, Interrupted: r.rec.interrupt, Held: held})
	if err != nil {
		r.t.Fatal(err)
	}
	r.session = session
}

// publish gives events to the sink and returns the first one's ticket.
func (r *rig) publish(events ...*outbox.Event) outbox.Ticket {
	first := r.next + 1
	for _, e := range events {
		r.next++
		r.session.Publish(r.next, e)
	}
	r.session.Kick()
	return first
}

// settle waits until every ticket has its outcome, and fails when one had two.
func (r *rig) settle() {
	r.t.Helper()
	r.rec.until(r.t, fmt.Sprintf("%d outcomes (blocked: %v)", r.next, r.kafka.Blocked()), func() bool {
		return len(r.rec.outcomes) == int(r.next) || len(r.rec.interrupted) > 0
	})
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	if len(r.rec.twice) > 0 || len(r.rec.interrupted) > 0 {
		r.t.Fatalf("tickets with two outcomes: %v; interrupted: %v", r.rec.twice, r.rec.interrupted)
	}
}

// verdicts counts the outcomes by verdict.
func (r *rig) verdicts() map[outbox.Verdict]int {
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	n := map[outbox.Verdict]int{}
	for _, o := range r.rec.outcomes {
		n[o.Verdict]++
	}
	return n
}

// outcome is a ticket's outcome, zero when there is none yet.
func (r *rig) outcome(t outbox.Ticket) outbox.Outcome {
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	return r.rec.outcomes[t]
}

// decided counts the tickets with an outcome.
func (r *rig) decided() int {
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	return len(r.rec.outcomes)
}

// allAcked settles and fails unless every ticket was acknowledged.
func (r *rig) allAcked() {
	r.t.Helper()
	r.settle()
	if n := r.verdicts(); n[outbox.Acked] != int(r.next) {
		r.t.Fatalf("%d events, verdicts %v", r.next, n)
	}
}

// blocked waits until the topic is blocked and returns its entry.
func (r *rig) blocked(topic string) Blocked {
	r.t.Helper()
	var found Blocked
	eventually(r.t, topic+" to be blocked", func() bool {
		for _, b := range r.kafka.Blocked() {
			if b.Topic == topic {
				found = b
				return true
			}
		}
		return false
	})
	return found
}

// eventually polls for a condition that nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// ev makes an event; its position follows from i, so that it is unique.
func ev(topic, key string, i int) *outbox.Event {
	return &outbox.Event{
		Position: outbox.Position{Timeline: 1, Commit: outbox.LSN(0x1000 + i*0x100)}, CommitTime: time.Now(),
		ID: fmt.Sprintf("id-%d", i), AggregateType: "order", AggregateID: key, HasAggregate: true, Type: "t",
		Topic: topic, Payload: fmt.Appendf(nil, "%s/%d", key, i), Headers: "{}", CreatedAt: time.Now(),
	}
}

// keyless takes the event's key away.
func keyless(e *outbox.Event) *outbox.Event {
	e.HasAggregate, e.AggregateID = false, ""
	return e
}

// byKey gives the values of each key in the order of the log. Records of a key
// are in one partition unless the topic was changed.
func byKey(records []harness.Record) map[string][]string {
	out := map[string][]string{}
	for _, r := range records {
		out[string(r.Key)] = append(out[string(r.Key)], string(r.Value))
	}
	return out
}

// wantOrder fails unless the log holds, for each key, exactly the values in
// want, in order.
func wantOrder(t testing.TB, records []harness.Record, want map[string][]string) {
	t.Helper()
	got := byKey(records)
	keys := slices.Sorted(maps.Keys(want))
	for _, key := range keys {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("key %q: %d values in the log, want %d; got %.300q want %.300q", key, len(got[key]), len(want[key]), got[key], want[key])
		}
	}
	if len(got) > len(keys) {
		t.Errorf("%d keys in the log, want %d", len(got), len(keys))
	}
}
