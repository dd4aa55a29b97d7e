package sink

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
)

// A topic that is deleted under events in flight is named as missing as soon
// as it counts as stalled: the client repeats what the brokers answer by
// itself, and the next regular reading may be a minute away. Created anew, it
// gets every event.
func TestTopicDeletedUnderEventsIsNamed(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	r := start(t, k.Brokers())
	r.kafka.pump.box.call(func() {
		r.kafka.pump.pace.stalled = 200 * time.Millisecond
		r.kafka.pump.pace.refresh = time.Hour
	})
	first := ev("a", "k", 0)
	r.publish(first)
	r.allAcked()
	// An answer that the client repeats keeps the next event in flight while
	// the topic goes.
	fault := k.Cluster.Fault(kfake.Fault{Keys: produceKey, Err: kerr.NotEnoughReplicas, Count: -1})
	want := ev("a", "k", 1)
	r.publish(want)
	if err := fault.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := admin(t, k).DeleteTopics(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic to be called missing", func() bool {
		b := r.kafka.Blocked()
		return len(b) == 1 && b[0].Topic == "a" && strings.Contains(b[0].Reason, "UNKNOWN_TOPIC_OR_PARTITION") && strings.Contains(b[0].Reason, "create it")
	})
	k.CreateTopic(t, "a", 1, nil)
	fault.Remove()
	r.allAcked()
	wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": {string(want.Payload)}})
}
