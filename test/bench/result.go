package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// result is one line of the output. A pointer is nil where the figure does not
// apply. Every figure is the median of its runs; the spreads are [least, most].
type result struct {
	Scenario string `json:"scenario"`
	Shape    int    `json:"rows_per_transaction,omitempty"`
	Link     string `json:"link"`
	Rows     int    `json:"rows"` // of one run
	Runs     int    `json:"runs"`
	// RateWanted is what the writers were to reach, rows a second; 0 where
	// it goes as fast as it can.
	RateWanted int `json:"rate_wanted,omitempty"`

	RowsPerS   *float64 `json:"rows_per_s"`
	RatioToRaw *float64 `json:"ratio_to_raw"` // of the same slot and link
	// RatioToRawTCP is against the raw drain over TCP whatever the link is.
	RatioToRawTCP          *float64 `json:"ratio_to_raw_tcp"`
	CPUPerMillion          *float64 `json:"cpu_s_per_million"` // of the reader or relay
	WalsenderCPUPerMillion *float64 `json:"walsender_cpu_s_per_million"`
	BrokerCPUPerMillion    *float64 `json:"broker_cpu_s_per_million"`
	PeakRSSMB              *float64 `json:"peak_rss_mb"` // 1 MB = 1,000,000 bytes
	IdleRSSMB              *float64 `json:"idle_rss_mb"` // the peak of a relay without work
	Duplicates             *int     `json:"duplicates"`  // most of any run, where a relay was killed
	P50                    *float64 `json:"p50_ms"`
	P99                    *float64 `json:"p99_ms"`
	StartupS               *float64 `json:"startup_s"`

	RowsPerSSpread [2]float64 `json:"rows_per_s_spread"`
	P50Spread      [2]float64 `json:"p50_ms_spread"`
	P99Spread      [2]float64 `json:"p99_ms_spread"`
	RestCores      float64    `json:"rest_cores"` // most of any run
	Load1          float64    `json:"load1"`      // most before any run
	Samples        []sample   `json:"samples"`
}

// summarise makes a result of each cell that has a sample.
func summarise(cells []*cell) []result {
	var all []result
	for _, c := range cells {
		if len(c.samples) > 0 {
			all = append(all, c.result())
		}
	}
	for i := range all {
		r := &all[i]
		if r.Shape == 0 || r.P50 != nil || r.Duplicates != nil {
			continue
		}
		r.RatioToRaw = ratio(r.RowsPerS, find(all, key{"raw", r.Shape, r.Link}).RowsPerS)
		r.RatioToRawTCP = ratio(r.RowsPerS, find(all, key{"raw", r.Shape, tcp}).RowsPerS)
	}
	return all
}

// key names a result.
type key struct {
	scenario string
	shape    int
	link     string
}

// find gives an empty result when there is none.
func find(all []result, k key) result {
	for _, r := range all {
		if (key{r.Scenario, r.Shape, r.Link}) == k {
			return r
		}
	}
	return result{}
}

func (c *cell) result() result {
	r := result{Scenario: c.scenario, Shape: c.shape, Link: c.link, Rows: c.samples[0].Rows, Runs: len(c.samples), RateWanted: c.rate,
		Samples: c.samples, Load1: slices.Max(c.loads)}
	of := func(value func(sample) float64) []float64 {
		values := make([]float64, len(c.samples))
		for i, s := range c.samples {
			values[i] = value(s)
		}
		slices.Sort(values)
		return values
	}
	perMillion := func(cpu func(sample) float64) *float64 {
		return median(of(func(s sample) float64 { return cpu(s) / float64(s.Rows) * 1e6 }))
	}
	speeds := of(func(s sample) float64 {
		if s.Seconds == 0 {
			return 0
		}
		return float64(s.Rows) / s.Seconds
	})
	p50, p99 := of(func(s sample) float64 { return s.P50 }), of(func(s sample) float64 { return s.P99 })
	r.RowsPerS, r.RowsPerSSpread = median(speeds), ends(speeds)
	r.P50, r.P50Spread, r.P99, r.P99Spread = median(p50), ends(p50), median(p99), ends(p99)
	r.CPUPerMillion = perMillion(func(s sample) float64 { return s.CPU })
	r.WalsenderCPUPerMillion = perMillion(func(s sample) float64 { return s.WalsenderCPU })
	r.BrokerCPUPerMillion = perMillion(func(s sample) float64 { return s.BrokerCPU })
	r.PeakRSSMB = median(of(func(s sample) float64 { return float64(s.PeakRSS) / 1e6 }))
	r.IdleRSSMB = median(of(func(s sample) float64 { return float64(s.IdleRSS) / 1e6 }))
	for _, s := range c.samples {
		if s.Killed && (r.Duplicates == nil || *r.Duplicates < s.Duplicates) {
			r.Duplicates = &s.Duplicates
		}
	}
	r.StartupS = median(of(func(s sample) float64 { return s.Startup }))
	rest := of(func(s sample) float64 { return s.RestCores })
	r.RestCores = rest[len(rest)-1]
	return r
}

// median of rising values; nil when it is 0, which means: not measured.
func median(rising []float64) *float64 {
	n := len(rising)
	m := (rising[(n-1)/2] + rising[n/2]) / 2
	if m == 0 {
		return nil
	}
	return &m
}

func ends(rising []float64) [2]float64 { return [2]float64{rising[0], rising[len(rising)-1]} }

func ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	q := *a / *b
	return &q
}

// reached says whether the writers were as fast as they should have been, to a
// twentieth.
func (r result) reached() bool { return r.RowsPerS != nil && *r.RowsPerS >= .95*float64(r.RateWanted) }

// alone names the scenarios in which nothing but reader, walsender and broker
// has much to do.
var alone = []string{"raw", "null", "null-gulps", "franz", "kfake-off", "kafka-off"}

// crowd is the most cores that something else used in a run that should have
// been alone.
func crowd(all []result) float64 {
	most := 0.0
	for _, r := range all {
		if slices.Contains(alone, r.Scenario) {
			most = max(most, r.RestCores)
		}
	}
	return most
}

// writeLines replaces the file with one JSON object a line.
func writeLines(path string, results []result) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return f.Close()
}
