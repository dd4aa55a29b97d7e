package sink

import "testing"

// I8: a lane hands over one chunk at a time. What comes while one is in flight
// gathers, however often the lane is looked at.
func TestOneChunkALaneAtATime(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	k.CreateTopic(t, "a", 1, nil)
	r := start(t, k.Brokers())
	r.publish(ev("a", "k", 0))
	r.allAcked()
	g := closedGate(k.Cluster)
	r.publish(ev("a", "k", 1))
	eventually(t, "the chunk to be under way", func() bool { return g.passed.Load() == 1 })
	for i := 2; i < 6; i++ {
		r.publish(ev("a", "k", i))
		for range 2 { // the events of a post are taken after the calls of a turn
			done := make(chan [2]int)
			r.kafka.pump.box.call(func() {
				done <- [2]int{r.kafka.pump.inflightRecords, r.kafka.pump.topics["a"].lanes[0].queue.len()}
			})
			if got := <-done; got[0] != 1 {
				t.Errorf("%d records in flight and %d gathered, want one in flight", got[0], got[1])
			}
		}
	}
	close(g.open)
	r.allAcked()
	wantOrder(t, k.Dump(t, "a"), map[string][]string{"k": {"k/0", "k/1", "k/2", "k/3", "k/4", "k/5"}})
}
