package sink

import "github.com/outboxrelay/outbox-relay/outbox"

// HeldEvent names an event that waits in a line whose key is held.
type HeldEvent struct {
	Topic string
	Key   string
	ID    outbox.Position
}

// orderKey is what order is kept by.
type orderKey struct {
	topic string
	key   string
}

// heldSet is the set of events, per key, behind which later events of the key
// must wait. A key is free when its set is empty. It holds ids and not counts:
// an event that comes again after a restart must not be counted twice.
type heldSet map[orderKey]map[outbox.Position]struct{}

func newHeldSet(events []HeldEvent) heldSet {
	h := heldSet{}
	for _, e := range events {
		h.add(orderKey{e.Topic, e.Key}, e.ID)
	}
	return h
}

func (h heldSet) add(k orderKey, id outbox.Position) {
	ids := h[k]
	if ids == nil {
		ids = map[outbox.Position]struct{}{}
		h[k] = ids
	}
	ids[id] = struct{}{}
}

func (h heldSet) has(k orderKey) bool {
	if len(h) == 0 {
		return false
	}
	_, held := h[k]
	return held
}
