package sink

import (
	"cmp"
	"slices"
	"time"
)

// Blocked is a topic to which nothing is handed over, or from which no answer
// comes. Its events wait; none is charged.
type Blocked struct {
	Topic  string // "" is the cluster as a whole
	Reason string // for people
	Since  time.Time
}

// TopicStatus is what the sink knows about a topic in use.
type TopicStatus struct {
	Topic      string
	Partitions int
	MaxBytes   int    // largest batch, in bytes
	LimitFrom  string // where MaxBytes comes from, for people
	Gathered   int    // events that wait in the sink
}

// view is a picture of the pump's state for other goroutines.
type view struct {
	blocked []Blocked
	topics  []TopicStatus
}

// Blocked lists what is blocked now, the cluster first, then topics by name.
func (k *Kafka) Blocked() []Blocked { return slices.Clone(k.pump.view.Load().blocked) }

// Topics lists the topics in use, by name. It is at most a second old.
func (k *Kafka) Topics() []TopicStatus { return slices.Clone(k.pump.view.Load().topics) }

// viewEvery is how often the picture is drawn again while something moves.
const viewEvery = time.Second

// show draws the picture anew when it is out of date.
func (p *pump) show() {
	if !p.dirty {
		if p.inflightRecords == 0 {
			return
		}
		if next := p.viewed.Add(viewEvery); p.now.Before(next) {
			p.at(next)
			return
		}
	}
	p.dirty, p.stalling, p.viewed = false, false, p.now
	if p.inflightRecords > 0 {
		p.at(p.now.Add(viewEvery)) // what is in flight may stall
	}
	v := &view{}
	if p.cluster != nil {
		v.blocked = append(v.blocked, Blocked{Reason: p.cluster.reason, Since: p.cluster.since})
	}
	for _, t := range p.topics {
		v.topics = append(v.topics, t.status())
		switch oldest := t.oldest(); {
		case t.fault != nil:
			v.blocked = append(v.blocked, Blocked{Topic: t.name, Reason: t.fault.reason, Since: t.fault.since})
		case !oldest.IsZero() && p.now.Sub(oldest) >= p.pace.stalled:
			p.stalling = true
			p.question(t)
			v.blocked = append(v.blocked, Blocked{Topic: t.name, Since: oldest, Reason: p.stallReason()})
		}
	}
	slices.SortFunc(v.blocked, func(a, b Blocked) int { return cmp.Compare(a.Topic, b.Topic) })
	slices.SortFunc(v.topics, func(a, b TopicStatus) int { return cmp.Compare(a.Topic, b.Topic) })
	p.view.Store(v)
}

func (p *pump) stallReason() string {
	reason := "no acknowledgement: the client keeps trying (no leader, too few replicas in sync, or a broker that cannot be reached)"
	if dial := p.options.dials.last(); dial != "" {
		reason += "; last failed connection: " + dial
	}
	return reason
}

func (t *topic) status() TopicStatus {
	s := TopicStatus{Topic: t.name, Partitions: len(t.lanes), MaxBytes: t.limit, LimitFrom: t.limitFrom, Gathered: t.waiting.len()}
	for _, l := range t.lanes {
		s.Gathered += l.queue.len()
	}
	return s
}

// oldest is when the topic's longest unanswered chunk was handed over; zero
// when none is in flight.
func (t *topic) oldest() time.Time {
	var oldest time.Time
	for _, l := range t.lanes {
		if l.chunk != nil && (oldest.IsZero() || l.chunk.handed.Before(oldest)) {
			oldest = l.chunk.handed
		}
	}
	return oldest
}
