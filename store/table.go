package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Column is a column of the outbox.
type Column struct {
	Name string
	Type string // as format_type prints it; Open replaces it by the catalog's own word
}

// Table says where the outbox is and which of its columns there are. Names
// are as in the catalog, unquoted.
type Table struct {
	Schema, Name string
	Key          []Column // the columns of outbox.Event.RowKey, in its order
	// EventID, Status and SentAt are "" where the table has none.
	EventID, Status, SentAt string

	eventIDType string
}

func (t Table) quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// resolve reads the columns' types, with their modifiers: a cast to the bare
// type name would cut values (character is character(1)).
func (t Table) resolve(ctx context.Context, conn *pgx.Conn) (Table, error) {
	rows, err := conn.Query(ctx, `select a.attname::text, format_type(a.atttypid, a.atttypmod)
		from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1::text and c.relname = $2::text and a.attnum > 0 and not a.attisdropped`, t.Schema, t.Name)
	if err != nil {
		return t, fmt.Errorf("reading the columns of %s: %w", t.quoted(), err)
	}
	types := map[string]string{}
	var name, typ string
	if _, err := pgx.ForEachRow(rows, []any{&name, &typ}, func() error { types[name] = typ; return nil }); err != nil {
		return t, fmt.Errorf("reading the columns of %s: %w", t.quoted(), err)
	}
	if len(types) == 0 {
		return t, fmt.Errorf("table %s does not exist in this database: set table.name, or make it with `outbox-relay setup`", t.quoted())
	}
	for _, c := range t.named() {
		if types[c] == "" {
			return t, fmt.Errorf("table %s has no column %q: correct table.columns", t.quoted(), c)
		}
	}
	key := make([]Column, len(t.Key))
	for i, c := range t.Key {
		key[i] = Column{Name: c.Name, Type: types[c.Name]}
	}
	t.Key, t.eventIDType = key, types[t.EventID]
	return t, nil
}

// named lists the columns that must be there.
func (t Table) named() []string {
	var names []string
	for _, c := range t.Key {
		names = append(names, c.Name)
	}
	for _, c := range []string{t.EventID, t.Status, t.SentAt} {
		if c != "" {
			names = append(names, c)
		}
	}
	return names
}

// address splits a row key into the texts of its columns; false when it is
// not the key of a row of this table, so that no statement can name the row.
func (t Table) address(rowKey string) ([]string, bool) {
	// The usual key is ["42"]: no need for a JSON parser.
	if inner, ok := strings.CutPrefix(rowKey, `["`); ok && len(t.Key) == 1 {
		if inner, ok = strings.CutSuffix(inner, `"]`); ok && !strings.ContainsAny(inner, `"\`) {
			return []string{inner}, true
		}
	}
	var parts []string
	if json.Unmarshal([]byte(rowKey), &parts) != nil || len(parts) != len(t.Key) || len(parts) == 0 {
		return nil, false
	}
	return parts, true
}

// rowSet addresses rows of the outbox, column by column as the statements
// take them.
type rowSet struct {
	keys [][]string
	ids  []*string // nil for NULL; left out where the table has no event id
	n    int
}

func (t Table) newRowSet(capacity int) *rowSet {
	s := &rowSet{keys: make([][]string, len(t.Key)), ids: make([]*string, 0, capacity)}
	for i := range s.keys {
		s.keys[i] = make([]string, 0, capacity)
	}
	return s
}

func (s *rowSet) add(parts []string, eventID string) {
	for i, p := range parts {
		s.keys[i] = append(s.keys[i], p)
	}
	s.ids = append(s.ids, textOrNull(eventID))
	s.n++
}

// args gives the statement's arguments: the key columns, the event ids, then
// the rest.
func (t Table) args(s *rowSet, rest ...any) []any {
	args := make([]any, 0, len(s.keys)+1+len(rest))
	for _, k := range s.keys {
		args = append(args, k)
	}
	if t.EventID != "" {
		args = append(args, s.ids)
	}
	return append(args, rest...)
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
