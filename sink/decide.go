package sink

import (
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// maxDetail bounds the text kept of an error, in bytes.
const maxDetail = 1000

// decide takes a chunk whose every promise was called and gives its events
// their outcomes, or puts them back into their lane.
func (p *pump) decide(c *chunk) {
	l, t := c.lane, c.lane.topic
	l.chunk = nil
	c.producer.inflight--
	p.inflightRecords -= len(c.items)
	ours := c.session == p.session // else a session that is over: nothing is reported or sent again

	rest := p.acknowledge(c, ours)
	switch {
	case len(rest) == 0:
		t.run = suspectRun{}
		p.healed(t)
	case rest[0].cut:
		p.putBack(c, rest, ours) // the client took the batch before it was full
	default:
		p.fail(c, rest, ours)
	}
	if l.suspects == 0 {
		l.limit = 0
	}
	p.recycle(c)
	p.dirty = p.dirty || p.stalling
	if t.reshape != 0 && !t.busy() {
		p.makeLanes(t, t.reshape)
	}
	if l.queue.len() > 0 {
		p.look(l)
	}
}

// acknowledge reports what was stored and returns the items that were not.
func (p *pump) acknowledge(c *chunk, ours bool) (rest []*item) {
	acked := 0
	for i := range c.items {
		it := &c.items[i]
		if it.cut || it.err != nil {
			rest = append(rest, it)
			continue
		}
		if len(rest) > 0 {
			// The client promises otherwise and guard enforces it.
			p.log.Error().Str("topic", c.lane.topic.name).Int32("partition", c.lane.partition).
				Msg("a record was stored although an earlier one of its batch was not: order of a key may be broken")
		}
		acked++
		p.metrics.sizes.observe(len(it.record.Key) + len(it.record.Value))
		if ours {
			p.report(outbox.Outcome{Ticket: it.entry.ticket, Event: it.entry.event, Verdict: outbox.Acked})
		}
	}
	if acked > 0 {
		c.lane.topic.published.Add(float64(acked))
		p.metrics.sizes.flush()
		p.metrics.duration.Observe(time.Since(c.handed).Seconds())
	}
	return rest
}

// putBack returns items to the front of their lane, in order.
func (p *pump) putBack(c *chunk, rest []*item, ours bool) {
	if !ours {
		return
	}
	entries := make([]entry, len(rest))
	for i, it := range rest {
		entries[i] = it.entry
	}
	c.lane.queue.unshift(entries)
	if c.suspected {
		c.lane.suspects += len(rest)
	}
}

// fail judges a chunk that was refused and acts on it.
func (p *pump) fail(c *chunk, rest []*item, ours bool) {
	t, err := c.lane.topic, rest[0].err
	j := judge(err)
	p.metrics.failed(t.label, j.metricClass(), j.code, 1)
	switch j.blame {
	case blameSession:
		p.lost(c.producer, ours, err)
	case blameRecord, blameSuspect:
		p.suspect(c, rest, j, ours)
	default:
		p.putBack(c, rest, ours)
		p.block(t, j, err)
	}
}

// lost deals with a producer that cannot tell what it stored. It ends the
// session that lives, unless the producer was already replaced and the chunk
// belongs to an earlier session.
func (p *pump) lost(from *producer, ours bool, err error) {
	from.dead = true
	p.dirty = true
	if ours || from == p.producer {
		p.interrupt(err)
	}
}

// narrowing is by how much chunks shrink in the search for a culprit: 3 more
// rounds find one among 500, where single re-sends would take 500.
const narrowing = 8

// suspect deals with a chunk in which some record is bad. With one record the
// culprit is found; else the chunk's records are sent again in order, in
// smaller and smaller chunks, each decided before the next.
func (p *pump) suspect(c *chunk, rest []*item, j judgement, ours bool) {
	l, t := c.lane, c.lane.topic
	if j.class == outbox.ClassTooLarge {
		p.tooLargeForBroker(c)
	}
	if !ours {
		return
	}
	if len(c.items) > 1 {
		l.limit = max(1, len(c.items)/narrowing)
		c.suspected = true
		p.putBack(c, rest, true)
		return
	}
	if j.blame == blameSuspect && t.run.hit(j.code) {
		p.putBack(c, rest, true)
		p.block(t, j, rest[0].err)
		return
	}
	detail := rest[0].err.Error()
	if j.class == outbox.ClassTooLarge {
		// The broker does not say what it allows, and it is not what we knew.
		detail = fmt.Sprintf("%s; %s was %d when it was last read", detail, t.limitFrom, t.limit)
	}
	if len(detail) > maxDetail {
		detail = detail[:maxDetail]
	}
	p.healed(t) // a batch reached the partition's leader and was judged on its own
	p.refuse(t.name, rest[0].entry, outbox.Refusal{Class: j.class, Code: j.code, Detail: detail})
}

// tooLargeForBroker remembers that the limit we know is too large, and reads
// it again.
func (p *pump) tooLargeForBroker(c *chunk) {
	t := c.lane.topic
	if len(c.items) > 1 {
		t.batchCap = max(c.bytes/2, minRecordBytes)
	}
	p.readSoon(t, p.now)
}

// metricClass is the value of the label class.
func (j judgement) metricClass() string {
	if j.blame == blameRecord || j.blame == blameSuspect {
		return "permanent"
	}
	return "retriable"
}
