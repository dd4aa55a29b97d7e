package sink

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// item is one record of a chunk on its way through the client. It is the
// record's own context, never done, so that the promise and the partitioner
// find it without a map and without an allocation.
type item struct {
	record kgo.Record
	entry  entry
	chunk  *chunk

	// cut says that the record was not given to the client's buffer, because
	// it would have begun a second batch. Written by whoever hands over.
	cut bool
	// err is the client's answer. Written by the promise, read by the pump
	// once the chunk is decided.
	err error
}

var _ context.Context = (*item)(nil)

// Deadline, Done, Err and Value make an item a context. They touch none of its
// memory: the client may ask a record's context after it called its promise,
// when the item is in use again.
func (*item) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done is never closed.
func (*item) Done() <-chan struct{} { return nil }

// Err is always nil.
func (*item) Err() error { return nil }

// Value knows nothing.
func (*item) Value(any) any { return nil }

// chunk is what one lane hands over at once: one batch of the client.
type chunk struct {
	lane     *lane
	session  *Session
	producer *producer

	items []item // never grown once records were handed over: the client points into it
	arena arena
	bytes int // uncompressed size of the batch

	suspected bool // formed in the search for a record that was refused

	handed time.Time

	// left counts records whose promise is still to come, and one for the
	// hand-over itself. Whoever brings it to 0 gives the chunk to the pump.
	left atomic.Int64
	// broken is set when a record would have begun a second batch.
	broken atomic.Bool
}

// fresh returns a chunk ready to be filled with up to n records.
func (p *pump) fresh(l *lane, n int) *chunk {
	var c *chunk
	if last := len(p.spare) - 1; last >= 0 {
		c, p.spare = p.spare[last], p.spare[:last]
		p.spareItems -= cap(c.items)
	} else {
		c = &chunk{}
	}
	if cap(c.items) < n {
		c.items = make([]item, 0, n)
	}
	c.arena.reset()
	c.lane, c.session, c.producer = l, p.session, p.producer
	c.bytes, c.suspected = batchOverhead, l.suspects > 0
	c.broken.Store(false)
	return c
}

// spareItems bounds what is kept for reuse, in records (of some 220 bytes, and
// as much again for headers and keys): enough for the lanes of one busy topic.
const spareItems = 32 << 10

// recycle keeps a decided chunk for reuse. The client is done with a record
// once it has called its promise.
func (p *pump) recycle(c *chunk) {
	clear(c.items)
	c.items = c.items[:0]
	c.lane, c.session, c.producer = nil, nil, nil
	if p.spareItems+cap(c.items) <= spareItems {
		p.spareItems += cap(c.items)
		p.spare = append(p.spare, c)
	}
}

// holdsKey says whether a record of the chunk has this key.
func (c *chunk) holdsKey(key string) bool {
	for i := range c.items {
		if k, ok := c.items[i].entry.event.Key(); ok && k == key {
			return true
		}
	}
	return false
}

// guard is the client's partitioner. It takes the partition that the sink
// chose, and it turns away every record but a chunk's first that would begin a
// new batch: the client announces a new batch before it makes one, and asks
// for the partition again.
//
// So what is stored of a chunk is always one batch, whatever the client's
// sender did meanwhile. Without it a batch taken half-filled could be refused
// while the chunk's later records go into the next batch and are stored.
type guard struct{}

func (guard) ForTopic(string) kgo.TopicPartitioner { return &topicGuard{} }

// topicGuard serves one topic; the client calls it under the topic's lock.
type topicGuard struct {
	fresh bool // the next Partition call is for a record that would begin a batch
}

func (*topicGuard) RequiresConsistency(*kgo.Record) bool { return true }

func (g *topicGuard) OnNewBatch() { g.fresh = true }

func (g *topicGuard) Partition(r *kgo.Record, _ int) int {
	it, ours := r.Context.(*item)
	if !ours {
		return int(r.Partition)
	}
	begins := g.fresh
	g.fresh = false
	if (begins && it != &it.chunk.items[0]) || it.chunk.broken.Load() {
		it.cut = true
		it.chunk.broken.Store(true)
		return -1
	}
	return int(r.Partition)
}

// handOver gives the chunk's records to the client, without waiting.
func (p *pump) handOver(c *chunk) {
	c.handed = time.Now()
	c.left.Store(int64(len(c.items)) + 1)
	sent := 0
	for i := range c.items {
		if c.broken.Load() {
			break
		}
		it := &c.items[i]
		c.producer.client.TryProduce(context.Background(), &it.record, p.promised)
		sent++
	}
	for i := sent; i < len(c.items); i++ {
		c.items[i].cut = true
	}
	p.release(c, len(c.items)-sent+1)
}

// promised is the client's callback. It stores and counts, nothing else: the
// client calls all promises on one goroutine, and everything behind it waits.
func (p *pump) promised(r *kgo.Record, err error) {
	it := r.Context.(*item)
	it.err = err
	p.release(it.chunk, 1)
}

// release counts down; the last one signals the pump.
func (p *pump) release(c *chunk, n int) {
	if c.left.Add(-int64(n)) == 0 {
		p.box.decided(c)
	}
}
