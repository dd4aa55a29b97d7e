package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// board gathers what the view shows and shows it, five times a second.
type board struct {
	title    string
	began    time.Time
	duration time.Duration
	screen   *view.Screen // this goroutine's, while Run runs
	ledger   *meter.Ledger
	watch    *watch
	relay    *relay
	director *director

	now, last second // owned by Run
	points    []view.Point

	mu     sync.Mutex // guards what follows
	phase  view.Light
	events []view.Event
}

// second is one second of the past, as it is gathered.
type second struct {
	began               time.Time
	committed, arrived  uint64 // totals when it began
	wroteRate, readRate float64
	lag                 time.Duration
	fault               view.Fault
	quantiles           meter.Quantiles
}

// mostEvents bounds the list; the picture shows the newest few.
const mostEvents = 100

// tell adds an event. Safe for concurrent use.
func (b *board) tell(m view.Mood, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == mostEvents {
		b.events = b.events[1:]
	}
	b.events = append(b.events, view.Event{At: time.Since(b.began), Text: text, Mood: m})
}

// enter names the phase. Safe for concurrent use.
func (b *board) enter(m view.Mood, word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase = view.Light{Word: word, Mood: m}
}

// Run shows until ctx ends, and once more.
func (b *board) Run(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	b.now.began = b.began
	for {
		b.show(time.Now())
		select {
		case <-ctx.Done():
			b.show(time.Now())
			return nil
		case <-tick.C:
		}
	}
}

func (b *board) show(now time.Time) {
	reading := b.ledger.Read(now)
	if reading.CaughtUp > 0 {
		b.tell(view.Good, fmt.Sprintf("backlog published %s after that", view.Seconds(reading.CaughtUp)))
	}
	b.now.lag = max(b.now.lag, reading.Lag)
	if down := b.down(); down != view.NoFault {
		b.now.fault = down
	}
	if took := now.Sub(b.now.began); took >= time.Second {
		b.turn(now, took, reading)
	}
	b.screen.Show(b.frame(now, reading))
}

// down is what does not work: brought by the director, or by the relay itself.
func (b *board) down() view.Fault {
	if f := b.director.Down(); f != view.NoFault {
		return f
	}
	if b.relay.Pid() == 0 {
		return view.RelayDown
	}
	return view.NoFault
}

// turn ends a second and begins the next.
func (b *board) turn(now time.Time, took time.Duration, r meter.Reading) {
	b.last = b.now
	b.last.quantiles = b.ledger.Second()
	// A row that arrived late was missing until then.
	b.last.lag = max(b.last.lag, b.last.quantiles.Max)
	b.last.wroteRate = float64(r.Committed-b.now.committed) / took.Seconds()
	b.last.readRate = float64(r.Arrived-b.now.arrived) / took.Seconds()
	b.points = append(b.points, view.Point{Rate: b.last.readRate, Lag: b.last.lag, Fault: b.last.fault})
	b.points = b.points[max(0, len(b.points)-view.Minute):]
	b.now = second{began: now, committed: r.Committed, arrived: r.Arrived}
}

func (b *board) frame(now time.Time, r meter.Reading) view.Frame {
	all, calm := b.ledger.Overall()
	seen := b.watch.Seen()
	f := view.Frame{
		Title: b.title, Elapsed: now.Sub(b.began), Total: b.duration,
		Relay: b.relayLight(seen), Broker: b.brokerLight(), Reading: r, SlotLag: seen.SlotLag,
		Written: b.last.wroteRate, Read: b.last.readRate, Second: b.last.quantiles, All: all, Calm: calm,
		Points: b.points,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.Phase, f.Events = b.phase, slices.Clone(b.events)
	return f
}

func (b *board) relayLight(s sight) view.Light {
	pid := b.relay.Pid()
	switch {
	case pid == 0:
		return view.Light{Word: "not running", Mood: view.Bad}
	case s.State == "" && !s.Ready:
		return view.Light{Word: fmt.Sprintf("starting (pid %d)", pid), Mood: view.Uneasy}
	case s.State == "":
		return view.Light{Word: fmt.Sprintf("ready (pid %d)", pid), Mood: view.Good}
	case s.Ready:
		return view.Light{Word: fmt.Sprintf("%s (pid %d)", s.State, pid), Mood: view.Good}
	default:
		return view.Light{Word: fmt.Sprintf("%s, not ready (pid %d)", s.State, pid), Mood: view.Uneasy}
	}
}

func (b *board) brokerLight() view.Light {
	if b.director.Down() == view.BrokerDown {
		return view.Light{Word: "stopped", Mood: view.Bad}
	}
	return view.Light{Word: "up", Mood: view.Good}
}
