package decode

import (
	"fmt"
	"slices"
)

// Mapping says which column of the outbox table holds which field, by name.
// "" means that the table has no such column. Payload and RowKey (or ID) are
// needed; everything else may be absent.
type Mapping struct {
	ID            string // part of the row key; the only part when RowKey is empty
	EventID       string
	AggregateType string
	AggregateID   string
	EventType     string
	Topic         string
	Key           string
	Payload       string
	ContentType   string
	Headers       string
	DeliverAfter  string
	CreatedAt     string
	Status        string
	RowKey        []string // the columns that find the row again, in order
}

// LayoutError says that a relation does not fit the mapping. It is a fault of
// the table or of the configuration, never of a row.
type LayoutError struct {
	Relation string // namespace.name
	Field    string // the field that wanted the column, for example "payload"
	Column   string // "" when the fault is no column's
	Reason   string
	Hint     string // what to do
}

// Error gives the fault and the hint in one line.
func (e *LayoutError) Error() string {
	where := "table " + e.Relation
	if e.Column != "" {
		where += fmt.Sprintf(", column %q", e.Column)
	}
	return fmt.Sprintf("mapping %s of %s: %s; %s", e.Field, where, e.Reason, e.Hint)
}

// slot is where a field's value is found.
type slot struct {
	index  int // into Insert.Columns; -1: the table has no such column
	column string
	field  string
	oid    uint32
	form   form
}

// textField numbers the fields that become strings of an Event.
type textField int

const (
	fieldEventID textField = iota
	fieldAggregateType
	fieldAggregateID
	fieldEventType
	fieldTopic
	fieldKey
	fieldContentType
	fieldHeaders
	textFields // how many
)

// Layout maps the rows of one relation, as it was described by one Relation
// message, to events. It is made anew for each Relation message.
//
// It holds a scratch buffer, so it belongs to one goroutine.
type Layout struct {
	relation string
	oid      uint32
	columns  int

	text         [textFields]slot
	key          []slot
	payload      slot
	createdAt    slot
	deliverAfter slot
	status       slot

	scratch []byte // the texts of the row at hand; kept between rows up to maxScratchBytes
}

// NewLayout finds the mapped columns in rel, by name, and checks that each has
// a type the field can be read from. The error is a *LayoutError that names
// the column and says what to do.
func NewLayout(m Mapping, rel *Relation) (*Layout, error) {
	b := binder{rel: rel}
	l := &Layout{relation: rel.String(), oid: rel.OID, columns: len(rel.Columns)}
	l.text = [textFields]slot{
		fieldEventID:       b.bind("event_id", m.EventID, acceptEventID),
		fieldAggregateType: b.bind("aggregate_type", m.AggregateType, acceptText),
		fieldAggregateID:   b.bind("aggregate_id", m.AggregateID, acceptScalar),
		fieldEventType:     b.bind("event_type", m.EventType, acceptText),
		fieldTopic:         b.bind("topic", m.Topic, acceptText),
		fieldKey:           b.bind("key", m.Key, acceptScalar),
		fieldContentType:   b.bind("content_type", m.ContentType, acceptText),
		fieldHeaders:       b.bind("headers", m.Headers, acceptHeaders),
	}
	l.payload = b.need("payload", m.Payload, acceptPayload)
	l.createdAt = b.bind("created_at", m.CreatedAt, acceptTime)
	l.deliverAfter = b.bind("deliver_after", m.DeliverAfter, acceptTime)
	l.status = b.bind("status", m.Status, acceptStatus)
	l.key = b.bindKey(m)
	if b.err != nil {
		return nil, b.err
	}
	return l, nil
}

// BinaryPays says whether the relation is better read in the binary format:
// every mapped column can be, and one of them is a bytea, whose text is twice
// its size and costs the server and us a conversion. Where none is, the two
// formats cost the same, and text reads every type.
func (l *Layout) BinaryPays() bool {
	slots := append([]slot{l.payload, l.createdAt, l.deliverAfter, l.status}, l.text[:]...)
	slots = append(slots, l.key...)
	readable := func(s slot) bool { return s.index < 0 || s.form != formOpaque }
	bytea := func(s slot) bool { return s.index >= 0 && s.form == formBytea }
	return !slices.ContainsFunc(slots, func(s slot) bool { return !readable(s) }) && slices.ContainsFunc(slots, bytea)
}

// binder finds columns and keeps the first error.
type binder struct {
	rel *Relation
	err error
}

func (b *binder) fail(field, column, reason, hint string) {
	if b.err == nil {
		b.err = &LayoutError{Relation: b.rel.String(), Field: field, Column: column, Reason: reason, Hint: hint}
	}
}

// bindKey gives the slots of the row key.
func (b *binder) bindKey(m Mapping) []slot {
	names := m.RowKey
	if len(names) == 0 && m.ID != "" {
		names = []string{m.ID}
	}
	if len(names) == 0 {
		b.fail("the row key", "", "no column is named for it", "name the primary key in table.columns.id")
		return nil
	}
	if m.ID != "" && !slices.Contains(names, m.ID) {
		b.bind("id", m.ID, acceptScalar) // not used, but a wrong name must not pass unseen
	}
	key := make([]slot, len(names))
	for i, name := range names {
		key[i] = b.need("the row key", name, acceptScalar)
	}
	return key
}

// need is bind for a field that the table must have.
func (b *binder) need(field, column string, accept acceptance) slot {
	if column == "" {
		b.fail(field, "", "no column is named for it", "name one in table.columns")
	}
	return b.bind(field, column, accept)
}

// bind gives the slot of a field. A column that is named must be there.
func (b *binder) bind(field, column string, accept acceptance) slot {
	s := slot{index: -1, column: column, field: field}
	if column == "" {
		return s
	}
	s.index = slices.IndexFunc(b.rel.Columns, func(c RelationColumn) bool { return c.Name == column })
	if s.index < 0 {
		b.fail(field, column, "the table as it is published has no such column",
			"correct its name in table.columns, or set it to null if the table has none; "+
				"a column that a publication's column list leaves out must be added to the list")
		return s
	}
	s.oid = b.rel.Columns[s.index].TypeOID
	s.form = formOf(s.oid)
	if reason := accept.refuse(s.form, s.oid); reason != "" {
		b.fail(field, column, reason, accept.hint(s.form))
	}
	return s
}
