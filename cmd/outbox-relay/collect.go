package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox-relay/config"
)

// pipelineInfo is a metric that other series are joined with. It is absent
// until the server was looked at for the first time.
type pipelineInfo struct {
	desc   *prometheus.Desc
	labels []string // of the configuration
	health *health
}

func newPipelineInfo(c *config.Config, h *health) *pipelineInfo {
	return &pipelineInfo{
		desc: prometheus.NewDesc("outbox_relay_pipeline_info", "Always 1; the labels say what is published from where. Absent before the first connection.",
			[]string{"slot", "publication", "table", "database", "server_version"}, nil),
		labels: []string{c.Slot.Name, c.Publication.Name, c.Table.Name},
		health: h,
	}
}

// Describe implements prometheus.Collector.
func (p *pipelineInfo) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector.
func (p *pipelineInfo) Collect(ch chan<- prometheus.Metric) {
	source, _ := p.health.get()
	if source == nil {
		return
	}
	f := source.Status().Facts
	if f == nil {
		return
	}
	values := append(append([]string{}, p.labels...), f.Database, strconv.Itoa(f.ServerVersion))
	ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, 1, values...)
}
