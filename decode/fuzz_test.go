package decode

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Law: no bytes make Parse panic or write; what it takes is what the test's
// own encoder makes of it, so nothing is skipped or made up.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"14-text", "18-binary"} {
		for _, frame := range loadCapture(f, name) {
			f.Add(frame)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m Message
		err := Parse(data, &m)
		if !bytes.Equal(before, data) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if m.Kind != 0 || err.Error() == "" {
				t.Fatalf("kind %v with error %v", m.Kind, err)
			}
			return
		}
		if again := encode(&m); !sameButUnusedBits(m.Kind, data, again) {
			t.Fatalf("%x was read as %x", data, again)
		}
	})
}

// sameButUnusedBits compares messages, but for the bits of flag bytes that the
// protocol does not use.
func sameButUnusedBits(k Kind, a, b []byte) bool {
	switch k {
	case KindTruncate:
		a = bytes.Clone(a)
		a[5] &= 3
	case KindLogical:
		a = bytes.Clone(a)
		a[1] &= 1
	case KindRelation:
		return len(a) == len(b) // flags stand before each column's name
	}
	return bytes.Equal(a, b)
}

// Law: no relation and no row make NewLayout or Event panic; an event aliases
// nothing, grows only as its input does, and has a row key that is JSON.
func FuzzEvent(f *testing.F) {
	for _, name := range []string{"15-text", "15-binary"} {
		relations := map[uint32][]byte{}
		var m Message
		for _, frame := range loadCapture(f, name) {
			if err := Parse(frame, &m); err != nil {
				f.Fatal(err)
			}
			if m.Kind == KindRelation {
				relations[m.Relation.OID] = frame
			}
			if m.Kind == KindInsert {
				f.Add(relations[m.Insert.RelationOID], frame)
			}
		}
	}
	f.Fuzz(func(t *testing.T, relation, row []byte) {
		row = bytes.Clone(row) // it is scribbled over below
		var m Message
		if Parse(relation, &m) != nil || m.Kind != KindRelation || Parse(row, &m) != nil || m.Kind != KindInsert {
			return
		}
		mapping, ok := captureMappings[m.Relation.Name]
		if !ok {
			mapping = standardMapping
		}
		l, err := NewLayout(mapping, m.Relation)
		if err != nil {
			return
		}
		var e outbox.Event
		if l.Event(m.Insert, &e) == nil {
			checkFuzzedEvent(t, l, &m, e, row)
		}
	})
}

// maxNumericBytes is the longest number that a few bytes can stand for.
const maxNumericBytes = 4*(1<<15) + 1 + numericMaxScale + 8

func checkFuzzedEvent(t *testing.T, l *Layout, m *Message, e outbox.Event, row []byte) {
	if utf8.Valid(row) && !json.Valid([]byte(e.RowKey)) {
		t.Fatalf("row key %q", e.RowKey)
	}
	fields := len(l.text) + len(l.key) + 1
	if e.Bytes() > fields*(6*len(row)+maxNumericBytes) {
		t.Fatalf("%d bytes from a row of %d", e.Bytes(), len(row))
	}
	want := cloneEvent(e)
	clear(row)
	var other outbox.Event
	_ = l.Event(m.Insert, &other)
	if diff := cmp.Diff(want, e); diff != "" {
		t.Fatal(diff)
	}
}
