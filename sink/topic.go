package sink

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// defaultMaxMessageBytes is a broker's own default for message.max.bytes
// (Kafka documentation, "Broker Configs"), used where a topic's setting may
// not be read.
const defaultMaxMessageBytes = 1_048_588

// Where a topic's limit comes from, for people.
const (
	limitFromTopic   = "max.message.bytes of the topic"
	limitFromDefault = "the brokers' default of max.message.bytes (the topic's own may not be read)"
	limitFromConfig  = "limits.record_bytes"
)

// topic is what the pump knows about one topic. Only the pump touches it.
type topic struct {
	name  string
	lanes []*lane  // one per partition; nil until the cluster told their number
	id    [16]byte // of the topic that the lanes stand for; zero where brokers have no ids
	turn  int      // index of the lane that events without a key fill now

	// waiting holds events that have no lane yet, in order: the topic is not
	// known, or its lanes are being made anew.
	waiting queue
	// reshape is the number of lanes wanted, while chunks of the old ones
	// are still in flight; 0 otherwise.
	reshape int

	limit     int    // max.message.bytes, uncompressed as we count
	limitFrom string // limitFromTopic or limitFromDefault
	// batchCap is a smaller bound on chunks, learned from a broker that
	// called one too large though the limit said otherwise; 0 is none.
	batchCap int

	fault *fault
	run   suspectRun

	fetchAt time.Time // when to read metadata and settings next; zero while a reading is under way
	used    time.Time // of the last event

	questioned time.Time // when it was read because it did not answer

	published prometheus.Counter
	label     string // the value of the label topic
}

// fault is why nothing of a topic is handed over.
type fault struct {
	reason  string
	since   time.Time
	logged  time.Time
	tries   int
	until   time.Time // when healing is tried
	renew   bool      // healing needs a new client
	probing bool      // metadata looks well; the next chunk decides
}

// lane is one partition's queue. At most one chunk of it is in flight.
type lane struct {
	topic     *topic
	partition int32
	queue     queue
	chunk     *chunk // in flight; nil when idle
	ready     bool   // in the pump's list of lanes to look at

	// After a refusal the front of the queue is under suspicion: that many
	// entries are sent in chunks of at most limit.
	suspects int
	limit    int
}

// open says whether chunks may be handed over.
func (t *topic) open() bool {
	return t.lanes != nil && t.reshape == 0 && (t.fault == nil || t.fault.probing)
}

// busy says whether a chunk of the topic is in flight.
func (t *topic) busy() bool {
	for _, l := range t.lanes {
		if l.chunk != nil {
			return true
		}
	}
	return false
}

// empty says whether no event of the topic waits.
func (t *topic) empty() bool {
	if t.waiting.len() > 0 {
		return false
	}
	for _, l := range t.lanes {
		if l.queue.len() > 0 {
			return false
		}
	}
	return true
}

// place puts an entry into its lane, or among the waiting.
func (p *pump) place(t *topic, e entry) {
	if t.lanes == nil || t.reshape != 0 {
		t.waiting.push(e)
		return
	}
	var l *lane
	if key, ok := e.event.Key(); ok {
		l = t.lanes[partitionOf(key, len(t.lanes))]
	} else {
		l = t.nextLane()
	}
	l.queue.push(e)
	p.look(l)
}

const (
	// keylessRun is how many events without a key go to one lane before the
	// next has its turn. guess: enough to make compression worth while.
	keylessRun = 500
	// keylessTries bounds the search for an idle lane.
	keylessTries = 8
)

// nextLane is the lane for an event without a key: lanes are filled in turn,
// idle ones first.
func (t *topic) nextLane() *lane {
	for range min(keylessTries, len(t.lanes)) {
		if l := t.lanes[t.turn]; l.chunk == nil && l.queue.len() < keylessRun {
			return l
		}
		t.turn = (t.turn + 1) % len(t.lanes)
	}
	t.turn = (t.turn + 1) % len(t.lanes)
	return t.lanes[t.turn]
}

// gather empties the topic and returns everything that waited, in an order
// that keeps each key's: a key is in one lane, and what has no lane came later.
func (t *topic) gather() []entry {
	var all []entry
	for _, l := range t.lanes {
		all = append(all, l.queue.take()...)
	}
	return append(all, t.waiting.take()...)
}

// makeLanes gives the topic n lanes and places everything that waits. No chunk
// of the topic may be in flight: then each key's earlier records are decided,
// and the key may move to another partition.
func (p *pump) makeLanes(t *topic, n int) {
	waiting := t.gather()
	t.lanes = make([]*lane, n)
	for i := range t.lanes {
		t.lanes[i] = &lane{topic: t, partition: int32(i)}
	}
	t.turn, t.reshape = 0, 0
	for _, e := range waiting {
		p.place(t, e)
	}
	p.dirty = true
}

// forget drops all events of a session that is over. Lanes with a chunk in
// flight stay closed until it is decided; topics without one are forgotten.
func (p *pump) forget() {
	for name, t := range p.topics {
		t.waiting = queue{}
		for _, l := range t.lanes {
			l.queue = queue{}
			l.suspects, l.limit = 0, 0
		}
		if !t.busy() {
			delete(p.topics, name)
		}
	}
	clear(p.routes)
	p.dirty = true
}
