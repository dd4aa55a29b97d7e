package decode

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// relation makes a relation with OID 1 from columns spelled name:OID.
func relation(columns ...string) *Relation {
	r := &Relation{OID: 1, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd'}
	for _, c := range columns {
		name, oid, _ := strings.Cut(c, ":")
		n, err := strconv.ParseUint(oid, 10, 32)
		if err != nil {
			panic(err)
		}
		r.Columns = append(r.Columns, RelationColumn{Name: name, TypeOID: uint32(n), TypeModifier: -1})
	}
	return r
}

func mustLayout(t testing.TB, m Mapping, rel *Relation) *Layout {
	t.Helper()
	l, err := NewLayout(m, rel)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mustEvent reads a row that must not be an error.
func mustEvent(t testing.TB, l *Layout, columns ...Column) outbox.Event {
	t.Helper()
	var e outbox.Event
	if err := l.Event(Insert{RelationOID: l.oid, Columns: columns}, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// with gives a row with one column changed.
func with(row []Column, at int, c Column) []Column {
	row = slices.Clone(row)
	row[at] = c
	return row
}

// cloneEvent copies an event so deeply that nothing is shared.
func cloneEvent(e outbox.Event) outbox.Event {
	for _, s := range []*string{&e.RowKey, &e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Topic,
		&e.MessageKey, &e.ContentType, &e.Headers, &e.Defect} {
		*s = strings.Clone(*s)
	}
	e.Payload = slices.Clone(e.Payload)
	return e
}

var majors = []int{14, 15, 16, 17, 18}

// captureNames lists all captures, for example 15-text.
func captureNames() []string {
	var names []string
	for _, major := range majors {
		names = append(names, fmt.Sprintf("%d-text", major), fmt.Sprintf("%d-binary", major))
	}
	return names
}

// loadCapture reads the messages of a capture.
func loadCapture(t testing.TB, name string) [][]byte {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "capture-"+name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	var frames [][]byte
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		frame, err := hex.DecodeString(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(frames) == 0 {
		t.Fatalf("capture %s is empty", name)
	}
	return frames
}

// captureMappings says how the tables of the captures' script are mapped.
var captureMappings = map[string]Mapping{
	"outbox": standardMapping,
	"kinds": {
		ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Topic: "topic", Key: "message_key", Payload: "payload", Headers: "headers", CreatedAt: "created_at", Status: "status",
	},
	"numbers":  {RowKey: []string{"id", "small", "flag"}, AggregateID: "id", Payload: "payload"},
	"times":    {RowKey: []string{"at", "local", "day"}, CreatedAt: "at", DeliverAfter: "deliver_after", Payload: "payload"},
	"words":    {RowKey: []string{"word", "second"}, Key: "word", Payload: "payload"},
	"moods":    {ID: "id", EventType: "event_type", Topic: "topic", Payload: "payload"},
	"parted":   {ID: "id", RowKey: []string{"id", "created_at"}, CreatedAt: "created_at", Payload: "payload"},
	"changing": {ID: "id", Payload: "payload"},
}

// replay decodes a capture as the relay would and shows each message. For an
// insert into a mapped table it shows the event too, or why there is none.
func replay(t testing.TB, name string, show func(m *Message, rel *Relation, e *outbox.Event, err error)) {
	t.Helper()
	relations := map[uint32]*Relation{}
	layouts := map[uint32]*Layout{}
	layoutErrors := map[uint32]error{}
	var m Message
	for i, frame := range loadCapture(t, name) {
		if err := Parse(frame, &m); err != nil {
			t.Fatalf("capture %s, message %d: %v", name, i, err)
		}
		if m.Kind == KindRelation {
			relations[m.Relation.OID] = m.Relation
			layouts[m.Relation.OID], layoutErrors[m.Relation.OID] = NewLayout(captureMappings[m.Relation.Name], m.Relation)
		}
		if m.Kind != KindInsert {
			show(&m, nil, nil, nil)
			continue
		}
		oid := m.Insert.RelationOID
		if layouts[oid] == nil {
			show(&m, relations[oid], nil, layoutErrors[oid])
			continue
		}
		e := new(outbox.Event)
		err := layouts[oid].Event(m.Insert, e)
		show(&m, relations[oid], e, err)
	}
}
