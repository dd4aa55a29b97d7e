package sink

import (
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// otherTopics is the value of the label topic beyond the cap.
const otherTopics = "_other"

// metrics are the sink's own series. The pump writes them, a chunk at a time.
type metrics struct {
	registerer prometheus.Registerer
	slot       string

	published *prometheus.CounterVec // topic, source
	errors    *prometheus.CounterVec // topic, class, error
	duration  prometheus.Histogram
	sizes     *sizeHistogram

	labels    map[string]bool // topics that have a label of their own
	maxTopics int

	registered []prometheus.Collector
}

func newMetrics(registerer prometheus.Registerer, slot string, maxTopics int) (*metrics, error) {
	labels := prometheus.Labels{"slot": slot}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "outbox_relay", Name: name, Help: help, ConstLabels: labels}
	}
	m := &metrics{registerer: registerer, slot: slot, labels: map[string]bool{}, maxTopics: maxTopics}
	m.published = prometheus.NewCounterVec(prometheus.CounterOpts(opts("records_published_total",
		"Records that all in-sync replicas have acknowledged. Does not move while nothing is published.")), []string{"topic", "source"})
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts(opts("publish_errors_total",
		"Answers that refused something: permanent ones name a record, retriable ones a topic or the cluster. Zero in good health.")), []string{"topic", "class", "error"})
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "outbox_relay", Name: "publish_duration_seconds", ConstLabels: labels,
		Help:    "Time from handing a chunk of records to the client until its acknowledgement; one observation a chunk.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16), NativeHistogramBucketFactor: 1.1,
	})
	m.sizes = newSizeHistogram(labels)
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.published, m.errors, m.duration, m.sizes} {
		if err := registerer.Register(c); err != nil {
			m.close()
			return nil, fmt.Errorf("registering the sink's metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// close takes the series down.
func (m *metrics) close() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

// topicLabel is the value of the label topic for a topic.
func (m *metrics) topicLabel(topic string) string {
	if m.labels[topic] {
		return topic
	}
	if len(m.labels) >= m.maxTopics {
		return otherTopics
	}
	m.labels[topic] = true
	return topic
}

// failed counts an answer that refused something.
func (m *metrics) failed(topic, class, code string, n int) {
	m.errors.WithLabelValues(topic, class, code).Add(float64(n))
}

// sizeBounds are the upper bounds of outbox_relay_record_bytes, in bytes.
var sizeBounds = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}

// sizeHistogram is outbox_relay_record_bytes. The library's histogram costs
// several atomic operations an observation; this one is counted by the pump
// alone and published a chunk at a time.
type sizeHistogram struct {
	desc *prometheus.Desc

	pending []uint64 // by bucket, the last beyond all bounds; the pump's own
	bytes   uint64   // the pump's own

	mu    sync.Mutex // guards the following
	count []uint64
	sum   uint64
}

func newSizeHistogram(labels prometheus.Labels) *sizeHistogram {
	n := len(sizeBounds) + 1
	return &sizeHistogram{
		desc:    prometheus.NewDesc("outbox_relay_record_bytes", "Bytes of key and value of the records acknowledged.", nil, labels),
		pending: make([]uint64, n),
		count:   make([]uint64, n),
	}
}

func (h *sizeHistogram) observe(n int) {
	i := 0
	for i < len(sizeBounds) && float64(n) > sizeBounds[i] {
		i++
	}
	h.pending[i]++
	h.bytes += uint64(n)
}

// flush publishes what was observed.
func (h *sizeHistogram) flush() {
	h.mu.Lock()
	for i, n := range h.pending {
		h.count[i] += n
	}
	h.sum += h.bytes
	h.mu.Unlock()
	clear(h.pending)
	h.bytes = 0
}

// Describe and Collect make it a prometheus.Collector.
func (h *sizeHistogram) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect sends the state of the last flush.
func (h *sizeHistogram) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	counts, sum := slices.Clone(h.count), h.sum
	h.mu.Unlock()
	buckets := make(map[float64]uint64, len(sizeBounds))
	var total uint64
	for i, n := range counts {
		total += n
		if i < len(sizeBounds) {
			buckets[sizeBounds[i]] = total
		}
	}
	ch <- prometheus.MustNewConstHistogram(h.desc, total, float64(sum), buckets)
}
