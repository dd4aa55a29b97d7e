package cdc

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// Severity says what a finding means for a start.
type Severity uint8

// The severities: an Error forbids the start, a Warning is a risk that
// somebody should know of, an Info is good to know.
const (
	Info Severity = iota + 1
	Warning
	Error
)

// String gives the severity's name.
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	case Info:
		return "info"
	default:
		return "unknown"
	}
}

// MarshalText gives the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that Preflight noticed. Codes are a contract: they are
// documented and never change their meaning.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Observed string   `json:"observed"`
	Required string   `json:"required"`
	Message  string   `json:"message"`       // for people, whole sentences
	Fix      string   `json:"fix,omitempty"` // SQL or a setting, exact; "" when there is no single one
	ExitCode int      `json:"exit_code"`     // of a program that ends for it
}

// Remembered is the relay's own durable knowledge, from its position row.
type Remembered struct {
	SystemID string
	Progress outbox.Progress
}

// PreflightOptions says what is about to start.
type PreflightOptions struct {
	Target
	// Mapping is checked against the columns as they are published. Its
	// RowKey may be empty: then it is the primary key.
	Mapping decode.Mapping
	// StreamRole is the role of the replication connection; "" = the role of
	// the Admin's.
	StreamRole string
	// Identity is of an open stream, to see that both connections lead to
	// one server; nil = not connected.
	Identity *Identity
	// Remembered is nil before the first start.
	Remembered *Remembered
	// AllowMissingSlot says that the caller will make the slot.
	AllowMissingSlot bool
	// AllowBusySlot says that the caller will wait for it.
	AllowBusySlot bool
}

// TableInfo is the outbox table as the catalog has it.
type TableInfo struct {
	OID        uint32
	Schema     string
	Name       string
	Columns    []ColumnInfo
	PrimaryKey []ColumnInfo // in the key's order; empty when there is none
	tableFacts
}

// Partitioned says that the table is the root of partitions.
func (t *TableInfo) Partitioned() bool { return t.Kind == "p" }

// ColumnInfo is one column. TypeName is format_type's, which SQL can cast to.
type ColumnInfo struct {
	Name      string `json:"name"`
	TypeOID   uint32 `json:"type_oid"`
	TypeName  string `json:"type_name"`
	NotNull   bool   `json:"not_null"`
	Generated bool   `json:"generated"`
}

// tableFacts is what the catalog says about the table as a whole.
type tableFacts struct {
	Kind              string `json:"kind"`        // relkind: r, p, v, f ...
	Persistence       string `json:"persistence"` // p, u = unlogged, t = temporary
	RowSecurity       bool   `json:"row_security"`
	RowSecurityActive bool   `json:"row_security_active"` // for our role
	ReplicaIdentity   string `json:"replica_identity"`
	IsPartition       bool   `json:"is_partition"`
	Owner             string `json:"owner"`
}

//go:embed sql/table.sql
var tableSQL string

// table reads the outbox table; nil when there is none.
func (a *Admin) table(ctx context.Context, t Target) (*TableInfo, error) {
	var row *struct {
		tableFacts
		OID        uint32       `json:"oid"`
		Columns    []ColumnInfo `json:"columns"`
		PrimaryKey []string     `json:"primary_key"`
	}
	if err := a.ask(ctx, &row, tableSQL, t.Schema, t.Table); err != nil {
		return nil, fmt.Errorf("reading the table %s: %w", quoteTable(t.Schema, t.Table), err)
	}
	if row == nil {
		return nil, nil
	}
	info := &TableInfo{OID: row.OID, Schema: t.Schema, Name: t.Table, Columns: row.Columns, tableFacts: row.tableFacts}
	for _, name := range row.PrimaryKey {
		for _, c := range row.Columns {
			if c.Name == name {
				info.PrimaryKey = append(info.PrimaryKey, c)
			}
		}
	}
	return info, nil
}

// serverFacts is what sql/server.sql answers.
type serverFacts struct {
	Version                  string `json:"version"`
	WALLevel                 string `json:"wal_level"`
	MaxReplicationSlots      int    `json:"max_replication_slots"`
	SlotsUsed                int    `json:"slots_used"`
	MaxWALSenders            int    `json:"max_wal_senders"`
	SendersUsed              int    `json:"senders_used"`
	HasStandbys              bool   `json:"has_standbys"`
	MaxSlotWALKeepMB         int64  `json:"max_slot_wal_keep_mb"` // -1: no limit
	IdleSlotTimeoutS         int64  `json:"idle_slot_timeout_s"`  // 0: off, or before 18
	SynchronizedStandbySlots string `json:"synchronized_standby_slots"`
	QueryUser                string `json:"query_user"`
	StreamRole               *role  `json:"stream_role"`
}

type role struct {
	Name           string `json:"name"`
	Superuser      bool   `json:"superuser"`
	Replication    bool   `json:"replication"`
	CreateDB       bool   `json:"create_db"`
	CreateRole     bool   `json:"create_role"`
	RDSReplication bool   `json:"rds_replication"`
}

//go:embed sql/server.sql
var serverSQL string

// preflightTimeout bounds the whole, when the caller's context does not.
const preflightTimeout = 30 * time.Second

// Preflight looks at everything that must be right before the stream starts,
// without changing anything. The table is nil when there is none. An error
// means that it could not look; what it saw is in the findings, in the order
// in which they should be read.
func (a *Admin) Preflight(ctx context.Context, o PreflightOptions) ([]Finding, *TableInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	facts, err := a.Facts(ctx, o.Target)
	if err != nil {
		return nil, nil, err
	}
	if o.StreamRole == "" {
		o.StreamRole = a.config.User
	}
	c := check{options: o, facts: facts}
	if err := a.ask(ctx, &c.server, serverSQL, o.StreamRole); err != nil {
		return nil, nil, fmt.Errorf("reading the server's settings: %w", err)
	}
	if c.table, err = a.table(ctx, o.Target); err != nil {
		return nil, nil, err
	}
	c.run()
	return c.findings, c.table, nil
}

// Worst is the highest severity among the findings; 0 for none.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// check gathers findings from what was read. It does no I/O.
type check struct {
	options  PreflightOptions
	facts    *Facts
	server   serverFacts
	table    *TableInfo
	findings []Finding
}

func (c *check) add(f Finding) { c.findings = append(c.findings, f) }

func (c *check) run() {
	c.checkNode()
	c.checkIdentity()
	c.checkServer()
	c.checkRole()
	c.checkTable()
	c.checkPublication()
	c.checkSlot()
	c.checkPosition()
	c.checkStandbys()
}

// slotQuoted and publicationQuoted are the names as SQL wants them.
func (c *check) publicationQuoted() string { return QuoteIdentifier(c.options.Publication) }

func (c *check) tableQuoted() string { return quoteTable(c.options.Schema, c.options.Table) }
