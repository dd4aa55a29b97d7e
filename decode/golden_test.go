package decode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Law: what real servers send is read as testdata/transcripts says, line by
// line. "transcript" prints captures that must all read alike; "differs"
// prints where captures read differently from another one. Rewrite with
// go test ./decode -run TestTranscripts -rewrite, and explain the difference.
// Case F6 of docs/guarantees.md.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, filepath.Join("testdata", "transcripts"), func(t *testing.T, d *datadriven.TestData) string {
		var all [][]string
		for _, name := range captureArgs(d, "captures") {
			all = append(all, transcript(t, name))
		}
		for i := range all {
			if diff := cmp.Diff(all[0], all[i]); diff != "" {
				t.Errorf("capture %d of %s reads differently from the first:\n%s", i, d.Pos, diff)
			}
		}
		if d.Cmd == "transcript" {
			return strings.Join(all[0], "\n") + "\n"
		}
		return differences(transcript(t, captureArgs(d, "from")[0]), all[0])
	})
}

func captureArgs(d *datadriven.TestData, key string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

// differences lists the lines of got that are not want's.
func differences(want, got []string) string {
	var b strings.Builder
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) {
			return b.String() + "and the lengths differ\n"
		}
		if want[i] != got[i] {
			fmt.Fprintf(&b, "%s\n", got[i])
		}
	}
	return b.String()
}

// Law: the text and the binary format, and all majors, give equal events (but
// for types that are not built in, which only the text format can carry).
func TestEventsAreEqualAcrossMajorsAndFormats(t *testing.T) {
	t.Parallel()
	events := func(name string) (all []outbox.Event) {
		replay(t, name, func(m *Message, rel *Relation, e *outbox.Event, err error) {
			if m.Kind == KindInsert && rel.Name != "moods" && err == nil {
				all = append(all, *e)
			}
		})
		return all
	}
	want := events("15-text")
	if len(want) < 100 {
		t.Fatalf("only %d events in a capture", len(want))
	}
	for _, name := range captureNames() {
		if diff := cmp.Diff(want, events(name)); diff != "" {
			t.Errorf("capture %s (-15-text +%s):\n%s", name, name, diff)
		}
	}
}

// Law: the binary form of a type that is not built in is refused as a fault of
// the layout, in words that name the column and the way out.
func TestBinaryOfUnknownTypeIsRefused(t *testing.T) {
	t.Parallel()
	var refused []string
	replay(t, "15-binary", func(m *Message, rel *Relation, e *outbox.Event, err error) {
		if m.Kind == KindInsert && rel.Name == "moods" && err != nil {
			refused = append(refused, err.Error())
		}
	})
	// The second row has NULL in both columns, and goes through.
	if len(refused) != 2 || !strings.Contains(refused[0], `column "event_type"`) || !strings.Contains(refused[0], "text format") {
		t.Fatalf("refused %q", refused)
	}
}

// truth is what a trigger of the script wrote down beside a row, from the
// server's own casts. A null means that the event must have nothing there.
type truth struct {
	RowKey        *string `json:"row_key"`
	ID            *string `json:"id"`
	AggregateType *string `json:"aggregate_type"`
	AggregateID   *string `json:"aggregate_id"`
	Type          *string `json:"type"`
	Topic         *string `json:"topic"`
	Key           *string `json:"key"`
	ContentType   *string `json:"content_type"`
	Headers       *string `json:"headers"`
	Payload       *string `json:"payload"` // hexadecimal
	CreatedUS     *int64  `json:"created_us"`
	DeliverUS     *int64  `json:"deliver_us"`
	Status        *int16  `json:"status"`
}

// truthOf gives an event in the form of a truth that has the members present.
func truthOf(e *outbox.Event, present map[string]json.RawMessage) truth {
	text := func(member, value string) *string {
		if _, ok := present[member]; !ok || (value == "" && string(present[member]) == "null") {
			return nil
		}
		return &value
	}
	micros := func(member string, at time.Time) *int64 {
		if _, ok := present[member]; !ok || (at.IsZero() && string(present[member]) == "null") {
			return nil
		}
		us := at.UnixMicro()
		return &us
	}
	got := truth{
		RowKey: text("row_key", e.RowKey), ID: text("id", e.ID), AggregateType: text("aggregate_type", e.AggregateType),
		Type: text("type", e.Type), Topic: text("topic", e.Topic), ContentType: text("content_type", e.ContentType),
		Headers: text("headers", e.Headers), CreatedUS: micros("created_us", e.CreatedAt), DeliverUS: micros("deliver_us", e.DeliverAfter),
	}
	if _, ok := present["aggregate_id"]; ok && e.HasAggregate {
		got.AggregateID = &e.AggregateID
	}
	if _, ok := present["key"]; ok && e.HasMessageKey {
		got.Key = &e.MessageKey
	}
	if e.Payload != nil && present["payload"] != nil {
		digits := hex.EncodeToString(e.Payload)
		got.Payload = &digits
	}
	if status := present["status"]; status != nil && string(status) != "null" {
		n := int16(e.Status)
		got.Status = &n
	}
	return got
}

// Law: an event holds what the server itself says of the row, in every field
// and down to the escapes of the row key.
// Cases F11, F13 of docs/guarantees.md.
func TestEventsAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	for _, name := range captureNames() {
		var waiting []*outbox.Event // nil for a row that has no event
		checked := 0
		replay(t, name, func(m *Message, rel *Relation, e *outbox.Event, err error) {
			switch {
			case m.Kind == KindInsert && err != nil:
				waiting = append(waiting, nil)
			case m.Kind == KindInsert:
				waiting = append(waiting, e)
			case m.Kind == KindLogical && m.Logical.Prefix == "expect":
				if waiting[0] != nil {
					compareTruth(t, name, waiting[0], m.Logical.Content)
					checked++
				}
				waiting = waiting[1:]
			}
		})
		if len(waiting) != 0 || checked < 100 {
			t.Errorf("capture %s: %d rows were not compared, %d were", name, len(waiting), checked)
		}
	}
}

func compareTruth(t *testing.T, name string, e *outbox.Event, written []byte) {
	t.Helper()
	var want truth
	var present map[string]json.RawMessage
	if err := json.Unmarshal(written, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written, &present); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, truthOf(e, present)); diff != "" || e.Defect != "" {
		t.Errorf("capture %s, row %s, defect %q (-server +event):\n%s", name, e.RowKey, e.Defect, diff)
	}
}

// transcript prints each message of a capture in one line that does not
// depend on the format.
func transcript(t *testing.T, name string) []string {
	var lines []string
	replay(t, name, func(m *Message, rel *Relation, e *outbox.Event, err error) {
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("Insert %s error: %v", rel, err))
		case m.Kind == KindInsert:
			lines = append(lines, "Insert "+rel.String()+" "+describe(e))
		default:
			lines = append(lines, m.Kind.String()+" "+body(m))
		}
	})
	return lines
}

func body(m *Message) string {
	switch m.Kind {
	case KindBegin:
		return fmt.Sprintf("%v xid %d at %s", m.Begin.FinalLSN, m.Begin.XID, m.Begin.CommitTime.Format(time.RFC3339Nano))
	case KindCommit:
		return fmt.Sprintf("%v end %v at %s", m.Commit.CommitLSN, m.Commit.EndLSN, m.Commit.CommitTime.Format(time.RFC3339Nano))
	case KindRelation:
		return fmt.Sprintf("%d %s identity %c %+v", m.Relation.OID, m.Relation, m.Relation.ReplicaIdentity, m.Relation.Columns)
	case KindType:
		return fmt.Sprintf("%d %s.%s", m.Type.OID, m.Type.Namespace, m.Type.Name)
	case KindUpdate:
		return fmt.Sprintf("%d old %q %s new %s", m.Update.RelationOID, m.Update.OldKind, shape(m.Update.Old), shape(m.Update.New))
	case KindDelete:
		return fmt.Sprintf("%d old %q %s", m.Delete.RelationOID, m.Delete.OldKind, shape(m.Delete.Old))
	case KindTruncate:
		return fmt.Sprintf("%+v", m.Truncate)
	case KindLogical:
		return fmt.Sprintf("%v transactional %v %q %q", m.Logical.LSN, m.Logical.Transactional, m.Logical.Prefix, m.Logical.Content)
	default:
		return fmt.Sprintf("%+v", m)
	}
}

// shape shows which columns hold a value (v), nothing, or are unchanged.
func shape(columns []Column) string {
	var b strings.Builder
	for _, c := range columns {
		if c.Format == FormatText || c.Format == FormatBinary {
			b.WriteByte('v')
		} else {
			b.WriteByte(c.Format)
		}
	}
	return b.String()
}

// describe prints what an event holds and leaves out what it has not.
func describe(e *outbox.Event) string {
	parts := []string{e.RowKey}
	add := func(present bool, format string, args ...any) {
		if present {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(e.ID != "", "id=%q", e.ID)
	add(e.AggregateType != "", "aggregate_type=%q", e.AggregateType)
	add(e.HasAggregate, "aggregate_id=%q", e.AggregateID)
	add(e.Type != "", "type=%q", e.Type)
	add(e.Topic != "", "topic=%q", e.Topic)
	add(e.HasMessageKey, "key=%q", e.MessageKey)
	add(e.ContentType != "", "content_type=%q", e.ContentType)
	add(e.Headers != "", "headers=%q", e.Headers)
	add(e.Payload != nil && len(e.Payload) <= 300, "payload=%q", e.Payload)
	add(len(e.Payload) > 300, "payload=%d bytes, sha256 %x", len(e.Payload), sha256.Sum256(e.Payload))
	add(!e.CreatedAt.IsZero(), "created_at=%s", e.CreatedAt.Format(time.RFC3339Nano))
	add(!e.DeliverAfter.IsZero(), "deliver_after=%s", e.DeliverAfter.Format(time.RFC3339Nano))
	add(e.Status != outbox.StatusReady, "status=%d", e.Status)
	add(e.Defect != "", "defect=%q", e.Defect)
	return strings.Join(parts, " ")
}
