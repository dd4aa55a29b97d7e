package cdc

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Target names what Facts and Preflight look at.
type Target struct {
	Slot        string
	Publication string
	Schema      string
	Table       string
	// ApplicationName is the stream's; "" = the default one.
	ApplicationName string
}

// Facts is what one statement says about slot, publication and server, all of
// one moment. Positions are compared by the server, never by us across two
// answers.
type Facts struct {
	At            time.Time  `json:"at"` // the server's clock
	ServerVersion int        `json:"server_version"`
	InRecovery    bool       `json:"in_recovery"`
	SystemID      string     `json:"system_id"`
	Timeline      uint32     `json:"timeline"` // 0 on a standby
	Database      string     `json:"database"`
	FlushLSN      outbox.LSN `json:"flush_lsn"` // on a standby: replayed

	SynchronousStandbyNames string `json:"synchronous_standby_names"`
	// Synchronous says that our walsender is, or would be, one that commits
	// wait for: writers would wait for us and we for the writers.
	Synchronous bool `json:"-"`

	Slot        *Slot        `json:"slot"`        // nil: there is none
	Walsender   *Walsender   `json:"walsender"`   // nil: nobody reads the slot
	Publication *Publication `json:"publication"` // nil: there is none
	TableOID    uint32       `json:"table_oid"`   // 0: there is none
}

// Slot is one row of pg_replication_slots. What a version does not have is
// zero.
type Slot struct {
	Name      string `json:"name"`
	Plugin    string `json:"plugin"` // "" for a physical slot
	Type      string `json:"type"`
	Database  string `json:"database"`
	Temporary bool   `json:"temporary"`
	TwoPhase  bool   `json:"two_phase"`
	Failover  bool   `json:"failover"` // 17+
	Synced    bool   `json:"synced"`   // 17+: a copy on a standby, also after its promotion

	Active    bool   `json:"active"`
	ActivePID uint32 `json:"active_pid"`
	// InactiveSince is zero while active, and before version 17.
	InactiveSince time.Time `json:"inactive_since"`
	SlotWAL
}

// SlotWAL is what a slot holds back, and how well.
type SlotWAL struct {
	RestartLSN         outbox.LSN `json:"restart_lsn"`   // oldest WAL kept; 0 once lost
	ConfirmedLSN       outbox.LSN `json:"confirmed_lsn"` // still shown after loss
	RetainedBytes      int64      `json:"retained_bytes"`
	LagBytes           int64      `json:"lag_bytes"`
	CatalogXminAge     int64      `json:"catalog_xmin_age"` // transactions whose dead catalog rows vacuum must keep
	WALStatus          string     `json:"wal_status"`       // reserved, extended, unreserved, lost
	SafeWALBytes       *int64     `json:"safe_wal_bytes"`   // nil: no limit is set, or lost
	Conflicting        bool       `json:"conflicting"`      // 16+
	InvalidationReason string     `json:"invalidation_reason"`
}

// Lost says that the slot can never be read again.
func (s *Slot) Lost() bool {
	return s.WALStatus == "lost" || s.InvalidationReason != "" || s.Conflicting
}

// Walsender is the server process that feeds the slot's reader. Without
// pg_monitor the server hides SyncState and ReplyTime, also of our own.
type Walsender struct {
	PID             uint32    `json:"pid"`
	User            string    `json:"user"`
	ApplicationName string    `json:"application_name"`
	WaitEvent       string    `json:"wait_event"`
	Started         time.Time `json:"started"`
	SyncState       string    `json:"sync_state"` // "": hidden
	ReplyTime       time.Time `json:"reply_time"` // zero: hidden, or no reply yet
}

// WaitsForStandby says that the server holds the stream back until a standby
// named in synchronized_standby_slots has confirmed.
func (w *Walsender) WaitsForStandby() bool {
	return w != nil && w.WaitEvent == "WaitForStandbyConfirmation"
}

//go:embed sql/facts.sql
var factsSQL string

// Facts reads everything that can change while the relay runs, in one
// statement. It needs no right beyond CONNECT.
func (a *Admin) Facts(ctx context.Context, t Target) (*Facts, error) {
	var f Facts
	if err := a.ask(ctx, &f, factsSQL, t.Slot, t.Publication, t.Schema, t.Table); err != nil {
		return nil, fmt.Errorf("reading the facts about slot %q: %w", t.Slot, err)
	}
	f.Synchronous = f.synchronous(t.ApplicationName)
	return &f, nil
}

// synchronous says whether the name matches the setting, or the server calls
// our walsender synchronous. The state alone does not tell: it is hidden from
// roles without pg_monitor, and "async" until the first position is confirmed.
func (f *Facts) synchronous(name string) bool {
	if name == "" {
		name = applicationName
	}
	if w := f.Walsender; w != nil {
		if w.SyncState != "" && w.SyncState != "async" {
			return true
		}
		if w.ApplicationName != "" {
			name = w.ApplicationName
		}
	}
	return namesStandby(f.SynchronousStandbyNames, name)
}

// Publication is what the publication lets through.
type Publication struct {
	Name      string `json:"name"`
	AllTables bool   `json:"all_tables"`
	Insert    bool   `json:"insert"`
	Update    bool   `json:"update"`
	Delete    bool   `json:"delete"`
	Truncate  bool   `json:"truncate"`
	ViaRoot   bool   `json:"via_root"`

	HasTable  bool     `json:"has_table"`  // the outbox, or all its partitions
	RowFilter string   `json:"row_filter"` // "": none (15+)
	Columns   []string `json:"columns"`    // published columns; nil before 15
	Others    int      `json:"others"`     // other tables in it
	Other     string   `json:"other"`      // one of them, quoted
}

// Problem says in a few words why the outbox's rows do not all arrive, or
// that others arrive too; "" when the publication is whole.
func (p *Publication) Problem() string {
	switch {
	case p == nil:
		return "the publication does not exist"
	case p.AllTables:
		return "the publication is for all tables"
	case !p.HasTable:
		return "the publication does not contain the outbox table"
	case !p.Insert:
		return "the publication does not publish inserts"
	case p.Update || p.Delete:
		return "the publication publishes updates or deletes"
	case p.RowFilter != "":
		return "the publication filters rows"
	case p.Others > 0:
		return "the publication contains other tables"
	default:
		return ""
	}
}
