package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// The faults, as the report names them.
const (
	faultBroker = "broker stopped"
	faultRelay  = "relay killed"
)

// fault is one fault as it really was.
type fault struct {
	Name    string  `json:"name"`
	AtS     float64 `json:"at_s"`
	LastedS float64 `json:"lasted_s"`
	Bitten  bool    `json:"bitten"` // seen to have done what it is for
	Detail  string  `json:"detail"`
}

// director brings faults at their times.
type director struct {
	broker *broker
	relay  *relay
	ledger *meter.Ledger
	tell   func(view.Mood, string)

	mu   sync.Mutex
	list []fault
	down view.Fault // what is down now
}

// outage is how long the broker stays away in a run of that length.
func outage(run time.Duration) time.Duration {
	return min(max(run/9, time.Second), 8*time.Second).Round(100 * time.Millisecond)
}

// Run brings both faults: one third into the run, and two. When ctx ends
// earlier, what is broken is mended.
func (d *director) Run(ctx context.Context, began time.Time, run time.Duration) {
	if !waitUntil(ctx, began.Add(run/3)) {
		return
	}
	d.stopBroker(ctx, began, outage(run))
	if !waitUntil(ctx, began.Add(2*run/3)) {
		return
	}
	d.killRelay(ctx, began)
}

func (d *director) stopBroker(ctx context.Context, began time.Time, away time.Duration) {
	start := time.Now()
	d.ledger.FaultBegan(start)
	d.set(view.BrokerDown)
	_, before := d.broker.gate.Counts()
	cut := d.broker.gate.Shut()
	d.tell(view.Bad, fmt.Sprintf("broker stopped for %s: %d connections cut", view.Seconds(away), cut))
	waitUntil(ctx, start.Add(away))
	_, after := d.broker.gate.Counts()
	waiting := d.ledger.Missing()
	d.broker.gate.Open()
	d.set(view.NoFault)
	d.ledger.FaultEnded(time.Now())
	f := fault{
		Name: faultBroker, AtS: round(start.Sub(began).Seconds()), LastedS: round(time.Since(start).Seconds()),
		// Without rows that wait, only the reader may have met the stop.
		Bitten: cut > 0 && after > before && waiting > 0,
		Detail: fmt.Sprintf("%d connections cut, %d refused, %d rows waited", cut, after-before, waiting),
	}
	d.add(f)
	d.tell(view.Good, fmt.Sprintf("broker back: %d connections refused, %d rows waiting", after-before, waiting))
}

func (d *director) killRelay(ctx context.Context, began time.Time) {
	start := time.Now()
	d.ledger.FaultBegan(start)
	d.set(view.RelayDown)
	pid, err := d.relay.Kill()
	f := fault{Name: faultRelay, AtS: round(start.Sub(began).Seconds()), Bitten: err == nil, Detail: fmt.Sprintf("pid %d ended by SIGKILL", pid)}
	if err != nil {
		f.Detail = err.Error()
	}
	d.tell(view.Bad, "relay killed: "+f.Detail)
	next := d.awaitNext(ctx, pid)
	d.set(view.NoFault)
	d.ledger.FaultEnded(time.Now())
	f.LastedS = round(time.Since(start).Seconds())
	d.add(f)
	if next != 0 {
		d.tell(view.Good, fmt.Sprintf("relay started again: pid %d", next))
	}
}

// awaitNext gives the pid of the next process, 0 when ctx ends before it runs.
func (d *director) awaitNext(ctx context.Context, old int) int {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid := d.relay.Pid(); pid != 0 && pid != old {
			return pid
		}
		select {
		case <-ctx.Done():
			return 0
		case <-tick.C:
		}
	}
}

func (d *director) set(f view.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = f
}

func (d *director) add(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, f)
}

// Down is what is down now.
func (d *director) Down() view.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.down
}

// List is every fault so far.
func (d *director) List() []fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]fault{}, d.list...)
}

// waitUntil waits for a moment; false when ctx ends first.
func waitUntil(ctx context.Context, moment time.Time) bool {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
