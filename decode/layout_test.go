package decode

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Law: columns are found by name, wherever they stand and whatever stands
// between them.
// Case F9 of docs/guarantees.md.
func TestLayoutFindsColumnsByName(t *testing.T) {
	t.Parallel()
	m := Mapping{ID: "id", Payload: "payload", Topic: "topic"}
	there := mustLayout(t, m, relation("topic:25", "extra:600", "payload:17", "tags:1009", "id:20"))
	e := mustEvent(t, there, text("a"), text("(1,2)"), text(`\x00`), text("{}"), text("7"))
	back := mustLayout(t, m, relation("id:20", "payload:17", "topic:25"))
	f := mustEvent(t, back, text("7"), text(`\x00`), text("a"))
	if diff := cmp.Diff(e, f); diff != "" || e.Topic != "a" {
		t.Errorf("topic %q, difference:\n%s", e.Topic, diff)
	}
}

// Law: the row key is a JSON array of the key columns in the mapping's order.
func TestLayoutOrdersTheRowKey(t *testing.T) {
	t.Parallel()
	rel := relation("created_at:1184", "payload:25", "id:20")
	m := Mapping{ID: "id", RowKey: []string{"id", "created_at"}, Payload: "payload"}
	e := mustEvent(t, mustLayout(t, m, rel), text("2026-01-01 00:00:00+00"), null(), text("42"))
	if e.RowKey != `["42","2026-01-01 00:00:00+00"]` {
		t.Errorf("row key %s", e.RowKey)
	}
}

// Law: a relation that does not fit is refused with the table, the column, the
// reason and the way out.
func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	least := Mapping{ID: "id", Payload: "payload"}
	and := func(change func(*Mapping)) Mapping {
		m := least
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		m     Mapping
		rel   *Relation
		words []string
	}{
		"no such column": {and(func(m *Mapping) { m.Topic = "topc" }), relation("id:20", "payload:17", "topic:25"),
			[]string{`mapping topic of table public.outbox, column "topc"`, "no such column", "table.columns", "column list"}},
		"name in other case": {and(func(m *Mapping) { m.Topic = "Topic" }), relation("id:20", "payload:17", "topic:25"), []string{`column "Topic"`}},
		"no key":             {Mapping{Payload: "payload"}, relation("payload:17"), []string{"the row key", "primary key"}},
		"no payload":         {Mapping{ID: "id"}, relation("id:20"), []string{"mapping payload", "no column is named"}},
		"key column missing": {and(func(m *Mapping) { m.RowKey = []string{"id", "day"} }), relation("id:20", "payload:17"), []string{`column "day"`}},
		"id not in row key":  {and(func(m *Mapping) { m.ID, m.RowKey = "nope", []string{"id"} }), relation("id:20", "payload:17"), []string{`column "nope"`}},
		"array of text":      {least, relation("id:20", "payload:1009"), []string{`column "payload"`, "is an array", "bytea, json", "holds the array as JSON"}},
		"array as key":       {least, relation("id:1016", "payload:17"), []string{`column "id"`, "is an array"}},
		"bytea as topic":     {and(func(m *Mapping) { m.Topic = "id" }), relation("id:17", "payload:17"), []string{"its type is bytea", "text, varchar"}},
		"domain as payload":  {least, relation("id:20", "payload:16999"), []string{"OID 16999", "not built in", "change the column's type"}},
		"domain as headers":  {and(func(m *Mapping) { m.Headers = "h" }), relation("id:20", "payload:17", "h:16999"), []string{`column "h"`, "jsonb, json or text"}},
		"enum as status":     {and(func(m *Mapping) { m.Status = "s" }), relation("id:20", "payload:17", "s:16999"), []string{`column "s"`, "smallint"}},
		"text as time":       {and(func(m *Mapping) { m.CreatedAt = "t" }), relation("id:20", "payload:17", "t:25"), []string{`column "t"`, "timestamptz"}},
		"integer event id":   {and(func(m *Mapping) { m.EventID = "id" }), relation("id:20", "payload:17"), []string{"mapping event_id", "its type is bigint", "uuid or text"}},
		"json as key":        {and(func(m *Mapping) { m.Key = "j" }), relation("id:20", "payload:17", "j:114"), []string{"its type is json,"}},
	} {
		l, err := NewLayout(c.m, c.rel)
		var layout *LayoutError
		if l != nil || !errors.As(err, &layout) || layout.Hint == "" {
			t.Errorf("%s: layout %v, error %v", name, l, err)
			continue
		}
		for _, words := range c.words {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %q does not say %q", name, err, words)
			}
		}
	}
}

// Law: every type that a field is documented to take is taken.
func TestLayoutAccepts(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]struct {
		set  func(m *Mapping)
		oids string
	}{
		"id":            {func(m *Mapping) { m.ID = "x" }, "16 19 20 21 23 25 1042 1043 1082 1114 1184 1700 2950 16999"},
		"event_id":      {func(m *Mapping) { m.EventID = "x" }, "25 1043 2950"},
		"event_type":    {func(m *Mapping) { m.EventType = "x" }, "19 25 1042 1043 16999"},
		"aggregate_id":  {func(m *Mapping) { m.AggregateID = "x" }, "20 21 23 25 1043 1700 2950 16999"},
		"payload":       {func(m *Mapping) { m.Payload = "x" }, "17 25 114 1042 1043 3802"},
		"headers":       {func(m *Mapping) { m.Headers = "x" }, "25 114 1043 3802"},
		"created_at":    {func(m *Mapping) { m.CreatedAt = "x" }, "1114 1184"},
		"deliver_after": {func(m *Mapping) { m.DeliverAfter = "x" }, "1114 1184"},
		"status":        {func(m *Mapping) { m.Status = "x" }, "20 21 23"},
	} {
		for oid := range strings.FieldsSeq(c.oids) {
			m := Mapping{ID: "id", Payload: "payload"}
			c.set(&m)
			if _, err := NewLayout(m, relation("id:20", "payload:17", "x:"+oid)); err != nil {
				t.Errorf("%s from type %s: %v", field, oid, err)
			}
		}
	}
}

// Law: binary is asked for only where a mapped bytea makes it pay, and every
// mapped column can be read in it.
func TestBinaryPays(t *testing.T) {
	t.Parallel()
	m := Mapping{ID: "id", Payload: "payload", Topic: "topic"}
	for name, c := range map[string]struct {
		rel  *Relation
		want bool
	}{
		"bytea payload":              {relation("id:20", "payload:17", "topic:25"), true},
		"json payload":               {relation("id:20", "payload:3802", "topic:25"), false},
		"an enum as topic":           {relation("id:20", "payload:17", "topic:16500"), false},
		"an enum as key":             {relation("id:16500", "payload:17", "topic:25"), false},
		"an enum that nobody maps":   {relation("id:20", "payload:17", "topic:25", "mood:16500"), true},
		"a bytea that nobody maps":   {relation("id:20", "payload:25", "topic:25", "raw:17"), false},
		"a topic that has no column": {relation("id:20", "payload:17"), true},
	} {
		mapping := m
		if len(c.rel.Columns) == 2 {
			mapping.Topic = ""
		}
		if got := mustLayout(t, mapping, c.rel).BinaryPays(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
