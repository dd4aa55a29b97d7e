package sink

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// logEvery is the pause between two lines about the same trouble.
const logEvery = 30 * time.Second

// block stops handing over to a topic, says why, and plans the next try.
func (p *pump) block(t *topic, j judgement, err error) {
	text := err.Error()
	if len(text) > maxDetail {
		text = text[:maxDetail]
	}
	if t.fault == nil {
		t.fault = &fault{since: p.now}
	}
	f := t.fault
	f.reason = fmt.Sprintf("%s: %s (%s)", j.code, j.why, text)
	f.renew = f.renew || j.renew
	p.dirty = true
	if f.until.After(p.now) && !f.probing {
		return // another lane of the topic, in flight since before
	}
	f.tries++
	f.probing = false
	f.until = p.now.Add(p.backoff(f.tries))
	p.readSoon(t, f.until)
	p.producer.client.ForceMetadataRefresh()
	if p.now.Sub(f.logged) >= logEvery {
		f.logged = p.now
		p.log.Warn().Str("topic", t.name).Str("reason", f.reason).Int("tries", f.tries).
			Msg("the topic is blocked; its events wait and none is charged")
	}
}

// healed notes that the topic takes records.
func (p *pump) healed(t *topic) {
	if t.fault == nil {
		return
	}
	p.log.Info().Str("topic", t.name).Dur("after", p.now.Sub(t.fault.since)).Msg("the topic takes records again")
	t.fault = nil
	p.dirty = true
	p.readSoon(t, p.now.Add(jittered(p.pace.refresh)))
}

// jittered spreads a period by a tenth either way.
func jittered(d time.Duration) time.Duration {
	return d*9/10 + rand.N(d/5+1)
}

// readSoon plans a reading of the topic's metadata and settings at the latest
// at the given time.
func (p *pump) readSoon(t *topic, when time.Time) {
	if t.fetchAt.IsZero() || when.Before(t.fetchAt) {
		t.fetchAt = when
	}
	p.at(when)
}

// question reads the metadata of a topic that does not answer, again and again
// but not more often than stalls are called one. What a deleted topic is
// answered with the client repeats by itself, so nothing else would tell for up
// to a refresh period.
func (p *pump) question(t *topic) {
	if p.now.Sub(t.questioned) < p.pace.stalled {
		return
	}
	t.questioned = p.now
	p.readSoon(t, p.now)
}

// attend does what has become due: topics to read, and a client to renew.
func (p *pump) attend() {
	p.due = time.Time{}
	if p.producer == nil {
		return
	}
	if p.producer.failed && !p.producer.dead {
		if p.cluster != nil && p.cluster.until.After(p.now) {
			p.at(p.cluster.until)
		} else {
			p.renew("its producer id could not be had")
		}
	}
	var names []*topic
	for _, t := range p.topics {
		switch {
		case t.fetchAt.IsZero(): // under way, and nothing asked for since
		case t.fetchAt.After(p.now):
			p.at(t.fetchAt)
		case p.idle(t):
			delete(p.topics, t.name)
			clear(p.routes)
		default:
			names = append(names, t)
		}
	}
	if len(names) == 0 {
		return
	}
	if p.reading {
		return // the reading's end attends again
	}
	p.read(names)
}

// idleAfter is how long a topic is remembered after its last event, in
// refresh periods. It bounds the topics that rows can make us remember.
const idleAfter = 10

// idle says whether a topic can be forgotten.
func (p *pump) idle(t *topic) bool {
	return p.now.Sub(t.used) > idleAfter*p.pace.refresh && t.empty() && !t.busy()
}

// clusterFault notes that the cluster as a whole cannot be used.
func (p *pump) clusterFault(code string, err error) {
	if p.cluster == nil {
		p.cluster = &fault{since: p.now}
	}
	f := p.cluster
	f.tries++
	f.until = p.now.Add(p.backoff(f.tries))
	text := err.Error()
	if dial := p.options.dials.last(); dial != "" {
		text += "; last failed connection: " + dial
	}
	if len(text) > maxDetail {
		text = text[:maxDetail]
	}
	f.reason = code + ": " + text
	p.dirty = true
	p.at(f.until)
	if p.now.Sub(f.logged) >= logEvery {
		f.logged = p.now
		p.log.Warn().Str("reason", f.reason).Int("tries", f.tries).Msg("the cluster cannot be used; all events wait and none is charged")
	}
}

// clusterHealed notes that the cluster answers.
func (p *pump) clusterHealed() {
	if p.cluster == nil {
		return
	}
	p.log.Info().Dur("after", p.now.Sub(p.cluster.since)).Msg("the cluster can be used again")
	p.cluster = nil
	p.dirty = true
}
