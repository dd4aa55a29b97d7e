package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// sample is what one run has shown. Zero means: not measured.
type sample struct {
	Seconds      float64 `json:"seconds,omitempty"`
	Rows         int     `json:"rows"`
	Startup      float64 `json:"startup_s,omitempty"` // from the start of the process to the slot taken
	CPU          float64 `json:"cpu_s"`               // of the reader or relay
	WalsenderCPU float64 `json:"walsender_cpu_s,omitempty"`
	BrokerCPU    float64 `json:"broker_cpu_s,omitempty"`
	PeakRSS      int64   `json:"peak_rss,omitempty"` // bytes
	IdleRSS      int64   `json:"idle_rss,omitempty"` // the peak of a relay without work, bytes
	Killed       bool    `json:"killed,omitempty"`   // the relay was killed on the way
	Duplicates   int     `json:"duplicates"`
	P50          float64 `json:"p50_ms,omitempty"`
	P99          float64 `json:"p99_ms,omitempty"`
	// RestCores is how many cores everything else used meanwhile: the other
	// processes of PostgreSQL, the bench itself, and whoever shares the
	// machine.
	RestCores float64 `json:"rest_cores"`
}

// meter reads the kernel's books on the processes of a run, at its start and
// at its end. A pid of 0 is not read.
type meter struct {
	relay, walsender, broker int

	began time.Time
	at    books
}

// books are CPU times used so far.
type books struct{ relay, walsender, broker, machine time.Duration }

func (m *meter) read() (b books, err error) {
	for _, p := range []struct {
		pid int
		to  *time.Duration
	}{{m.relay, &b.relay}, {m.walsender, &b.walsender}, {m.broker, &b.broker}} {
		if p.pid == 0 {
			continue
		}
		if *p.to, err = cpuOf(p.pid); err != nil {
			return b, err
		}
	}
	b.machine, err = busy()
	return b, err
}

// begin starts the clock, at a time that has just been.
func (m *meter) begin(at time.Time) (err error) {
	m.began = at
	m.at, err = m.read()
	return err
}

// end fills a sample of a run that was over at a time that has just been. The
// processes must still be there.
func (m *meter) end(at time.Time, rows int) (sample, error) {
	now, err := m.read()
	if err != nil {
		return sample{}, err
	}
	s := m.sample(at, rows, now)
	if m.relay != 0 {
		s.PeakRSS, err = peakOf(m.relay)
	}
	return s, err
}

func (m *meter) sample(at time.Time, rows int, now books) sample {
	wall := at.Sub(m.began).Seconds()
	s := sample{
		Seconds: wall, Rows: rows,
		CPU:          (now.relay - m.at.relay).Seconds(),
		WalsenderCPU: (now.walsender - m.at.walsender).Seconds(),
		BrokerCPU:    (now.broker - m.at.broker).Seconds(),
	}
	rest := (now.machine - m.at.machine).Seconds() - s.CPU - s.WalsenderCPU - s.BrokerCPU
	s.RestCores = max(0, rest/wall)
	return s
}

// awaitQuiet waits until the machine has been nearly idle for half a second,
// but not longer than limit.
func awaitQuiet(ctx context.Context, limit time.Duration) error {
	const (
		span  = 500 * time.Millisecond
		cores = 0.15
	)
	for until := time.Now().Add(limit); time.Now().Before(until); {
		before, err := busy()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(span):
		}
		after, err := busy()
		if err != nil {
			return err
		}
		if (after-before).Seconds()/span.Seconds() < cores {
			return nil
		}
	}
	return nil
}

// tempDir makes the directory of logs and configurations.
func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "outbox-bench-")
	if err != nil {
		return "", fmt.Errorf("making a directory: %w", err)
	}
	return dir, nil
}
