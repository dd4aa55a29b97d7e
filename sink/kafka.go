package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka publishes events. Make one with New, give it sessions with NewSession,
// and end it with Close. Its methods may be called from any goroutine.
type Kafka struct {
	pump *pump
	stop context.CancelFunc

	mu      sync.Mutex // guards the following
	started bool
	closed  bool
	stopped chan struct{} // closed when the pump has ended
}

// New checks the configuration. It does no I/O and starts nothing.
func New(c Config) (*Kafka, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := c.Policy.check(); err != nil {
		return nil, err
	}
	router, err := newRouter(c.Route)
	if err != nil {
		return nil, err
	}
	codec, err := codec(c.Codec)
	if err != nil {
		return nil, err
	}
	options := clientOptions{config: c, codec: codec, pace: defaultPace(), dials: &dialWatch{}}
	if err := kgo.ValidateOpts(append(options.producing(), c.ClientOptions...)...); err != nil {
		return nil, fmt.Errorf("configuring the kafka client: %w", err)
	}
	metrics, err := newMetrics(c.Registerer, c.Slot, c.MaxTopics)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &Kafka{stop: stop, stopped: make(chan struct{})}
	k.pump = &pump{
		config: c, router: router, pace: defaultPace(), log: c.Logger, metrics: metrics, options: options,
		box: newMailbox(), ctx: ctx,
		topics: map[string]*topic{}, routes: map[routeKey]route{},
	}
	k.pump.view.Store(&view{})
	return k, nil
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the sink is closed")

// NewSession begins a session and ends the one before it. It does no I/O: a
// cluster that cannot be reached makes events wait, and Blocked says why. A
// client that is dead is replaced.
func (k *Kafka) NewSession(ctx context.Context, o SessionOptions) (*Session, error) {
	if o.Report == nil {
		return nil, errors.New("beginning a session of the sink: no Report given")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("beginning a session of the sink: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	s := &Session{kafka: k, options: o, gathered: make([]entry, 0, postEntries)}
	k.pump.box.call(func() { k.pump.adopt(s, o.Held) })
	if !k.started {
		k.started = true
		go func() {
			defer close(k.stopped)
			k.pump.run()
		}()
	}
	return s, nil
}

// Close ends the session and the client and waits for all that it started.
// What is in flight gets no outcome.
func (k *Kafka) Close() {
	k.mu.Lock()
	first, started := !k.closed, k.started
	k.closed = true
	k.mu.Unlock()
	k.stop()
	if started {
		<-k.stopped
	}
	if first {
		k.pump.metrics.close()
	}
}
