package sink

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// gone is a context that is done: a flush with it starts the client's senders
// and does not wait.
var gone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// pump is the one goroutine that owns all state of the sink.
type pump struct {
	config  Config
	router  *router
	pace    pace
	log     zerolog.Logger
	metrics *metrics
	options clientOptions

	box *mailbox

	ctx    context.Context // ends the pump and its errands
	errand sync.WaitGroup  // goroutines that talk to the cluster for the pump

	view atomic.Pointer[view] // what Blocked and Topics show

	// The rest is touched by the pump's goroutine alone.

	mail    mail
	session *Session // nil when none lives
	held    heldSet
	topics  map[string]*topic
	routes  map[routeKey]route
	ready   []*lane
	spare   []*chunk

	spareItems int // records that spare has room for

	producer *producer   // used for all that is handed over from now on
	retired  []*producer // earlier ones with chunks still in flight

	inflightRecords int

	now      time.Time
	due      time.Time // the earliest time at which attend has something to do
	reading  bool      // a reading of metadata is under way
	flushed  time.Time
	dirty    bool // the view is out of date
	viewed   time.Time
	stalling bool   // the view shows a topic that does not answer
	cluster  *fault // why the cluster as a whole cannot be used
}

// far is later than anything the pump waits for.
const far = time.Hour

// run is the pump's loop. It ends when ctx does, after the clients are closed.
func (p *pump) run() {
	timer := time.NewTimer(far)
	defer timer.Stop()
	for {
		select {
		case <-p.box.wake:
		case <-timer.C:
		case <-p.ctx.Done():
			p.shutdown()
			return
		}
		p.turn(time.Now())
		timer.Reset(p.untilDue(time.Now()))
	}
}

// turn does everything there is to do, once.
func (p *pump) turn(now time.Time) {
	p.now = now
	p.box.take(&p.mail)
	for _, f := range p.mail.calls {
		f()
	}
	for _, c := range p.mail.done {
		p.decide(c)
	}
	for _, post := range p.mail.posts {
		p.ingest(post)
	}
	p.box.giveBack(p.mail.posts)
	if !now.Before(p.due) {
		p.attend()
	}
	p.handOverReady()
	p.closeRetired()
	if p.inflightRecords > 0 && now.Sub(p.flushed) >= p.pace.nudge {
		p.flush()
	}
	p.show()
}

// untilDue is how long the pump may sleep.
func (p *pump) untilDue(now time.Time) time.Duration {
	wait := far
	if !p.due.IsZero() {
		wait = p.due.Sub(now)
	}
	if p.inflightRecords > 0 {
		wait = min(wait, p.flushed.Add(p.pace.nudge).Sub(now))
	}
	return max(wait, 0)
}

// at makes attend run at t at the latest.
func (p *pump) at(t time.Time) {
	if p.due.IsZero() || t.Before(p.due) {
		p.due = t
	}
}

// backoff is the pause before the given try, with jitter, so that many relays
// do not come back at the same moment.
func (p *pump) backoff(tries int) time.Duration {
	d := p.pace.backoffLast
	if tries < 16 {
		d = min(d, p.pace.backoffFirst<<max(tries-1, 0))
	}
	return d*4/5 + rand.N(d*2/5+1)
}

// flush starts the client's senders. With manual flushing nothing else does,
// neither for what was just handed over nor for what the client means to send
// again (after a leader moved, say), so it is repeated while anything is in
// flight.
func (p *pump) flush() {
	_ = p.producer.client.Flush(gone) // says only that its context is done
	for _, old := range p.retired {
		_ = old.client.Flush(gone)
	}
	p.flushed = p.now
}

// ingest routes events to their lanes.
func (p *pump) ingest(in post) {
	if in.session != p.session {
		return // gathered by a session that is over
	}
	for _, e := range in.entries {
		r := p.route(e.event)
		if r.refusal != nil {
			p.turnAway(r.name, e, *r.refusal)
			continue
		}
		r.topic.used = p.now
		p.place(r.topic, e)
	}
}

// routeKey is what a route depends on.
type routeKey struct {
	topic, aggregate, kind string
}

// route is where such events go.
type route struct {
	name    string
	topic   *topic
	refusal *outbox.Refusal
}

// maxRoutes bounds the remembered routes: the words in them come from rows.
const maxRoutes = 4096

func (p *pump) route(e *outbox.Event) route {
	k := routeKey{topic: e.Topic}
	if e.Topic == "" {
		k.aggregate, k.kind = e.AggregateType, e.Type
	}
	if r, ok := p.routes[k]; ok {
		return r
	}
	if len(p.routes) >= maxRoutes {
		clear(p.routes)
	}
	var r route
	if r.name, r.refusal = p.router.topic(e); r.refusal == nil {
		r.topic = p.topicNamed(r.name)
	}
	p.routes[k] = r
	return r
}

func (p *pump) topicNamed(name string) *topic {
	t := p.topics[name]
	if t == nil {
		t = &topic{name: name, limit: defaultMaxMessageBytes, limitFrom: limitFromDefault, fetchAt: p.now}
		t.label = p.metrics.topicLabel(name)
		t.published = p.metrics.published.WithLabelValues(t.label, "stream")
		p.topics[name] = t
		p.at(p.now)
		p.dirty = true
	}
	return t
}

func (p *pump) label(topic string) string {
	if t := p.topics[topic]; t != nil {
		return t.label
	}
	return otherTopics
}

// report gives an outcome to the session, if it still lives.
func (p *pump) report(o outbox.Outcome) {
	if p.session != nil {
		p.session.deliver(o)
	}
}

// adopt makes s the session that lives.
func (p *pump) adopt(s *Session, held []HeldEvent) {
	p.drop()
	p.session = s
	p.held = newHeldSet(held)
	if p.producer == nil || p.producer.dead {
		p.renew("a new session")
	}
}

// drop ends the session that lives, if any.
func (p *pump) drop() {
	if p.session == nil {
		return
	}
	p.session.finish()
	p.session, p.held = nil, nil
	p.forget()
}

// interrupt ends the session because what was stored is unknown.
func (p *pump) interrupt(err error) {
	if p.session == nil {
		return
	}
	s := p.session
	p.log.Error().Err(err).Msg("the producer cannot go on; the session ends and its events will be sent again")
	p.drop()
	s.interrupted(err)
}

// shutdown closes what the pump opened and waits for its errands.
func (p *pump) shutdown() {
	p.drop()
	p.errand.Wait()
	if p.producer != nil {
		p.producer.close()
	}
	for _, old := range p.retired {
		old.close()
	}
}

// send runs work on a goroutine of its own and its result on the pump.
func (p *pump) send(work func(ctx context.Context) func()) {
	limit := p.pace.request
	p.errand.Add(1)
	go func() {
		defer p.errand.Done()
		ctx, cancel := context.WithTimeout(p.ctx, limit)
		defer cancel()
		if result := work(ctx); result != nil {
			p.box.call(result)
		}
	}()
}
