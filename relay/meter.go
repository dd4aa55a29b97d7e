package relay

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// meter turns the board's and the loop's numbers into metrics at scrape time.
// Counters survive sessions: each session continues the totals of the last.
type meter struct {
	r *Relay

	mu    sync.Mutex
	total counts // of the sessions that are over

	reconnects  *prometheus.CounterVec
	commitToAck prometheus.Histogram
	batchWait   prometheus.Histogram
}

// latencyBuckets run from half a millisecond to about a minute.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// newMeter registers everything with reg; nil registers nothing.
func newMeter(r *Relay, reg prometheus.Registerer) (*meter, error) {
	slot := prometheus.Labels{"slot": r.cfg.Slot}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: slot, Buckets: latencyBuckets, NativeHistogramBucketFactor: 1.1})
	}
	m := &meter{
		r: r,
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_postgres_reconnects_total",
			Help: "Sessions that ended and were followed by another, by reason. Zero while the first one lasts.", ConstLabels: slot}, []string{"conn", "reason"}),
		commitToAck: histogram("outbox_relay_commit_to_ack_seconds",
			"From the commit in the database to the broker's acknowledgement, seconds; under load one row in sixteen."),
		batchWait: histogram("outbox_relay_status_update_delay_seconds", "How long one settling transaction took, seconds."),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m, m.reconnects, m.commitToAck, m.batchWait} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *meter) reconnect(reason string) { m.reconnects.WithLabelValues("replication", reason).Inc() }

// newStats gives a session its counters, which go on from the last session's.
func (m *meter) newStats() *stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &stats{now: m.total, commitToAck: m.commitToAck.Observe, batchWait: m.batchWait.Observe}
	c := s.now
	s.pub.Store(&c)
	return s
}

// endStats keeps a session's totals for the next one.
func (m *meter) endStats(s *stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = *s.snapshot()
	m.total.HeldRows, m.total.HeldBytes, m.total.OldestCommit = 0, 0, time.Time{}
}

// Describe sends nothing: the collector is unchecked, since several metrics
// are absent while they have no meaning.
func (m *meter) Describe(chan<- *prometheus.Desc) {}

// Collect reads everything once and sends it.
func (m *meter) Collect(ch chan<- prometheus.Metric) {
	s := m.r.Status()
	c := m.current()
	out := emitter{ch: ch, label: m.r.cfg.Slot}
	out.states(s.State)
	out.stream(c)
	out.positions(c, s)
	out.rows(c, s, m.r.cfg)
	if s.Facts != nil {
		out.facts(s.Facts, m.r.cfg)
	}
}

func (m *meter) current() *counts {
	m.r.board.mu.Lock()
	stat := m.r.board.stat
	m.r.board.mu.Unlock()
	if stat != nil {
		return stat.snapshot()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.total
	return &c
}

// emitter sends metrics that all carry the slot.
type emitter struct {
	ch    chan<- prometheus.Metric
	label string
}

// send emits one sample; labels are name and value in turn.
func (e emitter) send(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
	names, values := []string{"slot"}, []string{e.label}
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("outbox_relay_"+name, help, names, nil), kind, v, values...)
}

func (e emitter) gauge(name, help string, v float64, labels ...string) {
	e.send(prometheus.GaugeValue, name, help, v, labels...)
}

func (e emitter) counter(name, help string, v uint64, labels ...string) {
	e.send(prometheus.CounterValue, name, help, float64(v), labels...)
}

func (e emitter) states(now State) {
	for _, s := range States {
		e.gauge("state", "1 for the state the relay is in, 0 for the others.", oneIf(s == now), "state", string(s))
	}
	owns := now == CatchingUp || now == Streaming || now == Blocked
	e.gauge("leader", "1 on the relay that owns the slot, 0 on a standby and between sessions.", oneIf(owns))
	e.gauge("postgres_connected", "1 while the connection is up.", oneIf(owns), "conn", "replication")
	e.gauge("postgres_connected", "1 while the connection is up.", oneIf(owns), "conn", "query")
}

func (e emitter) stream(c *counts) {
	for i, n := range c.Messages {
		e.counter("stream_messages_total", "Messages of the stream, by type. Zero before the first.", n, "type", kindNames[i])
	}
	e.counter("stream_messages_total", "Messages of the stream, by type. Zero before the first.", c.Keepalives, "type", "keepalive")
	e.counter("stream_bytes_total", "Bytes of logical messages received. Zero before the first.", c.Bytes)
	e.counter("transactions_total", "Transactions received, with and without an outbox row.", c.Transactions, "kind", "data")
	e.counter("transactions_total", "Transactions received, with and without an outbox row.", c.Empty, "kind", "empty")
	e.counter("rows_received_total", "Outbox rows received, repeated ones included.", c.Rows, "op", "insert")
	for i, n := range c.Skipped {
		e.counter("rows_skipped_total", "Rows received and not published: settled before, waiting in a line, or inserted with another status than READY.", n, "reason", skipNames[i])
	}
	e.send(prometheus.CounterValue, "backpressure_seconds_total", "Seconds in which nothing was read because the span was full. Zero while the brokers keep up.", c.HeldSeconds, "cause", "kafka")
}

func (e emitter) positions(c *counts, s Status) {
	e.gauge("received_lsn_bytes", "Last position read from the stream, as a byte position in the WAL.", float64(c.Received))
	e.gauge("durable_lsn_bytes", "Position of the position row: everything below is settled.", float64(c.Stored))
	e.gauge("confirmed_lsn_bytes", "Last position confirmed to the server.", float64(c.Confirmed))
	e.gauge("lag_seconds", "Age of the oldest row that is received and not settled; 0 when there is none.", s.Lag.Seconds())
	for name, at := range map[string]time.Time{"last_received_timestamp_seconds": c.LastReceived,
		"last_published_commit_timestamp_seconds": c.LastCommit, "last_feedback_timestamp_seconds": c.LastFeedback} {
		if !at.IsZero() {
			e.gauge(name, "Unix time, seconds; absent before the first.", float64(at.UnixMicro())/1e6)
		}
	}
}

func (e emitter) rows(c *counts, s Status, cfg Config) {
	e.gauge("inflight_records", "Rows received and not settled.", float64(s.HeldRows))
	e.gauge("inflight_bytes", "Bytes that those rows retain.", float64(s.HeldBytes))
	e.gauge("inflight_records_limit", "The span limit in rows (limits.span_rows).", float64(cfg.SpanRows))
	e.gauge("inflight_bytes_limit", "The span limit in bytes (limits.span_bytes).", float64(cfg.SpanBytes))
	for i, class := range refusalClasses {
		e.counter("rows_failed_total", "Rows refused, by class. Zero is the normal value.", c.Refused[i], "class", string(class))
		e.counter("rows_parked_total", "Rows parked in a line until a person acts, by class. Zero is the normal value.", c.Refused[i], "class", string(class))
	}
	e.gauge("diverted_rows", "Rows of this process that went into a line behind a refused one of their key.", float64(c.Verdicts[outbox.Diverted]))
	e.gauge("outbox_rows", "Events in lines.", float64(s.LinesEvents), "status", "waiting")
	e.counter("status_updates_total", "Outbox rows whose status was written.", c.Shown, "outcome", "shown")
	e.counter("status_updates_total", "Outbox rows whose status was written.", c.Pending, "outcome", "pending")
	e.counter("writeback_skipped_total", "Status writes that did not match.", c.Overtaken, "reason", "overtaken")
	e.counter("writeback_skipped_total", "Status writes that did not match.", c.Gone, "reason", "gone")
	e.gauge("status_update_backlog", "Outcomes known and not yet in a settling transaction.", float64(c.Backlog))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
