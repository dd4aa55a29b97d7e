package migrations

import (
	"fmt"
	"strings"
)

// Writes says what the role may do to the outbox.
type Writes uint8

// The kinds of write-back.
const (
	WritesStatus  Writes = iota // the status columns are updated
	WritesDelete                // rows are deleted on success
	WritesNothing               // the table is only read
)

// GrantOptions describe the role that the relay connects as.
type GrantOptions struct {
	Role     string
	Database string // "" leaves CONNECT as it is
	Schema   string // of the outbox; default public
	Table    string // default outbox
	Writes   Writes
	// StatusColumns are what write-back touches; default status, sent_at.
	// Where rows are deleted one of them is still granted, because a lock
	// with SKIP LOCKED asks for UPDATE on at least one column.
	StatusColumns []string
}

// Grants gives the statements that let the role run the relay, and no more:
// read the outbox, write its status columns, and own nothing. The replication
// attribute is not among them: how it is given differs by provider. The audit
// may be added to, and never changed.
func Grants(o GrantOptions) ([]string, error) {
	o.Schema, o.Table = orElse(o.Schema, "public"), orElse(o.Table, "outbox")
	if len(o.StatusColumns) == 0 {
		o.StatusColumns = []string{"status", "sent_at"}
	}
	if err := checkNames(append([]string{o.Role, o.Schema, o.Table}, o.StatusColumns...)...); err != nil {
		return nil, err
	}
	table, role := quote(o.Schema, o.Table), quote(o.Role)
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if o.Database != "" {
		if err := checkNames(o.Database); err != nil {
			return nil, err
		}
		add("grant connect on database %s to %s", quote(o.Database), role)
	}
	add("grant usage on schema %s to %s", quote(o.Schema), role)
	add("grant select on table %s to %s", table, role)
	if o.Writes != WritesNothing {
		add("grant update (%s) on table %s to %s", quoteList(o.StatusColumns), table, role)
	}
	if o.Writes == WritesDelete {
		add("grant delete on table %s to %s", table, role)
	}
	add("grant usage on schema %s to %s", Schema, role)
	add("grant select, insert, update, delete on table %s to %s", ownTables(), role)
	add("grant select, insert on table %s.audit to %s", Schema, role)
	add("grant select on table %s to %s", versionTable, role)
	return out, nil
}

func ownTables() string {
	names := []string{"position", "line", "line_event", "pending_status", "poll_slot", "recovery"}
	for i, n := range names {
		names[i] = Schema + "." + n
	}
	return strings.Join(names, ", ")
}

func quoteList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}
