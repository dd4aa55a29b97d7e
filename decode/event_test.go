package decode

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// The columns of standardRelation.
const (
	colID = iota
	colEventID
	colAggregateType
	colAggregateID
	colEventType
	colTopic
	colKey
	colPayload
	colContentType
	colHeaders
	colDeliverAfter
	colCreatedAt
	colStatus
)

// usualEvent is what the usual row must become.
func usualEvent() outbox.Event {
	return outbox.Event{
		RowKey: `["1234567"]`, ID: "018f2f5e-7b1a-7c3d-9e4f-0a1b2c3d4e5f", AggregateType: "order",
		AggregateID: "order-1234567", HasAggregate: true, Type: "order.placed", ContentType: "application/json",
		Payload: []byte(usualPayload), Headers: usualHeaders,
		CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC),
	}
}

// Law: both formats of the usual row give the event in full, and Position and
// CommitTime, which are the caller's, stay.
func TestEventOfTheUsualRow(t *testing.T) {
	t.Parallel()
	position, commit := outbox.Position{Timeline: 1, Commit: 2, Index: 3}, time.Unix(4, 0)
	for name, row := range map[string][]Column{"text": usualText(), "binary": usualBinary()} {
		l := mustLayout(t, standardMapping, standardRelation())
		// What an earlier row left must go, in every field.
		e := outbox.Event{RowKey: "old", ID: "old", AggregateType: "old", AggregateID: "old", HasAggregate: true, Type: "old",
			Topic: "old", MessageKey: "old", HasMessageKey: true, ContentType: "old", Payload: []byte("old"), Headers: "old",
			CreatedAt: commit, DeliverAfter: commit, Status: 9, Defect: "old"}
		e.Position, e.CommitTime = position, commit
		if err := l.Event(insert(row...), &e); err != nil {
			t.Fatal(err)
		}
		want := usualEvent()
		want.Position, want.CommitTime = position, commit
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Law (I7): nothing of an event lies in the connection's buffer or in memory
// that the layout uses again. The input is scribbled over, another row is
// read, and the event must be as it was.
func TestEventAliasesNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"15-text", "15-binary"} {
		var m Message
		layouts := map[uint32]*Layout{}
		rows := 0
		for _, frame := range loadCapture(t, name) {
			if err := Parse(frame, &m); err != nil {
				t.Fatal(err)
			}
			if m.Kind == KindRelation {
				layouts[m.Relation.OID], _ = NewLayout(captureMappings[m.Relation.Name], m.Relation)
			}
			if l := layouts[m.Insert.RelationOID]; m.Kind == KindInsert && l != nil {
				rows++
				checkAliases(t, l, &m, frame)
			}
		}
		if rows < 100 {
			t.Errorf("capture %s: only %d rows", name, rows)
		}
	}
	// A defective row keeps its bytes as they came; they are copies too.
	frame := encode(&Message{Kind: KindInsert, Insert: insert(with(with(usualText(), colPayload, text(`\xzz`)), colID, text("x"))...)})
	var m Message
	if err := Parse(frame, &m); err != nil {
		t.Fatal(err)
	}
	checkAliases(t, mustLayout(t, standardMapping, standardRelation()), &m, frame)
}

func checkAliases(t *testing.T, l *Layout, m *Message, frame []byte) {
	t.Helper()
	var e, other outbox.Event
	if err := l.Event(m.Insert, &e); err != nil {
		return // shown by the golden tests
	}
	want := cloneEvent(e)
	for i := range frame {
		frame[i] = '#'
	}
	_ = l.Event(m.Insert, &other)
	if diff := cmp.Diff(want, e); diff != "" {
		t.Fatalf("scribbling over the input changed the event (-before +after):\n%s", diff)
	}
}

// Law: a row without a defect costs at most 3 allocations, whatever its form.
func TestEventAllocatesAtMostThree(t *testing.T) {
	plain, plainRelation := usualPlain()
	full := with(with(usualText(), colTopic, text("t")), colKey, text("quote\" and \\"))
	for name, c := range map[string]struct {
		rel *Relation
		row []Column
	}{
		"bytea as text":  {standardRelation(), usualText()},
		"text":           {plainRelation, plain},
		"binary":         {standardRelation(), usualBinary()},
		"all fields":     {standardRelation(), with(full, colDeliverAfter, text("2026-01-01 00:00:00+00"))},
		"beyond scratch": {standardRelation(), with(usualText(), colAggregateID, text(strings.Repeat("x", maxScratchBytes/2)))},
	} {
		l := mustLayout(t, standardMapping, c.rel)
		in := insert(c.row...)
		n := testing.AllocsPerRun(100, func() {
			e := new(outbox.Event)
			if err := l.Event(in, e); err != nil || e.Defect != "" {
				t.Fatal(err, e.Defect)
			}
			sunk = e
		}) - 1 // the event itself, which is the caller's
		if n > 3 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

var sunk *outbox.Event

// Law: NULL, empty and absent are kept apart as Event's fields promise.
// Case F14 of docs/guarantees.md.
func TestEventKeepsNullAndEmptyApart(t *testing.T) {
	t.Parallel()
	l := mustLayout(t, standardMapping, standardRelation())
	nulls := make([]Column, 13)
	for i := range nulls {
		nulls[i] = null()
	}
	e := mustEvent(t, l, with(nulls, colID, text("1"))...)
	if diff := cmp.Diff(outbox.Event{RowKey: `["1"]`}, e); diff != "" {
		t.Errorf("all NULL:\n%s", diff)
	}
	for format, empty := range map[string]Column{"text": text(`\x`), "binary": bin()} {
		e = mustEvent(t, l, with(with(with(usualText(), colPayload, empty), colKey, text("")), colAggregateID, text(""))...)
		if e.Payload == nil || len(e.Payload) != 0 || !e.HasMessageKey || !e.HasAggregate {
			t.Errorf("%s: empty became NULL: %+v", format, e)
		}
	}
	least := mustLayout(t, Mapping{ID: "id", Payload: "payload"}, relation("id:23", "payload:25"))
	e = mustEvent(t, least, text("7"), text(""))
	if diff := cmp.Diff(outbox.Event{RowKey: `["7"]`, Payload: []byte{}}, e); diff != "" {
		t.Errorf("the smallest mapping:\n%s", diff)
	}
}

// Law: a value that cannot be read makes a defect in words that name column
// and fault, keeps the rest of the row, and shows nothing of the value.
func TestEventNamesDefects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at     int
		value  Column
		defect string
	}{
		{colPayload, text(`\x5a5g5a`), `column "payload" (payload): byte 5 of its hex form is no hexadecimal digit`},
		{colPayload, text(`\x5a5`), `column "payload" (payload): its hex form has an odd number of digits`},
		{colPayload, text(`Z\\000`), `column "payload" (payload): its text is not in the hex form of bytea; the session must have bytea_output = hex`},
		{colPayload, text(``), `column "payload" (payload): its text is not in the hex form of bytea; the session must have bytea_output = hex`},
		{colPayload, unchanged(), `column "payload" (payload): its value was not sent (unchanged TOAST), which no insert should do`},
		{colHeaders, unchanged(), `column "headers" (headers): its value was not sent (unchanged TOAST), which no insert should do`},
		{colHeaders, bin('{', '}'), `column "headers" (headers): its binary jsonb is of an unknown version`},
		{colEventID, text("018F2F5E-7b1a-7c3d-9e4f-0a1b2c3d4e5f"), `column "event_id" (event_id): its text is no valid uuid`},
		{colEventID, bin(1, 2, 3), `column "event_id" (event_id): its binary uuid has the wrong length, 3 bytes`},
		{colID, null(), `column "id" (the row key): it is NULL, so the row cannot be found again`},
		{colID, unchanged(), `column "id" (the row key): its value was not sent (unchanged TOAST), which no insert should do`},
		{colID, text("12x"), `column "id" (the row key): its text is no valid bigint`},
		{colID, text(""), `column "id" (the row key): its text is no valid bigint`},
		{colID, text("+1"), `column "id" (the row key): its text is no valid bigint`},
		{colID, bin(1, 2), `column "id" (the row key): its binary bigint has the wrong length, 2 bytes`},
		{colStatus, text("32768"), `column "status" (status): its text is no valid smallint`},
		{colCreatedAt, text("yesterday"), `column "created_at" (created_at): its text is no valid ISO timestamp`},
		{colCreatedAt, text("2026-02-30 00:00:00+00"), `column "created_at" (created_at): its text is no valid ISO timestamp`},
		{colCreatedAt, text("294277-01-01 00:00:00+00"), `column "created_at" (created_at): its timestamp is outside the range of its type`},
		{colCreatedAt, binInt8(endMicros), `column "created_at" (created_at): its binary value is outside the range of its type`},
		{colDeliverAfter, bin(0), `column "deliver_after" (deliver_after): its binary timestamp has the wrong length, 1 bytes`},
	} {
		l := mustLayout(t, standardMapping, standardRelation())
		e := mustEvent(t, l, with(usualText(), c.at, c.value)...)
		if e.Defect != c.defect {
			t.Errorf("column %d: defect %q, want %q", c.at, e.Defect, c.defect)
		}
		if e.AggregateID != "order-1234567" || e.ContentType != "application/json" {
			t.Errorf("column %d: the rest of the row is gone: %+v", c.at, e)
		}
	}
}

// Law: a bad value loses nothing: its bytes stay in the event, and a row key
// of any bytes is still JSON; a second defect is named beside the first.
func TestEventKeepsTheBytesOfBadValues(t *testing.T) {
	t.Parallel()
	l := mustLayout(t, standardMapping, standardRelation())
	row := with(with(usualText(), colPayload, text(`\xzz`)), colID, text("a\"b\x00"))
	e := mustEvent(t, l, row...)
	if string(e.Payload) != `\xzz` || e.RowKey != `["a\"b\u0000"]` {
		t.Errorf("payload %q, row key %q", e.Payload, e.RowKey)
	}
	if !strings.Contains(e.Defect, `"payload"`) || !strings.Contains(e.Defect, `"id"`) {
		t.Errorf("defect %q", e.Defect)
	}
	// A message key that cannot be read must not turn into another key.
	m := standardMapping
	m.Key = "event_id"
	e = mustEvent(t, mustLayout(t, m, standardRelation()), with(usualText(), colEventID, text("no uuid"))...)
	if key, ok := e.Key(); !ok || key != "no uuid" {
		t.Errorf("key %q, %v", key, ok)
	}
}

// Law: no time that the server can store fails the row; what time.Time's
// users cannot carry becomes the documented substitute.
// Case F15 of docs/guarantees.md.
func TestEventNeverFailsForATime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct{ created, deliver time.Time }{
		"infinity":                         {time.Time{}, Never},
		"-infinity":                        {},
		"0044-03-15 00:00:00+00 BC":        {},
		"4714-11-24 00:00:00+00 BC":        {},
		"10000-01-01 00:00:00+00":          {time.Time{}, Never},
		"294276-12-31 23:59:59.999999+00":  {time.Time{}, Never},
		"10000-01-01 04:59:59+05":          {time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), Never},
		"2026-01-01 00:00:00-03:30":        {time.Date(2026, 1, 1, 3, 30, 0, 0, time.UTC), time.Date(2026, 1, 1, 3, 30, 0, 0, time.UTC)},
		"1900-01-01 00:00:00.000001+00":    {time.Date(1900, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(1900, 1, 1, 0, 0, 0, 1000, time.UTC)},
		"1890-01-01 00:00:00+00:53:28":     {time.Date(1889, 12, 31, 23, 6, 32, 0, time.UTC), time.Date(1889, 12, 31, 23, 6, 32, 0, time.UTC)},
		"2026-01-01 00:00:00.5":            {time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC)},
		"0001-12-31 23:00:00-02 BC":        {time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC)},
		"0001-01-01 00:00:00+01":           {},
		"4714-11-24 00:00:00.000000+00 BC": {},
	} {
		l := mustLayout(t, standardMapping, standardRelation())
		e := mustEvent(t, l, with(with(usualText(), colCreatedAt, text(in)), colDeliverAfter, text(in))...)
		if e.Defect != "" || !e.CreatedAt.Equal(want.created) || !e.DeliverAfter.Equal(want.deliver) {
			t.Errorf("%s: created %v, deliver %v, defect %q", in, e.CreatedAt, e.DeliverAfter, e.Defect)
		}
	}
}

// Law: NUL, bytes that are no UTF-8, and values of many megabytes pass as they
// are, and the layout keeps no memory for them.
func TestEventTakesAnyTextOfAnySize(t *testing.T) {
	t.Parallel()
	l := mustLayout(t, Mapping{ID: "id", Key: "k", Headers: "h", Payload: "p"}, relation("id:25", "k:1043", "h:25", "p:25"))
	huge := strings.Repeat("\x00\xffx\"", 4<<20)
	e := mustEvent(t, l, text("\x00\xff"), text("\x00\xff"), text(huge), text(huge))
	if e.RowKey != "[\"\\u0000\xff\"]" || e.MessageKey != "\x00\xff" || e.Headers != huge || string(e.Payload) != huge || e.Defect != "" {
		t.Errorf("row key %q, key %q, %d bytes of headers, %d of payload, defect %q",
			e.RowKey, e.MessageKey, len(e.Headers), len(e.Payload), e.Defect)
	}
	if cap(l.scratch) > maxScratchBytes {
		t.Errorf("the layout keeps %d bytes", cap(l.scratch))
	}
	e = mustEvent(t, l, text("a"), text("b"), text("c"), text("d"))
	if e.RowKey != `["a"]` || e.MessageKey != "b" || e.Headers != "c" || !bytes.Equal(e.Payload, []byte("d")) {
		t.Errorf("the row after the huge one: %+v", e)
	}
}

// Law: a row that is not of the layout's relation, or has another number of
// columns, is an error and never an event.
func TestEventRefusesForeignRows(t *testing.T) {
	t.Parallel()
	l := mustLayout(t, standardMapping, standardRelation())
	var e outbox.Event
	if err := l.Event(Insert{RelationOID: 2, Columns: usualText()}, &e); err == nil {
		t.Error("a row of another relation passed")
	}
	for _, row := range [][]Column{nil, usualText()[1:], append(usualText(), null())} {
		if err := l.Event(insert(row...), &e); err == nil {
			t.Errorf("a row of %d columns passed", len(row))
		}
	}
}

// Law: a status is taken as its number from any integer type, and one that no
// status could be is a defect, not another status.
func TestEventReadsStatus(t *testing.T) {
	t.Parallel()
	l := mustLayout(t, Mapping{ID: "id", Payload: "p", Status: "s"}, relation("id:25", "p:25", "s:20"))
	for value, want := range map[string]outbox.Status{"0": 0, "3": 3, "-1": -1, "32767": 32767} {
		if e := mustEvent(t, l, text("a"), null(), text(value)); e.Status != want || e.Defect != "" {
			t.Errorf("%s: status %d, defect %q", value, e.Status, e.Defect)
		}
	}
	for _, c := range []Column{text("32768"), binInt8(-32769), text("65536")} {
		if e := mustEvent(t, l, text("a"), null(), c); e.Status != outbox.StatusReady || !strings.Contains(e.Defect, "is no status") {
			t.Errorf("status %d, defect %q", e.Status, e.Defect)
		}
	}
}
