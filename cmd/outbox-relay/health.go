package main

import (
	"sync"

	"github.com/outboxrelay/outbox-relay/admin"
	"github.com/outboxrelay/outbox-relay/relay"
)

// health answers the probes from the relay's status, and before there is a
// relay from what the program waits for. Any goroutine may use it.
type health struct {
	mu     sync.Mutex
	source statusSource // nil before the relay runs
	reason string       // why there is none yet
}

// statusSource is what health needs of a relay.
type statusSource interface {
	Status() relay.Status
	Live() error
}

func (h *health) started(s statusSource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.reason = s, ""
}

func (h *health) waiting(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason = reason
}

func (h *health) get() (statusSource, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.source, h.reason
}

// Live implements admin.Health.
func (h *health) Live() error {
	source, _ := h.get()
	if source == nil {
		return nil
	}
	return source.Live()
}

// Ready implements admin.Health. A standby and a blocked relay are ready:
// replacing them would change nothing, and a roll-out must not wait for them.
func (h *health) Ready() admin.Readiness {
	source, reason := h.get()
	if source == nil {
		return admin.Readiness{State: string(relay.Starting), Reason: reason}
	}
	s := source.Status()
	r := admin.Readiness{State: string(s.State), Reason: s.Reason, Lag: s.Lag}
	switch s.State {
	case relay.Standby, relay.CatchingUp, relay.Streaming, relay.Blocked:
		r.Ready = true
	}
	r.Components = components(s)
	return r
}

// components judges the parts as far as the status shows them.
func components(s relay.Status) []admin.Component {
	owns := s.State == relay.CatchingUp || s.State == relay.Streaming || s.State == relay.Blocked
	stream := admin.Component{Name: "stream", Healthy: owns || s.State == relay.Standby}
	if !stream.Healthy {
		stream.Reason = s.Reason
	}
	all := []admin.Component{stream}
	if f := s.Facts; f != nil {
		slot := admin.Component{Name: "slot", Healthy: f.Slot != nil && !f.Slot.Lost()}
		if f.Slot == nil {
			slot.Reason = "there is no such slot"
		} else if f.Slot.Lost() {
			slot.Reason = "its log is lost"
		}
		publication := admin.Component{Name: "publication", Reason: f.Publication.Problem()}
		publication.Healthy = publication.Reason == ""
		all = append(all, slot, publication)
	}
	producer := admin.Component{Name: "producer", Healthy: len(s.Blocked) == 0}
	if !producer.Healthy {
		b := s.Blocked[0]
		producer.Reason = b.Reason
		if b.Topic != "" {
			producer.Reason = "topic " + b.Topic + ": " + b.Reason
		}
	}
	return append(all, producer)
}
