package sink

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxrelay/outbox-relay/outbox"
)

func alter(name, value string) []kadm.AlterConfig {
	return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
}

func counted(t testing.TB, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func sampleCount(t testing.TB, h prometheus.Histogram) uint64 {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// The series have the documented names, count what happened, cap the label
// topic, pass the linter, and leave with the sink; a replaced client's series
// are its successor's.
func TestMetricsCountWhatHappened(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	for _, topic := range []string{"a", "b", "c"} {
		k.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "5000"})
	}
	registry := prometheus.NewRegistry()
	r := start(t, k.Brokers(), func(c *Config) { c.Registerer, c.MaxTopics = registry, 2 })
	r.publish(ev("a", "k", 1))
	r.allAcked()
	r.publish(ev("b", "k", 2))
	r.allAcked()
	big := ev("c", "k", 4)
	big.Payload = make([]byte, 9000)
	r.publish(ev("c", "k", 3), big)
	r.settle()
	r.kafka.pump.box.call(func() { r.kafka.pump.renew("test") })
	r.publish(ev("c", "j", 5))
	r.settle()
	if n := r.verdicts(); n[outbox.Acked] != 4 || n[outbox.Refused] != 1 {
		t.Fatalf("verdicts %v", n)
	}
	for _, c := range []struct {
		labels []string
		want   float64
	}{{[]string{"a", "stream"}, 1}, {[]string{"b", "stream"}, 1}, {[]string{otherTopics, "stream"}, 2}} {
		if got := counted(t, r.kafka.pump.metrics.published.WithLabelValues(c.labels...)); got != c.want {
			t.Errorf("published%v = %v, want %v", c.labels, got, c.want)
		}
	}
	if got := counted(t, r.kafka.pump.metrics.errors.WithLabelValues(otherTopics, "permanent", "MESSAGE_TOO_LARGE")); got != 1 {
		t.Errorf("errors = %v", got)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		if f.GetName() == "outbox_relay_record_bytes" && f.GetMetric()[0].GetHistogram().GetSampleCount() != 4 {
			t.Errorf("%v", f)
		}
		for _, m := range f.GetMetric() {
			if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "slot" && l.GetValue() == "test" }) {
				t.Errorf("%s has no slot label", f.GetName())
			}
		}
	}
	for _, want := range []string{
		"outbox_relay_records_published_total", "outbox_relay_publish_errors_total", "outbox_relay_publish_duration_seconds",
		"outbox_relay_record_bytes",
		"outbox_relay_kafka_connects_total", "outbox_relay_kafka_produce_bytes_total", "outbox_relay_kafka_buffered_produce_bytes",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing in %v", want, names)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "outbox_relay_kafka_") { // the client's own names
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	r.kafka.Close()
	if families, _ = registry.Gather(); len(families) > 0 {
		t.Errorf("%d series are left after Close", len(families))
	}
	if _, err := New(Config{Brokers: k.Brokers(), Registerer: registry, Slot: "test"}); err != nil {
		t.Errorf("a second sink after the first: %v", err)
	}
}
