package decode

import (
	"fmt"
	"math"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// maxScratchBytes is how much of a row's text the layout keeps room for
// between rows. Larger texts get a buffer of their own, so that one huge
// header does not stay in memory for good.
const maxScratchBytes = 64 << 10

// Never is what DeliverAfter says for 'infinity' and for times beyond the
// year 9999: the event is scheduled, and its day does not come by itself.
var Never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Event fills e from a row of the layout's relation: everything but Position
// and CommitTime, which it leaves as they are. It copies all it keeps, in at
// most 3 allocations for a row without a defect.
//
// A value that cannot be read sets e.Defect, in words and without the value,
// and the rest of the row is kept; text and payload then hold the column's
// bytes as they came. An error means that the row does not fit the layout (a
// *LayoutError where a type is not readable in the binary format), and e is
// not to be used.
//
// NULL: text fields and headers are "", Payload is nil, times are zero, and
// Status is READY, so that a row is rather sent than passed over. CreatedAt
// is zero as well for infinite times, years BC and years beyond 9999, which
// neither Kafka nor time.Time's own encodings carry.
func (l *Layout) Event(in Insert, e *outbox.Event) error {
	if in.RelationOID != l.oid {
		return fmt.Errorf("reading a row of relation %d with the layout of %s (relation %d)", in.RelationOID, l.relation, l.oid)
	}
	if len(in.Columns) != l.columns {
		return fmt.Errorf("reading a row of %s: it has %d columns, its relation message has %d", l.relation, len(in.Columns), l.columns)
	}
	r := row{columns: in.Columns, texts: l.scratch[:0]}
	l.fillTexts(&r, e)
	e.Payload = r.payload(&l.payload)
	e.CreatedAt, _ = r.time(&l.createdAt)
	e.DeliverAfter = r.deliverAfter(&l.deliverAfter)
	e.Status = r.status(&l.status)
	e.Defect = r.defect
	if cap(r.texts) <= maxScratchBytes {
		l.scratch = r.texts
	}
	if r.unreadable != nil {
		return l.unreadable(r.unreadable)
	}
	return nil
}

// fillTexts gathers every text of the row behind one another and cuts the
// event's strings out of one copy: one allocation for all of them.
func (l *Layout) fillTexts(r *row, e *outbox.Event) {
	var spans [textFields]span
	for i := range l.text {
		spans[i] = r.text(&l.text[i])
	}
	key := r.rowKey(l.key)
	texts := string(r.texts)
	cut := func(s span) string { return texts[s.from:s.to] }
	e.RowKey = cut(key)
	e.ID = cut(spans[fieldEventID])
	e.AggregateType = cut(spans[fieldAggregateType])
	e.AggregateID, e.HasAggregate = cut(spans[fieldAggregateID]), spans[fieldAggregateID].has
	e.Type = cut(spans[fieldEventType])
	e.Topic = cut(spans[fieldTopic])
	e.MessageKey, e.HasMessageKey = cut(spans[fieldKey]), spans[fieldKey].has
	e.ContentType = cut(spans[fieldContentType])
	e.Headers = cut(spans[fieldHeaders])
}

func (l *Layout) unreadable(s *slot) error {
	return &LayoutError{
		Relation: l.relation, Field: s.field, Column: s.column,
		Reason: fmt.Sprintf("its type (OID %d) is not built in, and its binary form is not known", s.oid),
		Hint:   "read the slot in the text format, or change the column's type to text",
	}
}

// row reads the values of one row.
type row struct {
	columns    []Column
	texts      []byte
	defect     string
	unreadable *slot // a column whose type cannot be read in the format it came in
}

// span is a piece of row.texts.
type span struct {
	from, to int
	has      bool // not NULL
}

// note adds a defect of a column; reason "" is none.
func (r *row) note(s *slot, reason string) {
	if reason == "" {
		return
	}
	if r.defect != "" {
		r.defect += "; "
	}
	r.defect += fmt.Sprintf("column %q (%s): %s", s.column, s.field, reason)
}

// value gives a column that has a value.
func (r *row) value(s *slot) (Column, bool) {
	if s.index < 0 {
		return Column{}, false
	}
	c := r.columns[s.index]
	switch c.Format {
	case FormatText:
		return c, true
	case FormatBinary:
		if s.form != formOpaque {
			return c, true
		}
		if r.unreadable == nil {
			r.unreadable = s
		}
		return c, false
	case FormatUnchanged:
		r.note(s, "its value was not sent (unchanged TOAST), which no insert should do")
		return c, false
	default:
		return c, false
	}
}

func (r *row) text(s *slot) span {
	from := len(r.texts)
	c, ok := r.value(s)
	if ok {
		var reason string
		r.texts, reason = appendText(r.texts, s.form, c)
		r.note(s, reason)
	}
	return span{from: from, to: len(r.texts), has: ok}
}

// rowKey appends a JSON array of the key columns' texts, byte for byte what
// '[' || to_json(a::text) || ',' || to_json(b::text) || ']' gives in SQL.
func (r *row) rowKey(key []slot) span {
	from := len(r.texts)
	for i := range key {
		if i == 0 {
			r.texts = append(r.texts, '[')
		} else {
			r.texts = append(r.texts, ',')
		}
		r.keyPart(&key[i])
	}
	r.texts = append(r.texts, ']')
	return span{from: from, to: len(r.texts), has: true}
}

func (r *row) keyPart(s *slot) {
	c, ok := r.value(s)
	if !ok {
		r.texts = append(r.texts, "null"...)
		if c.Format == FormatNull {
			r.note(s, "it is NULL, so the row cannot be found again")
		}
		return
	}
	if s.form == formText || s.form == formOpaque {
		r.texts = appendJSON(r.texts, c.Data)
		return
	}
	from := len(r.texts)
	texts, reason := appendText(append(r.texts, '"'), s.form, c)
	r.texts = append(texts, '"')
	if reason != "" { // the bytes are anything at all, and may break the JSON
		r.note(s, reason)
		r.texts = appendJSON(r.texts[:from], c.Data)
	}
}

// payload copies a payload; it is nil for NULL and only for NULL.
func (r *row) payload(s *slot) []byte {
	c, ok := r.value(s)
	if !ok {
		return nil
	}
	data := c.Data
	switch {
	case s.form == formBytea && c.Format == FormatText:
		decoded, reason := decodeBytea(data)
		if reason == "" {
			return decoded
		}
		r.note(s, reason)
	case s.form == formJSONB && c.Format == FormatBinary:
		text, reason := jsonbText(data)
		r.note(s, reason)
		data = text
	}
	b := make([]byte, len(data))
	copy(b, data)
	return b
}

// time reads a timestamp; it is zero unless the time is whenUsable.
func (r *row) time(s *slot) (time.Time, when) {
	c, ok := r.value(s)
	if !ok {
		return time.Time{}, whenBefore
	}
	t, w, reason := readTime(c)
	r.note(s, reason)
	if w != whenUsable {
		return time.Time{}, w
	}
	return t, w
}

func (r *row) deliverAfter(s *slot) time.Time {
	t, w := r.time(s)
	if w == whenBeyond {
		return Never
	}
	return t
}

func (r *row) status(s *slot) outbox.Status {
	c, ok := r.value(s)
	if !ok {
		return outbox.StatusReady
	}
	n, reason := readInt(s.form, c)
	if reason == "" && (n < math.MinInt16 || n > math.MaxInt16) {
		reason = "its number is no status"
	}
	r.note(s, reason)
	if reason != "" {
		return outbox.StatusReady
	}
	return outbox.Status(n)
}
