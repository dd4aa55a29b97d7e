package sink

import (
	"bytes"
	"context"
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

var produceKey = []kmsg.Key{kmsg.Produce}

// plainCodec turns compression off, so that faults can look for words in batches.
func plainCodec(c *Config) { c.Codec = "none" }

// poisons makes the cluster refuse every batch of the topic that holds the
// word, as a broker does that finds one bad record.
func poisons(c *kfake.Cluster, topic string, partitions int, word string, err *kerr.Error) *kfake.FaultHandle {
	var faults []kfake.Fault
	for p := range int32(partitions) {
		faults = append(faults, kfake.Fault{
			Keys: produceKey, Topic: topic, Partitions: []int32{p}, Err: err, Count: -1,
			When: func(r kmsg.Request) bool { return holdsWord(r, p, word) },
		})
	}
	return c.Fault(faults...)
}

func holdsWord(r kmsg.Request, partition int32, word string) bool {
	for _, t := range r.(*kmsg.ProduceRequest).Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition && bytes.Contains(p.Records, []byte(word)) {
				return true
			}
		}
	}
	return false
}

// Of 500 rows the one that the broker refuses is refused alone, whatever the
// reason; the others are published in order, and its key's later rows wait.
func TestOneBadRowAmongManyIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   *kerr.Error
		class outbox.Class
	}{
		{kerr.InvalidRecord, outbox.ClassInvalid},
		{kerr.InvalidTimestamp, outbox.ClassInvalid},
		{kerr.MessageTooLarge, outbox.ClassTooLarge},
		{kerr.RecordListTooLarge, outbox.ClassTooLarge},
		{kerr.CorruptMessage, outbox.ClassBrokerRefused},
		{kerr.UnknownServerError, outbox.ClassBrokerRefused},
		{kerr.PolicyViolation, outbox.ClassBrokerRefused},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			k := fake(t, 1)
			k.CreateTopic(t, "a", 2, nil)
			poisons(k.Cluster, "a", 2, "POISON", c.err)
			r := start(t, k.Brokers(), plainCodec)
			want := map[string][]string{}
			var events []*outbox.Event
			for i := range 500 {
				e := ev("a", "k"+strconv.Itoa(i%5), i)
				switch {
				case i == 252:
					e.Payload = []byte("POISON")
				case i < 252 || i%5 != 2:
					want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
				}
				events = append(events, e)
			}
			r.publish(events...)
			r.settle()
			if n := r.verdicts(); n[outbox.Refused] != 1 || n[outbox.Diverted] != 49 || n[outbox.Acked] != 450 {
				t.Fatalf("verdicts %v", n)
			}
			o := r.outcome(253)
			if o.Refusal.Class != c.class || o.Refusal.Code != c.err.Message || o.Refusal.Detail == "" || !o.Holds || string(o.Record.Value) != "POISON" {
				t.Errorf("%+v", o)
			}
			wantOrder(t, k.Dump(t, "a"), want)
		})
	}
}

// A fault of the line or of the configuration is charged to no row: the topic
// is blocked with a reason, heals by itself, and order is kept.
func TestLineFaultsBlockAndHeal(t *testing.T) {
	t.Parallel()
	for code, j := range kafkaErrors {
		err := kerr.TypedErrorForCode(code)
		// What the client repeats without limit does not reach us, and it
		// takes a duplicate for success.
		if (j.blame != blameLine && j.blame != blameConfig) || err.Retriable || code == kerr.DuplicateSequenceNumber.Code {
			continue
		}
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			k := fake(t, 1)
			k.CreateTopic(t, "a", 1, nil)
			k.CreateTopic(t, "b", 1, nil)
			fault := k.Cluster.Fault(kfake.Fault{Keys: produceKey, Topic: "a", Err: err, Count: -1})
			r := start(t, k.Brokers())
			var want []string
			for i := range 40 {
				e := ev("a", "k", i)
				want = append(want, string(e.Payload))
				r.publish(e)
			}
			if b := r.blocked("a"); !strings.Contains(b.Reason, err.Message) || !strings.Contains(b.Reason, j.why) {
				t.Errorf("blocked: %+v", b)
			}
			b := r.publish(ev("b", "k", 100))
			r.rec.until(t, "the other topic", func() bool { return r.rec.outcomes[b].Verdict == outbox.Acked })
			if err := fault.Wait(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			fault.Remove()
			r.allAcked()
			wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": want})
			eventually(t, "nothing to be blocked", func() bool { return len(r.kafka.Blocked()) == 0 })
		})
	}
}

// Rights that come and go at the brokers do not break the order (the client
// fails at once what it had buffered, and would take the next record).
// Case F42 of docs/guarantees.md.
func TestFlappingRightsKeepOrder(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	k.Cluster.Fault(kfake.Fault{Keys: produceKey, Err: kerr.TopicAuthorizationFailed, Count: 3})
	r := start(t, k.Brokers())
	for i := range 4 {
		r.publish(ev("a", "k", i))
	}
	r.allAcked()
	wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": {"k/0", "k/1", "k/2", "k/3"}})
}

// What the client repeats by itself is repeated without limit, exactly once in
// the log and in order: with one error in five answers, several requests in
// flight, and errors that come after the write.
func TestRepeatedErrorsCostNoRowAndNoCopy(t *testing.T) {
	t.Parallel()
	for _, err := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.KafkaStorageError, kerr.ThrottlingQuotaExceeded, kerr.UnknownTopicOrPartition, kerr.FencedLeaderEpoch,
	} {
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			k := fake(t, 2)
			k.CreateTopic(t, "a", 8, nil)
			var n atomic.Int64
			k.Cluster.Fault(kfake.Fault{Keys: produceKey, Err: err, Count: -1, When: func(kmsg.Request) bool { return n.Add(1)%5 == 0 }})
			r := start(t, k.Brokers())
			want := map[string][]string{}
			for i := range 3000 {
				e := ev("a", "k"+strconv.Itoa(i%40), i)
				want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
				if i%20 == 0 {
					r.publish(e)
					continue
				}
				r.next++
				r.session.Publish(r.next, e)
			}
			r.session.Kick()
			r.allAcked()
			wantOrder(t, k.Dump(t, "a"), want)
		})
	}
}

// Too few replicas for long: nothing is refused, the stall is visible, and all
// arrives afterwards.
func TestTooFewReplicasForLongChargesNobody(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 2, nil)
	fault := k.Cluster.Fault(kfake.Fault{Keys: produceKey, Err: kerr.NotEnoughReplicas, Count: -1})
	r := start(t, k.Brokers())
	r.kafka.pump.box.call(func() { r.kafka.pump.pace.stalled = 200 * time.Millisecond })
	for i := range 200 {
		r.publish(ev("a", "k"+strconv.Itoa(i%7), i))
	}
	if b := r.blocked("a"); !strings.Contains(b.Reason, "no acknowledgement") {
		t.Errorf("%+v", b)
	}
	if err := fault.Wait(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	if n := r.decided(); n != 0 {
		t.Errorf("%d outcomes during the outage", n)
	}
	fault.Remove()
	r.allAcked()
	if got := len(k.Dump(t, "a")); got != 200 {
		t.Errorf("%d records", got)
	}
	eventually(t, "nothing to be blocked", func() bool { return len(r.kafka.Blocked()) == 0 })
}

// Leaders that move all the time cost neither order nor copies nor rows.
// Case F45 of docs/guarantees.md.
func TestMovingLeadersKeepOrder(t *testing.T) {
	t.Parallel()
	k := fake(t, 3)
	k.CreateTopic(t, "a", 6, nil)
	r := start(t, k.Brokers())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := int32(0); ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_ = k.Cluster.MoveTopicPartition("a", i%6, i%3)
			}
		}
	}()
	want := map[string][]string{}
	for i := range 5000 {
		e := ev("a", "k"+strconv.Itoa(i%10), i)
		want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
		r.publish(e)
		if i%500 == 499 {
			r.settle()
		}
	}
	r.allAcked()
	close(stop)
	<-stopped
	wantOrder(t, k.Dump(t, "a"), want)
}

// The same strange error on row after row is the line's fault: at most four
// rows are charged, and the rest arrives when it is over.
func TestStrangeErrorOnEveryRowBlocksTheLine(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	fault := k.Cluster.Fault(kfake.Fault{Keys: produceKey, Err: kerr.UnknownServerError, Count: -1})
	r := start(t, k.Brokers())
	var events []*outbox.Event
	for i := range 300 {
		events = append(events, ev("a", "k"+strconv.Itoa(i), i))
	}
	r.publish(events...)
	if b := r.blocked("a"); !strings.Contains(b.Reason, "UNKNOWN_SERVER_ERROR") {
		t.Errorf("%+v", b)
	}
	fault.Remove()
	r.settle()
	if n := r.verdicts(); n[outbox.Refused] != suspectRunLimit-1 || n[outbox.Acked] != 300-suspectRunLimit+1 {
		t.Errorf("verdicts %v", n)
	}
}

// Without a right to a producer id everything waits, says why, and goes on
// when the right is given.
func TestMissingRightToProduceBlocksAll(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	fault := k.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	r := start(t, k.Brokers())
	for i := range 10 {
		r.publish(ev("a", "k", i))
	}
	if b := r.blocked(""); !strings.Contains(b.Reason, "CLUSTER_AUTHORIZATION_FAILED") {
		t.Errorf("%+v", b)
	}
	if err := fault.Wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	fault.Remove()
	r.allAcked()
	eventually(t, "nothing to be blocked", func() bool { return len(r.kafka.Blocked()) == 0 })
}

// A cluster that cannot be reached is named with its address, and used as soon
// as it is there.
func TestUnreachableClusterIsNamed(t *testing.T) {
	t.Parallel()
	free := fake(t, 1)
	address := free.Brokers()[0]
	free.Cluster.Close()
	r := start(t, []string{address})
	r.kafka.pump.box.call(func() { r.kafka.pump.pace.request = 300 * time.Millisecond })
	r.publish(ev("a", "k", 1))
	eventually(t, "the address to be named", func() bool { return strings.Contains(r.blocked("").Reason, address) })
	port, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	back := fake(t, 1, kfake.Ports(port), kfake.SeedTopics(1, "a"))
	r.allAcked()
	if got := len(back.Dump(t, "a")); got != 1 {
		t.Errorf("%d records", got)
	}
}

// Where the settings of a topic may not be read the brokers' default is used
// and the status says so; where they may, a change is noticed.
// Cases F37, F38 of docs/guarantees.md.
func TestTopicLimitIsReadAndWatched(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, map[string]string{"max.message.bytes": "5000"})
	fault := k.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := start(t, k.Brokers())
	limit := func() (int, string) {
		for _, s := range r.kafka.Topics() {
			if s.Topic == "a" {
				return s.MaxBytes, s.LimitFrom
			}
		}
		return 0, ""
	}
	r.publish(ev("a", "k", 1))
	r.allAcked()
	if n, from := limit(); n != defaultMaxMessageBytes || from != limitFromDefault {
		t.Errorf("limit %d from %q", n, from)
	}
	big := ev("a", "k", 2) // below the default and beyond the topic's own: the broker decides
	big.Payload = bytes.Repeat([]byte("z1y2"), 2000)
	small := ev("a", "other", 3)
	r.kafka.pump.box.call(func() { r.kafka.pump.options.codec = kgo.NoCompression(); r.kafka.pump.renew("test") })
	r.publish(small, big, ev("a", "k", 4), ev("a", "other", 5))
	r.settle()
	if n := r.verdicts(); n[outbox.Acked] != 3 || n[outbox.Refused] != 1 || n[outbox.Diverted] != 1 {
		t.Fatalf("verdicts %v", n)
	}
	if why := r.outcome(3).Refusal; why.Class != outbox.ClassTooLarge || !strings.Contains(why.Detail, strconv.Itoa(defaultMaxMessageBytes)) {
		t.Errorf("the reason does not say which limit was assumed: %+v", why)
	}
	fault.Remove()
	eventually(t, "the topic's limit to be read", func() bool { n, from := limit(); return n == 5000 && from == limitFromTopic })
	adm := admin(t, k)
	if _, err := adm.AlterTopicConfigs(context.Background(), alter("max.message.bytes", "7000"), "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change to be noticed", func() bool { n, _ := limit(); return n == 7000 })
}

// One chunk is one batch, with many lanes, slow brokers and senders that drain
// while chunks are handed over. The chunks are made small so that there are
// many; with the client's own manual partitioner one in a hundred is split.
func TestOneChunkIsOneBatch(t *testing.T) {
	t.Parallel()
	k := fake(t, 2)
	k.CreateTopic(t, "a", 64, nil)
	var n atomic.Int64
	k.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.Cluster.KeepControl()
		if n.Add(1)%2 == 0 {
			k.Cluster.SleepControl(func() { <-time.After(time.Millisecond) })
		}
		return nil, nil, false
	})
	r := start(t, k.Brokers())
	r.kafka.pump.box.call(func() { r.kafka.pump.pace.chunkRecords, r.kafka.pump.pace.chunkBytes = 60, 16<<10 })
	want := map[string][]string{}
	for i := range 60_000 {
		e := ev("a", "k"+strconv.Itoa(i%500), i)
		want[e.AggregateID] = append(want[e.AggregateID], string(e.Payload))
		r.next++
		r.session.Publish(r.next, e)
	}
	r.session.Kick()
	r.allAcked()
	chunks := sampleCount(t, r.kafka.pump.metrics.duration)
	eventually(t, "the count of batches", func() bool { return r.batches.records.Load() == int64(r.next) })
	if batches := r.batches.batches.Load(); batches != int64(chunks) {
		t.Errorf("%d batches for %d chunks", batches, chunks)
	}
	t.Logf("%d chunks for %d records", chunks, r.next)
	wantOrder(t, k.Dump(t, "a"), want)
}
