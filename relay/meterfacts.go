package relay

import (
	"github.com/outboxrelay/outbox-relay/cdc"
)

// WAL states and reasons that the metrics list one by one.
var (
	walStatuses         = []string{"reserved", "extended", "unreserved", "lost"}
	invalidationReasons = []string{"wal_removed", "rows_removed", "wal_level_insufficient", "idle_timeout"}
)

// facts sends what the server said about the slot, at most one interval ago.
func (e emitter) facts(f *cdc.Facts, cfg Config) {
	ok := f.Publication != nil && f.Publication.Problem() == ""
	e.gauge("publication_ok", "1 while the publication exists, holds the outbox whole and publishes inserts; 0 means that rows are being lost to the slot.",
		oneIf(ok), "publication", cfg.Publication)
	healthy := func(component string, ok bool) {
		e.gauge("component_healthy", "1 while the component does its work.", oneIf(ok), "component", component)
	}
	healthy("publication", ok)
	healthy("slot", f.Slot != nil && !f.Slot.Lost())
	healthy("stream", f.Walsender != nil)
	if f.Slot != nil {
		e.slot(f.Slot)
	}
}

func (e emitter) slot(s *cdc.Slot) {
	e.gauge("slot_active", "1 while somebody reads the slot.", oneIf(s.Active))
	e.gauge("slot_lag_bytes", "WAL between the confirmed position and the server's end, bytes; near 0 when caught up.", float64(s.LagBytes))
	e.gauge("slot_retained_wal_bytes", "WAL that the server keeps for the slot, bytes: what eats its disk.", float64(s.RetainedBytes))
	e.gauge("slot_catalog_xmin_age_transactions", "Transactions whose dead catalog rows the slot keeps from vacuum.", float64(s.CatalogXminAge))
	e.gauge("slot_failover_enabled", "1 when standbys keep a copy of the slot (PostgreSQL 17 and later).", oneIf(s.Failover))
	if s.SafeWALBytes != nil {
		e.gauge("slot_safe_wal_size_bytes", "WAL that may still be written before the slot is lost, bytes; absent when there is no limit.", float64(*s.SafeWALBytes))
	}
	for _, w := range walStatuses {
		e.gauge("slot_wal_status", "1 for the slot's wal_status, 0 for the others.", oneIf(s.WALStatus == w), "wal_status", w)
	}
	known := false
	for _, r := range invalidationReasons {
		known = known || s.InvalidationReason == r
		e.gauge("slot_invalidated", "1 when the slot was invalidated for this reason.", oneIf(s.InvalidationReason == r), "reason", r)
	}
	e.gauge("slot_invalidated", "1 when the slot was invalidated for this reason.", oneIf(s.Lost() && !known), "reason", "unknown")
	if !s.InactiveSince.IsZero() {
		e.gauge("slot_inactive_since_timestamp_seconds", "Since when nobody reads the slot, unix time; absent while active.", float64(s.InactiveSince.UnixMicro())/1e6)
	}
}
