package cdc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox-relay/decode"
)

// checkTable looks at the outbox table itself.
func (c *check) checkTable() {
	t := c.table
	exit := ClassConfig.ExitCode()
	switch {
	case t == nil:
		c.add(Finding{Code: "table.missing", Severity: Error, ExitCode: exit, Observed: "no table " + c.tableQuoted(), Required: "the outbox table",
			Message: "There is no table of this name in database " + c.facts.Database + ". See the statements that make one: outbox-relay setup --print."})
		return
	case t.Kind != "r" && t.Kind != "p":
		c.add(Finding{Code: "table.kind", Severity: Error, ExitCode: exit, Observed: "relkind " + t.Kind, Required: "an ordinary or a partitioned table",
			Message: c.tableQuoted() + " is no table: inserts into it are not in the log under its name. Name the table behind it."})
		return
	case t.Persistence != "p":
		c.add(Finding{Code: "table.unlogged", Severity: Error, ExitCode: exit, Observed: "unlogged or temporary", Required: "a logged table",
			Message: "Rows of this table are not written to the log, so they cannot be streamed, and a crash empties it.",
			Fix:     "alter table " + c.tableQuoted() + " set logged"})
	}
	if len(t.PrimaryKey) == 0 {
		c.add(Finding{Code: "table.no_primary_key", Severity: Error, ExitCode: exit, Observed: "no primary key", Required: "a primary key",
			Message: "Without a primary key the relay cannot find a row again to mark it.",
			Fix:     "alter table " + c.tableQuoted() + " add primary key (COLUMN)"})
	}
	c.checkRowSecurity()
	if t.IsPartition {
		c.add(Finding{Code: "table.is_partition", Severity: Warning, Observed: "a partition", Required: "the partitioned table itself",
			Message: "This table is one partition of another. Rows that go to other partitions are not published."})
	}
	c.checkMapping()
}

func (c *check) checkRowSecurity() {
	t := c.table
	switch {
	case t.RowSecurityActive:
		c.add(Finding{Code: "table.row_security", Severity: Error, ExitCode: ClassPermission.ExitCode(),
			Observed: fmt.Sprintf("row-level security applies to role %q", c.server.QueryUser), Required: "a role that sees all rows",
			Message: "The stream brings every row, but this role would see and mark only some of them.",
			Fix:     "create policy outbox_relay on " + c.tableQuoted() + " to " + QuoteIdentifier(c.server.QueryUser) + " using (true); -- or: alter role " + QuoteIdentifier(c.server.QueryUser) + " bypassrls"})
	case t.RowSecurity:
		c.add(Finding{Code: "table.row_security_exempt", Severity: Info, Observed: "row-level security is on, and our role is exempt", Required: "-",
			Message: "Decoding is not subject to row-level security; the relay publishes every row."})
	}
}

// checkMapping tries the mapping on the columns as they are published, by the
// same code that will read the stream.
func (c *check) checkMapping() {
	m := c.options.Mapping
	if len(m.RowKey) == 0 {
		for _, k := range c.table.PrimaryKey {
			m.RowKey = append(m.RowKey, k.Name)
		}
	}
	if len(m.RowKey) == 0 {
		return // said already
	}
	_, err := decode.NewLayout(m, c.table.Relation(c.published()))
	if err == nil {
		return
	}
	var bad *decode.LayoutError
	if !errors.As(err, &bad) {
		bad = &decode.LayoutError{Reason: err.Error()}
	}
	if _, whole := decode.NewLayout(m, c.table.Relation(nil)); whole == nil {
		c.add(Finding{Code: "publication.column_list", Severity: Error, ExitCode: ClassPublication.ExitCode(),
			Observed: "column " + bad.Column + " is not published", Required: "all mapped columns",
			Message: "The publication's column list, or the column being generated, hides a column that the relay needs.",
			Fix:     c.setTableSQL()})
		return
	}
	c.add(Finding{Code: "table.mapping", Severity: Error, ExitCode: ClassConfig.ExitCode(),
		Observed: strings.TrimPrefix(bad.Column+": "+bad.Reason, ": "), Required: "a usable column for " + bad.Field,
		Message: err.Error() + "."})
}

// published lists the columns that the stream will carry; nil when that
// cannot be told apart from all.
func (c *check) published() []string {
	if p := c.facts.Publication; p != nil && p.HasTable && p.Columns != nil {
		return p.Columns
	}
	names := []string{}
	for _, col := range c.table.Columns {
		if !col.Generated {
			names = append(names, col.Name)
		}
	}
	return names
}

// Relation describes the table as a Relation message would, with the columns
// named in only; nil is all of them.
func (t *TableInfo) Relation(only []string) *decode.Relation {
	rel := &decode.Relation{OID: t.OID, Namespace: t.Schema, Name: t.Name, ReplicaIdentity: 'd'}
	for _, col := range t.Columns {
		if only == nil || slices.Contains(only, col.Name) {
			rel.Columns = append(rel.Columns, decode.RelationColumn{Name: col.Name, TypeOID: col.TypeOID, TypeModifier: -1})
		}
	}
	return rel
}

// setTableSQL makes the publication hold the whole table, and it alone.
func (c *check) setTableSQL() string {
	return "alter publication " + c.publicationQuoted() + " set table " + c.tableQuoted()
}
