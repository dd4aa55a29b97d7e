package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// producer is one client, and so one producer id. It is replaced, never
// mended: by a new id when the old one is dead, and by an empty memory when a
// topic was created anew.
type producer struct {
	client   *kgo.Client
	metrics  *clientMetrics
	inflight int  // chunks
	ready    bool // it has its producer id
	failed   bool // it could not get one
	dead     bool // what it stored is unknown
}

func (p *producer) usable() bool { return p != nil && p.ready && !p.failed && !p.dead }

// close ends the client: every promise still open is called with an error.
func (p *producer) close() {
	p.metrics.release()
	p.client.Close()
}

// clientOptions makes clients.
type clientOptions struct {
	config Config
	codec  kgo.CompressionCodec
	pace   pace
	dials  *dialWatch
}

func (o clientOptions) shared() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.config.Brokers...),
		kgo.ClientID(o.config.ClientID),
		kgo.DisableClientMetrics(), // what we measure goes to our own registry
		kgo.WithHooks(o.dials),
	}
	if o.config.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(o.config.TLS))
	}
	if o.config.SASL != nil {
		opts = append(opts, kgo.SASL(o.config.SASL))
	}
	return opts
}

// batchSlack is the room that the client's count of a batch needs beyond the
// broker's: it adds a length prefix.
const batchSlack = 1 << 10

// producing are the options of a client that produces. Defaults that matter
// are spelled out.
func (o clientOptions) producing() []kgo.Opt {
	// Chunks are formed by us within each topic's own limit, and one chunk
	// is one batch, so the client needs only a bound that it never meets.
	batch := int32(max(o.config.RecordBytes, o.pace.chunkBytes) + batchSlack)
	write := max(batch+1<<20, 100<<20) // brokers take 100 MiB by default (socket.request.max.bytes)
	return append(o.shared(),
		kgo.RequiredAcks(kgo.AllISRAcks()), // idempotence is on unless disabled
		kgo.StopProducerOnDataLossDetected(),
		kgo.UnknownTopicRetries(-1),
		kgo.RecordRetries(math.MaxInt64),
		kgo.RecordDeliveryTimeout(0),
		kgo.ProducerLinger(0),
		kgo.ManualFlushing(),
		kgo.RecordPartitioner(guard{}),
		kgo.ProducerBatchCompression(o.codec),
		kgo.ProducerBatchMaxBytes(batch),
		kgo.BrokerMaxWriteBytes(write),
		// What is in the client is at most one chunk a lane, and all of it
		// within the relay's span; a bound of its own could only refuse
		// what we must hand over.
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.MaxBufferedBytes(0),
		// Each leader change costs a metadata reading; at the default of
		// 2.5 s and more a rolling restart takes minutes.
		kgo.MetadataMinAge(250*time.Millisecond),
	)
}

// open makes a client. It does no I/O.
func (o clientOptions) open(m *metrics) (*producer, error) {
	watch := m.client()
	opts := append(o.producing(), watch.options()...)
	client, err := kgo.NewClient(append(opts, o.config.ClientOptions...)...)
	if err != nil {
		return nil, err
	}
	return &producer{client: client, metrics: watch}, nil
}

// renew makes a new client for everything handed over from now on. The old one
// keeps what it has in flight and is closed when that is decided.
func (p *pump) renew(why string) {
	if old := p.producer; old != nil {
		old.metrics.release()
		p.retired = append(p.retired, old)
		p.log.Info().Str("reason", why).Msg("replacing the kafka client")
	}
	next, err := p.options.open(p.metrics)
	if err != nil {
		// The same options passed kgo.ValidateOpts in New.
		panic(fmt.Sprintf("sink: making a client of valid options: %v", err))
	}
	p.producer = next
	p.dirty = true
	p.send(func(ctx context.Context) func() {
		_, _, err := next.client.ProducerID(ctx)
		return func() { p.prepared(next, err) }
	})
}

// prepared notes whether a client got its producer id. Asking for it before
// anything is handed over keeps the errors of the request away from records.
func (p *pump) prepared(which *producer, err error) {
	if which != p.producer {
		return
	}
	p.now = time.Now()
	if err != nil {
		which.failed = true
		code := "PRODUCER_ID"
		if j := judge(err); j.blame == blameConfig {
			code = j.code + " (" + j.why + ")"
		}
		p.clusterFault(code, fmt.Errorf("getting a producer id: %w", err))
		return
	}
	which.ready = true
	p.clusterHealed()
}

// closeRetired closes the replaced clients that have nothing in flight, and
// those whose records cannot be known anyway.
func (p *pump) closeRetired() {
	kept := p.retired[:0]
	for _, old := range p.retired {
		if old.inflight > 0 && !old.dead {
			kept = append(kept, old)
			continue
		}
		p.send(func(context.Context) func() {
			old.close()
			return nil
		})
	}
	clear(p.retired[len(kept):])
	p.retired = kept
}

// dialWatch remembers the last connection that failed, so that a fault names
// the address which the client cannot reach: that of kafka.brokers, or one that
// a broker advertises.
type dialWatch struct{ failed atomic.Pointer[string] }

var _ kgo.HookBrokerConnect = (*dialWatch)(nil)

// OnBrokerConnect is called by the client for every attempt.
func (d *dialWatch) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		d.failed.Store(nil)
		return
	}
	if errors.Is(err, context.Canceled) {
		return // the client is closing
	}
	text := net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port))) + ": " + err.Error()
	d.failed.Store(&text)
}

func (d *dialWatch) last() string {
	if text := d.failed.Load(); text != nil {
		return *text
	}
	return ""
}

// clientMetrics are the client's own metrics, registered while it is the one
// in use: two clients' series would clash.
type clientMetrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector
	released   bool
	hooks      *kprom.Metrics
}

func (m *metrics) client() *clientMetrics {
	c := &clientMetrics{registerer: m.registerer}
	if m.registerer != nil {
		c.hooks = kprom.NewMetrics("outbox_relay", kprom.Subsystem("kafka"), kprom.Registerer(c),
			kprom.WithStaticLabel(prometheus.Labels{"slot": m.slot}),
			// A quota makes brokers tell the client to wait; nothing else shows it.
			kprom.HistogramsFromOpts(kprom.HistogramOpts{Enable: kprom.RequestThrottled, Buckets: []float64{0.01, 0.1, 1, 10}}))
	}
	return c
}

func (c *clientMetrics) options() []kgo.Opt {
	if c.hooks == nil {
		return nil
	}
	return []kgo.Opt{kgo.WithHooks(c.hooks)}
}

// Register, MustRegister and Unregister make c the registerer of kprom, so that
// a client closed late does not take down its successor's series.
func (c *clientMetrics) Register(collector prometheus.Collector) error {
	if err := c.registerer.Register(collector); err != nil {
		return err
	}
	c.registered = append(c.registered, collector)
	return nil
}

// MustRegister registers and ignores a clash, which only costs the client's
// own series.
func (c *clientMetrics) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		_ = c.Register(collector)
	}
}

// Unregister does nothing: release does it, once.
func (c *clientMetrics) Unregister(prometheus.Collector) bool { return false }

func (c *clientMetrics) release() {
	if c.released {
		return
	}
	c.released = true
	for _, collector := range c.registered {
		c.registerer.Unregister(collector)
	}
}
