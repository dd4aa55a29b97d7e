package cdc

import (
	"fmt"
	"strings"
)

const minServerVersion = 140000

// safeMinor is, by major, the first minor that lets only named libraries be
// output plugins; before it a REPLICATION role could load any.
var safeMinor = map[int]int{15: 19, 16: 15, 17: 11, 18: 6}

// checkNode looks whether this is the right server at all.
func (c *check) checkNode() {
	if c.facts.InRecovery {
		c.add(Finding{Code: "server.in_recovery", Severity: Error, ExitCode: ClassWrongNode.ExitCode(),
			Observed: "standby", Required: "primary",
			Message: "This server is a standby. The relay marks rows and so needs the primary.",
			Fix:     "target_session_attrs=read-write in the connection string, with all hosts listed"})
	}
	if v := c.facts.ServerVersion; v < minServerVersion {
		c.add(Finding{Code: "server.version", Severity: Error, ExitCode: ClassConfig.ExitCode(),
			Observed: fmt.Sprint(v), Required: fmt.Sprintf("%d or later", minServerVersion),
			Message: "The relay needs PostgreSQL 14 or later."})
	}
	v := c.facts.ServerVersion
	if minor, ok := safeMinor[v/10000]; ok && v%10000 < minor {
		c.add(Finding{Code: "server.minor", Severity: Warning,
			Observed: fmt.Sprintf("%d.%d", v/10000, v%10000), Required: fmt.Sprintf("%d.%d or later", v/10000, minor),
			Message: "Before this minor version a role with REPLICATION can make the server load any library as an output plugin. Update the server; later set output_plugin_libraries = 'pgoutput'."})
	}
}

// checkIdentity compares the server with the other connection and with what
// the relay remembers.
func (c *check) checkIdentity() {
	if id := c.options.Identity; id != nil {
		if id.SystemID != c.facts.SystemID {
			c.add(Finding{Code: "identity.two_servers", Severity: Error, ExitCode: ClassConfig.ExitCode(),
				Observed: "query connection: " + c.facts.SystemID + ", replication connection: " + id.SystemID, Required: "one cluster",
				Message: "The two connections lead to two different clusters."})
		}
		if id.Database != c.facts.Database {
			c.add(Finding{Code: "identity.two_databases", Severity: Error, ExitCode: ClassConfig.ExitCode(),
				Observed: "query connection: " + c.facts.Database + ", replication connection: " + id.Database, Required: "one database",
				Message: "The two connections lead to two different databases."})
		}
	}
	r := c.options.Remembered
	switch {
	case r == nil:
	case r.SystemID != c.facts.SystemID:
		c.add(Finding{Code: "identity.other_system", Severity: Error, ExitCode: ClassSlotMissing.ExitCode(),
			Observed: c.facts.SystemID, Required: r.SystemID,
			Message: "This is another cluster than the one the relay's position belongs to. Positions of two clusters mean nothing to each other."})
	case c.facts.Timeline != 0 && r.Progress.Timeline != c.facts.Timeline:
		c.add(Finding{Code: "identity.timeline", Severity: Warning,
			Observed: fmt.Sprint(c.facts.Timeline), Required: fmt.Sprint(r.Progress.Timeline),
			Message: "The server is on another timeline than the relay's position: there was a failover or a restore. The relay starts through the fork point and sweeps the table first."})
	}
}

// checkServer looks at settings and head-room.
func (c *check) checkServer() {
	s := &c.server
	if s.WALLevel != "logical" {
		c.add(Finding{Code: "server.wal_level", Severity: Error, ExitCode: ClassConfig.ExitCode(),
			Observed: s.WALLevel, Required: "logical", Message: "Without wal_level = logical the server cannot decode. " + hintWALLevel,
			Fix: "alter system set wal_level = 'logical'"})
	}
	slotWanted := c.facts.Slot == nil && s.SlotsUsed >= s.MaxReplicationSlots
	if slotWanted {
		c.add(Finding{Code: "server.slots_full", Severity: Error, ExitCode: ClassCapacity.ExitCode(),
			Observed: fmt.Sprintf("%d of %d in use", s.SlotsUsed, s.MaxReplicationSlots), Required: "one free slot",
			Message: "All replication slots are in use. Raise the limit (needs a restart) or drop a slot that nobody reads.",
			Fix:     fmt.Sprintf("alter system set max_replication_slots = %d", s.MaxReplicationSlots+5)})
	}
	if c.facts.Walsender == nil && s.SendersUsed >= s.MaxWALSenders {
		c.add(Finding{Code: "server.senders_full", Severity: Error, ExitCode: ClassCapacity.ExitCode(),
			Observed: fmt.Sprintf("%d of %d in use", s.SendersUsed, s.MaxWALSenders), Required: "one free WAL sender",
			Message: "All WAL senders are in use. Raise the limit; it needs a restart.",
			Fix:     fmt.Sprintf("alter system set max_wal_senders = %d", s.MaxWALSenders+5)})
	}
	c.checkRetention()
}

// checkRetention states which of two risks was chosen, and what a pause costs.
func (c *check) checkRetention() {
	keep := c.server.MaxSlotWALKeepMB
	if keep < 0 {
		c.add(Finding{Code: "server.wal_unlimited", Severity: Info, Observed: "max_slot_wal_keep_size = -1", Required: "a deliberate choice",
			Message: "While the relay is away, its slot keeps WAL without limit: the slot is never lost, but the disk can fill. Watch the retained bytes."})
	} else {
		c.add(Finding{Code: "server.wal_limited", Severity: Info, Observed: fmt.Sprintf("max_slot_wal_keep_size = %d MB", keep), Required: "a deliberate choice",
			Message: "While the relay is away, its slot is lost once it keeps more WAL than this: the disk is safe, but then the rows must be published from the table. Watch the safe size."})
	}
	if t := c.server.IdleSlotTimeoutS; t > 0 {
		c.add(Finding{Code: "server.idle_slot_timeout", Severity: Warning, Observed: fmt.Sprintf("idle_replication_slot_timeout = %d s", t), Required: "0, or longer than any planned pause",
			Message: "The server ends a slot that nobody reads for this long, at the next checkpoint. A longer pause of the relay loses the slot."})
	}
}

// checkRole gives hints only: on managed services the right to stream comes
// from a membership, so the last word is the server's own error.
func (c *check) checkRole() {
	r := c.server.StreamRole
	if r == nil {
		return
	}
	if !r.Replication && !r.Superuser && !r.RDSReplication {
		c.add(Finding{Code: "role.no_replication", Severity: Warning, ExitCode: ClassPermission.ExitCode(),
			Observed: fmt.Sprintf("role %q without REPLICATION", r.Name), Required: "the REPLICATION attribute, or what the provider has instead",
			Message: "The role seems not to be allowed to stream. If the provider grants that in another way, this is no obstacle.",
			Fix:     "alter role " + QuoteIdentifier(r.Name) + " replication"})
	}
	if r.Superuser {
		c.add(Finding{Code: "role.superuser", Severity: Warning, Observed: fmt.Sprintf("role %q is superuser", r.Name), Required: "a role of its own with LOGIN and REPLICATION",
			Message: "The relay needs no superuser. Whoever gets its password owns the server.",
			Fix:     "create role outbox_relay with login replication"})
	} else if r.CreateDB || r.CreateRole {
		c.add(Finding{Code: "role.too_mighty", Severity: Warning, Observed: fmt.Sprintf("role %q may create databases or roles", r.Name), Required: "LOGIN and REPLICATION only",
			Message: "The relay needs neither right.",
			Fix:     "alter role " + QuoteIdentifier(r.Name) + " nocreatedb nocreaterole"})
	}
}

// checkStandbys looks for the two ways in which standbys and the relay can
// hold each other up.
func (c *check) checkStandbys() {
	if c.facts.Synchronous {
		c.add(Finding{Code: "server.synchronous_standby", Severity: Error, ExitCode: ClassConfig.ExitCode(),
			Observed: fmt.Sprintf("synchronous_standby_names = '%s'", c.facts.SynchronousStandbyNames), Required: "a list of the real standbys, without the relay",
			Message: "Commits would wait for the relay, and the relay waits for commits: writers would hang. A \"*\" takes in every walsender.",
			Fix:     "alter system set synchronous_standby_names = 'STANDBY, STANDBY'"})
	}
	names := c.server.SynchronizedStandbySlots
	if names != "" && c.facts.Slot != nil && c.facts.Slot.Failover {
		c.add(Finding{Code: "server.synchronized_standby_slots", Severity: Info, Observed: "synchronized_standby_slots = " + names, Required: "standbys that are up",
			Message: "The server holds every row back until these standbys have it: no event is published that a failover can undo, but a standby that is away stops the stream. The relay then shows the state blocked."})
	}
	if c.facts.Slot != nil && !c.facts.Slot.Failover && c.server.HasStandbys && c.facts.ServerVersion >= minFailover {
		c.add(Finding{Code: "slot.no_failover", Severity: Warning, Observed: "failover = false", Required: "failover = true where a standby may be promoted",
			Message: "This server has standbys, but they keep no copy of the slot: after a promotion it is gone. It can be changed without a gap over a replication connection.",
			Fix:     "ALTER_REPLICATION_SLOT " + strings.TrimSpace(c.options.Slot) + " (FAILOVER true)"})
	}
}
