package sink

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// gate holds back the answers to produce requests until it is opened, while
// the cluster does everything else.
type gate struct {
	open   chan struct{}
	passed atomic.Int64 // requests that came
}

func closedGate(k *kfake.Cluster) *gate {
	g := &gate{open: make(chan struct{})}
	k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		g.passed.Add(1)
		select {
		case <-g.open:
		default:
			k.SleepControl(func() { <-g.open })
		}
		return nil, nil, false
	})
	return g
}

// I6: nothing blocks the client's callback. While the pump is stuck in a report
// that does not return, the client gets rid of all that other lanes have in
// flight.
func TestCallbackNeverBlocks(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 4, nil)
	g := closedGate(k.Cluster)
	kafka, err := New(Config{Brokers: k.Brokers()})
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	kafka.pump.pace.nudge = 10 * time.Millisecond
	entered, release := make(chan struct{}), make(chan struct{})
	var reports atomic.Int64
	s, err := kafka.NewSession(context.Background(), SessionOptions{Report: func(outbox.Outcome) {
		if reports.Add(1) == 1 {
			close(entered)
			<-release
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 200 // one post: of a second one, nothing is handed over behind the first
	for i := range rows {
		s.Publish(outbox.Ticket(i+1), ev("a", "k"+strconv.Itoa(i), i))
	}
	s.Kick()
	client := make(chan *kgo.Client, 1)
	eventually(t, "all rows to be with the client", func() bool {
		done := make(chan int)
		kafka.pump.box.call(func() { done <- kafka.pump.inflightRecords })
		return <-done == rows
	})
	kafka.pump.box.call(func() { client <- kafka.pump.producer.client })
	cl := <-client
	close(g.open)
	<-entered
	eventually(t, "every promise to be called", func() bool { return cl.BufferedProduceRecords() == 0 })
	if n := reports.Load(); n != 1 {
		t.Errorf("%d reports went out while one was stuck", n)
	}
	close(release)
	eventually(t, "all reports", func() bool { return reports.Load() == rows })
}

// A lane with a chunk of an older session in flight stays closed until it is
// decided: what the new session sends cannot be overtaken by the old tail, and
// the old outcomes are dropped.
func TestLaneStaysClosedOverSessions(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	r := start(t, k.Brokers())
	r.publish(ev("a", "k", 0))
	r.allAcked()
	g := closedGate(k.Cluster)
	r.publish(ev("a", "k", 1))
	eventually(t, "the chunk to be under way", func() bool { return g.passed.Load() == 1 })
	r.publish(ev("a", "k", 2)) // gathered, and dropped at the end
	old := r.rec
	r.session.End()
	r.session.Publish(99, ev("a", "k", 99)) // too late: dropped
	r.session.Kick()
	r.begin()
	r.publish(ev("a", "k", 1), ev("a", "k", 2), ev("a", "k", 3))
	eventually(t, "the new session's events to gather behind it", func() bool {
		done := make(chan bool)
		r.kafka.pump.box.call(func() { done <- r.kafka.pump.topics["a"].lanes[0].queue.len() == 3 })
		return <-done
	})
	close(g.open)
	r.allAcked()
	if n := len(old.outcomes); n != 1 {
		t.Errorf("the old session got %d outcomes", n)
	}
	wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": {"k/0", "k/1", "k/1", "k/2", "k/3"}})
}

// When it is unknown what was stored, the session is interrupted once, its
// open tickets get no outcome, and the next session works with a new client.
func TestLossInterruptsTheSession(t *testing.T) {
	t.Parallel()
	for code, j := range kafkaErrors {
		err := kerr.TypedErrorForCode(code)
		if j.blame != blameSession {
			continue
		}
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			k := fake(t, 1)
			k.CreateTopic(t, "a", 3, nil)
			r := start(t, k.Brokers())
			r.publish(ev("a", "k", 0))
			r.allAcked()
			k.Cluster.Fault(kfake.Fault{Keys: produceKey, Err: err})
			for i := 1; i < 100; i++ {
				r.publish(ev("a", "k", i))
			}
			r.rec.until(t, "the interruption", func() bool { return len(r.rec.interrupted) > 0 })
			if !errors.Is(r.rec.interrupted[0], err) {
				t.Errorf("interrupted with %v", r.rec.interrupted[0])
			}
			before, old := r.decided(), r.rec
			r.session.End()
			r.begin()
			for i := before; i < 100; i++ { // the log brings again what has no outcome
				r.publish(ev("a", "k", i))
			}
			r.allAcked()
			if len(old.interrupted) != 1 || len(old.outcomes) != before {
				t.Errorf("interrupted %d times, %d outcomes after %d", len(old.interrupted), len(old.outcomes), before)
			}
			var want []string
			for i := range 100 {
				want = append(want, "k/"+strconv.Itoa(i))
			}
			wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": want})
		})
	}
}

// Events of a key that waits in a line when the session begins wait behind it;
// other keys and the same key on another topic do not.
func TestHeldKeysDivert(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 2, nil)
	k.CreateTopic(t, "b", 2, nil)
	r := start(t, k.Brokers())
	r.session.End()
	r.begin(HeldEvent{Topic: "a", Key: "k", ID: outbox.Position{Timeline: 1, Commit: 1}})
	r.publish(ev("a", "k", 1), ev("a", "j", 2), ev("b", "k", 3), keyless(ev("a", "", 4)))
	r.settle()
	for ticket, want := range map[outbox.Ticket]outbox.Verdict{1: outbox.Diverted, 2: outbox.Acked, 3: outbox.Acked, 4: outbox.Acked} {
		if got := r.outcome(ticket).Verdict; got != want {
			t.Errorf("ticket %d: %v, want %v", ticket, got, want)
		}
	}
	o := r.outcome(1)
	if !o.Holds || o.Record == nil || string(o.Record.Value) != "k/1" || o.Record.Topic != "a" || o.Event.ID != "id-1" {
		t.Errorf("%+v", o)
	}
}

// Under the policy skip the later events of a refused one's key go on.
func TestSkipLetsLaterEventsPass(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 2, map[string]string{"max.message.bytes": "4000"})
	r := start(t, k.Brokers(), func(c *Config) {
		c.Policy.Topics = map[string]map[outbox.Class]Action{"a": {outbox.ClassTooLarge: ActionSkip}}
	})
	big, bad := ev("a", "k", 2), ev("a", "k", 4)
	big.Payload = make([]byte, 9000)
	bad.Headers = "[]" // of another class: holds
	r.publish(ev("a", "k", 1), big, ev("a", "k", 3), bad, ev("a", "k", 5))
	r.settle()
	if o := r.outcome(2); o.Verdict != outbox.Refused || o.Holds {
		t.Errorf("%+v", o)
	}
	if o := r.outcome(4); o.Verdict != outbox.Refused || !o.Holds || o.Refusal.Class != outbox.ClassEncode || o.Record.Headers != nil {
		t.Errorf("%+v", o)
	}
	if v := r.outcome(5).Verdict; v != outbox.Diverted {
		t.Errorf("%v", v)
	}
	wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": {"k/1", "k/3"}})
}

// A defective event is refused with the decoder's words and its whole record.
func TestDefectIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	r := start(t, k.Brokers())
	e := ev("a", "k", 1)
	e.Defect = "created_at is not a time"
	r.publish(e)
	r.settle()
	if o := r.outcome(1); o.Verdict != outbox.Refused || o.Refusal.Class != outbox.ClassInvalid || o.Refusal.Detail != e.Defect || string(o.Record.Value) != "k/1" {
		t.Errorf("%+v", o)
	}
}

// Encode builds what would be sent, from any goroutine, also when it cannot
// be sent.
func TestEncodeBuildsTheRecord(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	r := start(t, k.Brokers())
	e := full()
	if got := r.session.Encode(e); got.Topic != "orders" || len(got.Headers) != 4 || string(got.Key) != "o-1" {
		t.Errorf("%+v", got)
	}
	e.Topic, e.AggregateType, e.Headers = "", "", "{"
	if got := r.session.Encode(e); got.Topic != "" || got.Headers != nil || string(got.Value) != `{"a":1}` {
		t.Errorf("%+v", got)
	}
}

// Close ends everything, twice if need be, and nothing is reported after it.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	g := closedGate(k.Cluster)
	defer close(g.open)
	r := start(t, k.Brokers())
	r.publish(ev("a", "k", 1))
	eventually(t, "the chunk to be under way", func() bool { return g.passed.Load() == 1 })
	r.kafka.Close()
	r.kafka.Close()
	if n := r.decided(); n != 0 {
		t.Errorf("%d outcomes", n)
	}
	if _, err := r.kafka.NewSession(context.Background(), SessionOptions{Report: r.rec.report}); !errors.Is(err, ErrClosed) {
		t.Errorf("a session after Close: %v", err)
	}
	r.session.Publish(2, ev("a", "k", 2))
	r.session.Kick()
	r.session.Beat()
	r.session.End()
	unused, err := New(Config{Brokers: k.Brokers()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unused.NewSession(context.Background(), SessionOptions{}); err == nil || !strings.Contains(err.Error(), "Report") {
		t.Errorf("a session without Report: %v", err)
	}
	unused.Close() // never had a session
}

// A batch that is healed into a topic never takes a sequence number for the
// second time under one producer id: a broker would acknowledge it as a copy
// and store nothing. So a client that must forget a topic is replaced.
func TestRenewedClientHasANewProducerID(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	r := start(t, k.Brokers())
	for i := range 5 { // each the first batch of its client, of one record
		r.publish(ev("a", "k", i))
		r.allAcked()
		r.kafka.pump.box.call(func() { r.kafka.pump.renew("test") })
	}
	wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": {"k/0", "k/1", "k/2", "k/3", "k/4"}})
}
