package sink

import (
	"github.com/outboxrelay/outbox-relay/outbox"
)

// look puts a lane on the list of lanes that may have something to hand over.
func (p *pump) look(l *lane) {
	if !l.ready {
		l.ready = true
		p.ready = append(p.ready, l)
	}
}

// lookAll looks at every lane of the topic that gathered something.
func (p *pump) lookAll(t *topic) {
	for _, l := range t.lanes {
		if l.queue.len() > 0 {
			p.look(l)
		}
	}
}

// handOverReady forms and hands over the chunks of all lanes that are idle and
// open. A lane that is not comes back by look when that changes.
func (p *pump) handOverReady() {
	if p.session == nil || !p.producer.usable() {
		return // the list is kept
	}
	bytes := 0
	for _, l := range p.ready {
		l.ready = false
		if l.chunk != nil || !l.topic.open() {
			continue
		}
		c := p.form(l)
		if c == nil {
			continue
		}
		l.chunk = c
		c.producer.inflight++
		p.inflightRecords += len(c.items)
		p.handOver(c)
		if bytes += c.bytes; bytes >= p.pace.chunkBytes {
			p.flush() // lets the sender work while we form the next ones
			bytes = 0
		}
	}
	clear(p.ready)
	p.ready = p.ready[:0]
	if bytes > 0 {
		p.flush()
	}
}

// form takes events from the front of the lane into a chunk, and reports those
// on the way that are refused or must wait behind a held event. It returns nil
// when nothing is left to send.
func (p *pump) form(l *lane) *chunk {
	most := min(l.queue.len(), p.pace.chunkRecords)
	if l.suspects > 0 {
		most = min(most, l.limit)
	}
	if most == 0 {
		return nil
	}
	c := p.fresh(l, most)
	for len(c.items) < most && l.queue.len() > 0 {
		if !p.admit(c, l.queue.front()) {
			break
		}
		l.queue.pop()
		if l.suspects > 0 {
			l.suspects--
		}
	}
	if len(c.items) == 0 {
		p.recycle(c)
		return nil
	}
	return c
}

// admit adds the event to the chunk, or reports that it is refused or diverted.
// It returns false when the event must wait for the next chunk.
func (p *pump) admit(c *chunk, e entry) bool {
	t := c.lane.topic
	key, keyed := e.event.Key()
	if keyed && p.held.has(orderKey{t.name, key}) {
		p.divert(t.name, e)
		return true
	}
	bytesMark, headersMark := len(c.arena.bytes), len(c.arena.headers)
	c.items = append(c.items, item{entry: e, chunk: c})
	it := &c.items[len(c.items)-1]
	refusal := c.arena.encode(e.event, &it.record)
	if refusal == nil {
		refusal = tooLarge(&it.record,
			sizeLimit{t.limit, t.limitFrom}, sizeLimit{p.config.RecordBytes, limitFromConfig})
	}
	if refusal == nil && p.fits(c, it) {
		it.record.Context = it
		it.record.Topic = t.name
		it.record.Partition = c.lane.partition
		return true
	}
	c.items[len(c.items)-1] = item{}
	c.items = c.items[:len(c.items)-1]
	c.arena.bytes, c.arena.headers = c.arena.bytes[:bytesMark], c.arena.headers[:headersMark]
	if refusal == nil {
		return false
	}
	if keyed && p.config.Policy.holds(t.name, refusal.Class, true) && c.holdsKey(key) {
		// An earlier event of the key is in this chunk and not decided.
		// Were the key held now, that one could not be sent again.
		return false
	}
	p.refuse(t.name, e, *refusal)
	return true
}

// fits adds the record's size to the chunk, unless it would be too large. The
// first record always fits.
func (p *pump) fits(c *chunk, it *item) bool {
	t, n := c.lane.topic, len(c.items)-1
	delta := it.record.Timestamp.UnixMilli() - c.items[0].record.Timestamp.UnixMilli()
	size := c.bytes + recordSize(&it.record, delta, n)
	limit := min(p.pace.chunkBytes, t.limit)
	if t.batchCap > 0 {
		limit = min(limit, t.batchCap)
	}
	if n > 0 && size > limit {
		return false
	}
	c.bytes = size
	return true
}

// divert reports that the event waits behind a held one.
func (p *pump) divert(topic string, e entry) {
	key, _ := e.event.Key()
	p.held.add(orderKey{topic, key}, e.event.Position)
	p.report(outbox.Outcome{
		Ticket: e.ticket, Event: e.event, Verdict: outbox.Diverted, Holds: true,
		Record: newRecord(e.event, topic),
	})
}

// refuse reports that the event is refused, and holds its key if the policy
// says so.
func (p *pump) refuse(topic string, e entry, why outbox.Refusal) {
	key, keyed := e.event.Key()
	holds := p.config.Policy.holds(topic, why.Class, keyed)
	if holds {
		p.held.add(orderKey{topic, key}, e.event.Position)
	}
	p.metrics.failed(p.label(topic), "permanent", why.Code, 1)
	p.report(outbox.Outcome{
		Ticket: e.ticket, Event: e.event, Verdict: outbox.Refused, Holds: holds,
		Refusal: why, Record: newRecord(e.event, topic),
	})
}

// turnAway refuses an event that has no lane, or diverts it when its key is
// held.
func (p *pump) turnAway(topic string, e entry, why outbox.Refusal) {
	if key, keyed := e.event.Key(); keyed && p.held.has(orderKey{topic, key}) {
		p.divert(topic, e)
		return
	}
	p.refuse(topic, e, why)
}
