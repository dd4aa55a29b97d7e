package cdc

import (
	"fmt"
	"strings"
)

// checkPublication looks whether every inserted row arrives, whole, and
// nothing else.
func (c *check) checkPublication() {
	p := c.facts.Publication
	if p == nil {
		partitioned := c.table != nil && c.table.Partitioned()
		c.addPublication("publication.missing", "no publication "+c.publicationQuoted(), "the publication of the outbox table",
			"Make the publication before the slot: rows that were written before it existed cannot be decoded, and PostgreSQL 18 passes over them with a mere warning.",
			PublicationSQL(c.options.Publication, c.options.Schema, c.options.Table, partitioned))
		return
	}
	alter := "alter publication " + c.publicationQuoted()
	recreate := "drop publication " + c.publicationQuoted() + "; " +
		PublicationSQL(c.options.Publication, c.options.Schema, c.options.Table, c.table != nil && c.table.Partitioned())
	switch {
	case p.AllTables:
		c.addPublication("publication.all_tables", "for all tables", "the outbox table alone",
			"It brings the rows of every table. The relay ends on a row of a table that it does not know rather than skip it. Stop the writers or the relay while you replace it.", recreate)
	case !p.HasTable:
		c.addPublication("publication.no_table", c.tableQuoted()+" is not in it", "the outbox table",
			"Inserts into the outbox do not reach the stream. Rows written meanwhile must be published from the table.", alter+" add table "+c.tableQuoted())
	case p.Others > 0:
		c.addPublication("publication.other_tables", fmt.Sprintf("%d other tables, such as %s", p.Others, p.Other), "the outbox table alone",
			"The relay ends on a row of a table that it does not know rather than skip it.", c.setTableSQL())
	}
	c.checkOperations(alter)
	if p.RowFilter != "" {
		c.addPublication("publication.row_filter", "where "+p.RowFilter, "no row filter",
			"Rows that do not match the filter vanish without a trace.", c.setTableSQL())
	}
	if c.table != nil && c.table.Partitioned() && !p.ViaRoot {
		c.addPublication("publication.via_root", "publish_via_partition_root = false", "publish_via_partition_root = true",
			"Rows would arrive under the names of the partitions, which the relay does not know.", alter+" set (publish_via_partition_root = true)")
	}
}

// checkOperations looks at what is published of the table (I10).
func (c *check) checkOperations(alter string) {
	p := c.facts.Publication
	fix := alter + " set (publish = 'insert')"
	if !p.Insert {
		c.addPublication("publication.no_insert", "inserts are not published", "publish = 'insert'",
			"New rows do not reach the stream. Rows written meanwhile must be published from the table.", fix)
	}
	if p.Update || p.Delete {
		c.addPublication("publication.updates", "updates or deletes are published", "publish = 'insert'",
			"The relay's own marks would come back to it, and on a table without replica identity updates and deletes of the application fail.", fix)
	} else if p.Truncate {
		c.add(Finding{Code: "publication.truncate", Severity: Warning, Observed: "truncate is published", Required: "publish = 'insert'",
			Message: "The relay ignores it; it only costs.", Fix: fix})
	}
}

func (c *check) addPublication(code, observed, required, message, fix string) {
	c.add(Finding{Code: code, Severity: Error, ExitCode: ClassPublication.ExitCode(),
		Observed: observed, Required: required, Message: message, Fix: fix})
}

// checkSlot looks whether the slot is ours and alive.
func (c *check) checkSlot() {
	s := c.facts.Slot
	name := quoteLiteral(c.options.Slot)
	if err := CheckSlotName(c.options.Slot); err != nil {
		c.add(Finding{Code: "slot.name", Severity: Error, ExitCode: ClassConfig.ExitCode(), Observed: c.options.Slot, Required: "a-z, 0-9, _ and at most 63 of them", Message: err.Error() + "."})
		return
	}
	if s == nil {
		c.checkMissing(name)
		return
	}
	foreign := func(code, observed, required, message string) {
		c.add(Finding{Code: code, Severity: Error, ExitCode: ClassSlotForeign.ExitCode(), Observed: observed, Required: required, Message: message})
	}
	drop := "select pg_drop_replication_slot(" + name + ")"
	switch {
	case s.Type != "logical":
		foreign("slot.kind", s.Type, "logical", "The slot of this name belongs to a standby or a backup. Choose another slot.name.")
		return
	case s.Plugin != "pgoutput":
		foreign("slot.plugin", s.Plugin, "pgoutput", "The slot of this name belongs to another tool. Choose another slot.name.")
	case s.Database != c.facts.Database:
		foreign("slot.database", s.Database, c.facts.Database, "Slots have one name for the whole server; this one belongs to another database. Choose another slot.name, or connect to that database.")
		return
	}
	if s.TwoPhase {
		foreign("slot.two_phase", "two_phase = true", "two_phase = false", "With it, prepared transactions would arrive before they are decided. Make the slot anew without it, with a sweep of the table.")
	}
	if s.Temporary {
		foreign("slot.temporary", "temporary", "a lasting slot", "It ends with the session that made it. Choose another slot.name.")
	}
	if s.Lost() {
		c.add(Finding{Code: "slot.lost", Severity: Error, ExitCode: ClassSlotLost.ExitCode(),
			Observed: strings.TrimSpace("wal_status " + s.WALStatus + " " + s.InvalidationReason), Required: "a slot that can be read",
			Message: fmt.Sprintf("The server has given the slot up. Rows committed after %v may not be published. Drop it and make it anew: outbox-relay slot drop, then outbox-relay slot create, which says what the new one leaves out; rows that still say READY afterwards must be inserted again.", s.ConfirmedLSN),
			Fix:     drop})
	}
	c.checkBusy()
}

func (c *check) checkMissing(name string) {
	f := Finding{Code: "slot.missing", Severity: Error, ExitCode: ClassSlotMissing.ExitCode(), Observed: "no slot " + name, Required: "the slot",
		Message: "There is no such slot. On a first start create it; if there was one, rows may have been missed while it was not there, and those that still say READY must be inserted again: outbox-relay slot create says which interval the new slot leaves out.",
		Fix:     "select pg_create_logical_replication_slot(" + name + ", 'pgoutput')"}
	if c.options.AllowMissingSlot {
		f.Severity, f.ExitCode = Info, 0
	}
	c.add(f)
}

func (c *check) checkBusy() {
	s := c.facts.Slot
	if s.Active {
		f := Finding{Code: "slot.busy", Severity: Error, ExitCode: ClassSlotBusy.ExitCode(), Observed: fmt.Sprintf("read by process %d", s.ActivePID), Required: "one relay for each slot",
			Message: "Another session reads this slot, most likely another relay. A second one waits until it is free."}
		if c.options.AllowBusySlot {
			f.Severity, f.ExitCode = Info, 0
		}
		c.add(f)
	}
	if c.facts.InRecovery && s.Synced {
		c.add(Finding{Code: "slot.synced", Severity: Error, ExitCode: ClassWrongNode.ExitCode(), Observed: "a copy on a standby", Required: "the slot on the primary",
			Message: "This copy can be read once the standby is promoted."})
	}
}

// checkPosition compares the slot with what the relay remembers. The server
// does not: it starts wherever it is told, in silence.
func (c *check) checkPosition() {
	r, s := c.options.Remembered, c.facts.Slot
	if r == nil || r.SystemID != c.facts.SystemID || r.Progress.Timeline != c.facts.Timeline {
		return // said by checkIdentity; two timelines do not compare
	}
	if c.facts.FlushLSN < r.Progress.LSN {
		c.add(Finding{Code: "position.rewound", Severity: Error, ExitCode: ClassSlotMissing.ExitCode(),
			Observed: "the server's WAL ends at " + c.facts.FlushLSN.String(), Required: "at least " + r.Progress.LSN.String(),
			Message: "The server is behind the relay's own position: it was restored from an older state. What follows would be taken for known and skipped."})
	}
	if s != nil && s.ConfirmedLSN > r.Progress.LSN {
		c.add(Finding{Code: "position.slot_ahead", Severity: Error, ExitCode: ClassSlotMissing.ExitCode(),
			Observed: "slot at " + s.ConfirmedLSN.String(), Required: "at most " + r.Progress.LSN.String(),
			Message: fmt.Sprintf("Somebody else advanced or re-created the slot: it will not bring the %d bytes of log from %v to %v. Rows committed there must be published from the table.",
				uint64(s.ConfirmedLSN-r.Progress.LSN), r.Progress.LSN, s.ConfirmedLSN)})
	}
}
