package cdc

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// soundCheck is a set-up without any finding but the statement of the
// retention risk.
func soundCheck() *check {
	return &check{
		options: PreflightOptions{
			Target:  Target{Slot: "s", Publication: "P", Schema: "public", Table: "outbox"},
			Mapping: decode.Mapping{ID: "id", EventID: "event_id", EventType: "event_type", Payload: "payload"},
		},
		facts: &Facts{
			ServerVersion: 180006, SystemID: "7", Timeline: 1, Database: "app", FlushLSN: 0x1000,
			Slot: &Slot{Name: "s", Plugin: "pgoutput", Type: "logical", Database: "app",
				SlotWAL: SlotWAL{WALStatus: "reserved", RestartLSN: 0x800, ConfirmedLSN: 0x900}},
			Publication: &Publication{Name: "P", Insert: true, HasTable: true, Columns: []string{"id", "event_id", "event_type", "payload"}},
		},
		server: serverFacts{WALLevel: "logical", MaxReplicationSlots: 10, SlotsUsed: 1, MaxWALSenders: 10, MaxSlotWALKeepMB: -1,
			QueryUser: "relay", StreamRole: &role{Name: "relay", Replication: true}},
		table: soundTable(),
	}
}

func soundTable() *TableInfo {
	columns := []ColumnInfo{
		{Name: "id", TypeOID: 20, TypeName: "bigint"}, {Name: "event_id", TypeOID: 2950, TypeName: "uuid"},
		{Name: "event_type", TypeOID: 25, TypeName: "text"}, {Name: "payload", TypeOID: 17, TypeName: "bytea"},
	}
	return &TableInfo{OID: 1, Schema: "public", Name: "outbox", Columns: columns, PrimaryKey: columns[:1],
		tableFacts: tableFacts{Kind: "r", Persistence: "p", ReplicaIdentity: "d"}}
}

// badSetups each change one thing of soundCheck. want lists code, severity and
// exit code of the findings.
var badSetups = []struct {
	name string
	bad  func(*check)
	want string
}{
	{"sound", func(*check) {}, ""},
	{"standby", func(c *check) { c.facts.InRecovery = true }, "server.in_recovery error 12"},
	{"old", func(c *check) { c.facts.ServerVersion = 130023 }, "server.version error 2"},
	{"old minor", func(c *check) { c.facts.ServerVersion = 180005 }, "server.minor warning 0"},
	{"wal_level", func(c *check) { c.server.WALLevel = "replica" }, "server.wal_level error 2"},
	{"slots full", func(c *check) { c.facts.Slot, c.server.SlotsUsed = nil, 10 }, "server.slots_full error 12, slot.missing error 10"},
	{"slots full of ours", func(c *check) { c.server.SlotsUsed = 10 }, ""},
	{"senders full", func(c *check) { c.server.SendersUsed = 10 }, "server.senders_full error 12"},
	{"idle time-out", func(c *check) { c.server.IdleSlotTimeoutS = 60 }, "server.idle_slot_timeout warning 0"},
	{"two servers", func(c *check) { c.options.Identity = &Identity{SystemID: "8", Database: "app"} }, "identity.two_servers error 2"},
	{"two databases", func(c *check) { c.options.Identity = &Identity{SystemID: "7", Database: "other"} }, "identity.two_databases error 2"},
	{"one server", func(c *check) { c.options.Identity = &Identity{SystemID: "7", Database: "app"} }, ""},
	{"other system", func(c *check) { c.options.Remembered = &Remembered{SystemID: "8"} }, "identity.other_system error 10"},
	{"failover", func(c *check) { c.options.Remembered = remembered(2, 0x2000) }, "identity.timeline warning 0"},
	{"known", func(c *check) { c.options.Remembered = remembered(1, 0x900) }, ""},
	{"slot behind", func(c *check) { c.options.Remembered = remembered(1, 0x950) }, ""},
	{"slot ahead", func(c *check) { c.options.Remembered = remembered(1, 0x8FF) }, "position.slot_ahead error 10"},
	{"rewound", func(c *check) { c.options.Remembered = remembered(1, 0x1001) }, "position.rewound error 10"},
	{"no replication", func(c *check) { c.server.StreamRole.Replication = false }, "role.no_replication warning 14"},
	{"rds", func(c *check) { c.server.StreamRole = &role{Name: "r", RDSReplication: true} }, ""},
	{"superuser", func(c *check) { c.server.StreamRole.Superuser = true }, "role.superuser warning 0"},
	{"may create", func(c *check) { c.server.StreamRole.CreateRole = true }, "role.too_mighty warning 0"},
	{"no table", func(c *check) { c.table = nil }, "table.missing error 2"},
	{"view", func(c *check) { c.table.Kind = "v" }, "table.kind error 2"},
	{"unlogged", func(c *check) { c.table.Persistence = "u" }, "table.unlogged error 2"},
	{"no key", func(c *check) { c.table.PrimaryKey = nil }, "table.no_primary_key error 2"},
	{"rls", func(c *check) { c.table.RowSecurity, c.table.RowSecurityActive = true, true }, "table.row_security error 14"},
	{"rls exempt", func(c *check) { c.table.RowSecurity = true }, "table.row_security_exempt info 0"},
	{"partition", func(c *check) { c.table.IsPartition = true }, "table.is_partition warning 0"},
	{"column missing", func(c *check) { c.options.Mapping.Topic = "topic" }, "table.mapping error 2"},
	{"array", func(c *check) { c.table.Columns[2].TypeOID = 1009 }, "table.mapping error 2"},
	{"column hidden", func(c *check) { c.facts.Publication.Columns = []string{"id", "event_id", "event_type"} }, "publication.column_list error 15"},
	{"column generated on 14", func(c *check) { c.facts.Publication.Columns = nil; c.table.Columns[3].Generated = true }, "publication.column_list error 15"},
	{"no publication", func(c *check) { c.facts.Publication = nil }, "publication.missing error 15"},
	{"all tables", func(c *check) { c.facts.Publication.AllTables, c.facts.Publication.Others = true, 9 }, "publication.all_tables error 15"},
	{"not in it", func(c *check) { c.facts.Publication.HasTable = false }, "publication.no_table error 15"},
	{"others", func(c *check) { c.facts.Publication.Others = 2 }, "publication.other_tables error 15"},
	{"no insert", func(c *check) { c.facts.Publication.Insert = false }, "publication.no_insert error 15"},
	{"updates", func(c *check) { c.facts.Publication.Update = true }, "publication.updates error 15"},
	{"deletes", func(c *check) { c.facts.Publication.Delete = true }, "publication.updates error 15"},
	{"truncate", func(c *check) { c.facts.Publication.Truncate = true }, "publication.truncate warning 0"},
	{"filter", func(c *check) { c.facts.Publication.RowFilter = "(id > 1)" }, "publication.row_filter error 15"},
	{"partitioned", func(c *check) { c.table.Kind = "p" }, "publication.via_root error 15"},
	{"partitioned, via root", func(c *check) { c.table.Kind = "p"; c.facts.Publication.ViaRoot = true }, ""},
	{"bad name", func(c *check) { c.options.Slot = "A-B" }, "slot.name error 2"},
	{"no slot", func(c *check) { c.facts.Slot = nil }, "slot.missing error 10"},
	{"no slot yet", func(c *check) { c.facts.Slot, c.options.AllowMissingSlot = nil, true }, "slot.missing info 0"},
	{"physical", func(c *check) { c.facts.Slot.Type = "physical" }, "slot.kind error 10"},
	{"plugin", func(c *check) { c.facts.Slot.Plugin = "test_decoding" }, "slot.plugin error 10"},
	{"database", func(c *check) { c.facts.Slot.Database = "other" }, "slot.database error 10"},
	{"two-phase", func(c *check) { c.facts.Slot.TwoPhase = true }, "slot.two_phase error 10"},
	{"temporary", func(c *check) { c.facts.Slot.Temporary = true }, "slot.temporary error 10"},
	{"lost", func(c *check) { c.facts.Slot.WALStatus = "lost" }, "slot.lost error 10"},
	{"invalidated", func(c *check) { c.facts.Slot.InvalidationReason = "idle_timeout" }, "slot.lost error 10"},
	{"busy", func(c *check) { c.facts.Slot.Active, c.facts.Slot.ActivePID = true, 5 }, "slot.busy error 11"},
	{"busy, will wait", func(c *check) { c.facts.Slot.Active, c.options.AllowBusySlot = true, true }, "slot.busy info 0"},
	{"synced", func(c *check) { c.facts.InRecovery, c.facts.Slot.Synced = true, true }, "server.in_recovery error 12, slot.synced error 12"},
	{"synchronous", func(c *check) { c.facts.Synchronous = true }, "server.synchronous_standby error 2"},
	{"standby slots", func(c *check) { c.server.SynchronizedStandbySlots, c.facts.Slot.Failover = "sb1", true }, "server.synchronized_standby_slots info 0"},
	{"no failover", func(c *check) { c.server.HasStandbys = true }, "slot.no_failover warning 0"},
}

// Law: each bad set-up gives exactly its own code at its severity, with the
// exit code of its class; the sound one gives none. Listed are the findings
// beside the statement about retention.
// Case F49 of docs/guarantees.md.
func TestPreflightFindings(t *testing.T) {
	t.Parallel()
	for _, c := range badSetups {
		check := soundCheck()
		c.bad(check)
		check.run()
		if got := summary(check.findings); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		for _, f := range check.findings {
			if f.Message == "" || f.Observed == "" || f.Required == "" {
				t.Errorf("%s: a finding without words: %+v", c.name, f)
			}
		}
	}
}

// Law: which of two retention risks is run is always said.
func TestPreflightStatesTheRetentionRisk(t *testing.T) {
	t.Parallel()
	for keep, want := range map[int64]string{-1: "server.wal_unlimited", 0: "server.wal_limited", 1024: "server.wal_limited"} {
		c := soundCheck()
		c.server.MaxSlotWALKeepMB = keep
		c.run()
		if len(c.findings) != 1 || c.findings[0].Code != want || c.findings[0].Severity != Info {
			t.Errorf("max_slot_wal_keep_size = %d: %+v, want %s", keep, c.findings, want)
		}
	}
}

func remembered(timeline uint32, lsn outbox.LSN) *Remembered {
	return &Remembered{SystemID: "7", Progress: outbox.Progress{Timeline: timeline, LSN: lsn}}
}

// summary lists findings but the one on retention.
func summary(findings []Finding) string {
	findings = slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		return strings.HasPrefix(f.Code, "server.wal_un") || f.Code == "server.wal_limited"
	})
	var parts []string
	for _, f := range findings {
		parts = append(parts, f.Code+" "+f.Severity.String()+" "+strconv.Itoa(f.ExitCode))
	}
	return strings.Join(parts, ", ")
}
