package sink

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// full is an event with every field of the wire contract.
func full() *outbox.Event {
	return &outbox.Event{
		Position:   outbox.Position{Timeline: 1, Commit: 0x16B3748, Index: 3},
		CommitTime: time.Date(2025, 3, 1, 12, 0, 1, 0, time.UTC),
		RowKey:     `["42"]`, ID: "0192f3a0-1111-7000-8000-000000000001",
		AggregateType: "order", AggregateID: "o-1", HasAggregate: true, Type: "order.created",
		Topic: "orders", ContentType: "application/json", Payload: []byte(`{"a":1}`),
		CreatedAt: time.Date(2025, 3, 1, 12, 0, 0, 123_456_789, time.UTC),
	}
}

// render shows a record byte for byte.
func render(r *outbox.Record) string {
	var b strings.Builder
	show := func(v []byte) string {
		if v == nil {
			return "null"
		}
		return fmt.Sprintf("%d %q", len(v), v)
	}
	fmt.Fprintf(&b, "topic %s\ntimestamp %d\nkey %s\nvalue %s\n", r.Topic, r.Timestamp.UnixMilli(), show(r.Key), show(r.Value))
	if r.Headers == nil {
		b.WriteString("no headers\n")
	}
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "header %q = %s\n", h.Key, show(h.Value))
	}
	return b.String()
}

// The bytes of the wire contract do not change: names, order, and what is
// absent, empty or null. Run with UPDATE=1 to write the file anew, and explain
// the difference in the commit.
// Case F14 of docs/guarantees.md.
func TestWireContractIsPinned(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, c := range []struct {
		name   string
		change func(*outbox.Event)
	}{
		{"every field", func(*outbox.Event) {}},
		{"message key wins", func(e *outbox.Event) { e.MessageKey, e.HasMessageKey = "k", true }},
		{"empty message key", func(e *outbox.Event) { e.HasMessageKey = true }},
		{"no key", func(e *outbox.Event) { e.HasAggregate = false }},
		{"null payload", func(e *outbox.Event) { e.Payload = nil }},
		{"empty payload", func(e *outbox.Event) { e.Payload = []byte{} }},
		{"no id, type and content type", func(e *outbox.Event) { e.ID, e.Type, e.ContentType = "", "", "" }},
		{"never in the log", func(e *outbox.Event) { e.Position = outbox.Position{} }},
		{"no created_at", func(e *outbox.Event) { e.CreatedAt = time.Time{} }},
		{"created_at before 1970", func(e *outbox.Event) { e.CreatedAt = time.Date(-43, 3, 15, 0, 0, 0, 0, time.UTC) }},
		{"created_at beyond 2262", func(e *outbox.Event) { e.CreatedAt = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }},
		{"empty headers", func(e *outbox.Event) { e.Headers = "{}" }},
		{"headers of every kind", func(e *outbox.Event) {
			e.Headers = `{"traceparent": "00-4bf92f-00f067-01", "n": null, "empty": "", "bytes": {"base64": "AP8="}, "no bytes": {"base64": ""}, ` +
				`"num": 12345678901234567890, "dec": 1.10, "huge": 1e400, "t": true, "list": [1, 2.50, {"x" : "y z"}], "two": {"base64": "AA==", "b": 1}, ` +
				`"esc": "a\"\u00e9\ud83d\ude00\n", "ünï": "ü", "content-type": "own"}`
		}},
		{"a bad value", func(e *outbox.Event) { e.Defect = "created_at is not a time" }},
		{"bad headers", func(e *outbox.Event) { e.Headers = `{"outbox-id": "x"}` }},
	} {
		e := full()
		c.change(e)
		fmt.Fprintf(&out, "== %s\n%s\n", c.name, render(newRecord(e, e.Topic)))
	}
	path := filepath.Join("testdata", "contract.txt")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the wire contract changed (-want +got):\n%s", diff)
	}
}

// Headers that cannot be carried are refused with a reason that names the
// header and never its value.
func TestBadHeadersAreRefused(t *testing.T) {
	t.Parallel()
	many := "{" + strings.TrimSuffix(strings.Repeat(`"a":"SECRET",`, maxRowHeaders+1), ",") + "}"
	for _, c := range []struct{ text, want string }{
		{`[]`, "not one JSON object"},
		{`"SECRET"`, "not one JSON object"},
		{`{`, "not one JSON object"},
		{`{"a"}`, "not one JSON object"},
		{`{"a":}`, "not one JSON object"},
		{`{"a":1,}`, "not one JSON object"},
		{`{"a":01}`, "not one JSON object"},
		{`{"a":tru}`, "not one JSON object"},
		{`{"a":[1,}`, "not one JSON object"},
		{`{"a":{"b":"SECRET"}`, "not one JSON object"},
		{`{"a":"SECRET"} x`, "not one JSON object"},
		{`{"a":"\x"}`, "not one JSON object"},
		{`{"a":"\u12"}`, "not one JSON object"},
		{"{\"a\":\"\n\"}", "not one JSON object"},
		{`{"a":"SECRET\ud800"}`, "surrogate"},
		{`{"a":"\udc00\ud800"}`, "surrogate"},
		{"{\"a\":\"SECRET\xff\"}", "not UTF-8"},
		{`{"outbox-id":"SECRET"}`, "outbox-id"},
		{`{"outbox-":"SECRET"}`, "reserved"},
		{`{"out\u0062ox-x":"SECRET"}`, "reserved"},
		{`{"a\nb":"SECRET"}`, "control character"},
		{`{"a\u0000":"SECRET"}`, "control character"},
		{`{"a\u0085b":"SECRET"}`, "control character"},
		{`{"a":{"base64":"SECRET!"}}`, "base64"},
		{many, "more than 128 members"},
		{`{"a":"` + strings.Repeat("S", maxRowHeaderBytes) + `"}`, "more than 65536 bytes"},
	} {
		e := full()
		e.Headers = c.text
		var a arena
		var r kgo.Record
		a.reset()
		refusal := a.encode(e, &r)
		if refusal == nil || refusal.Class != outbox.ClassEncode || !strings.Contains(refusal.Detail, c.want) {
			t.Errorf("%.60q: refusal %+v, want %q", c.text, refusal, c.want)
			continue
		}
		if strings.Contains(refusal.Detail, "SECRET") || len(refusal.Detail) > maxDetail {
			t.Errorf("%.60q: the reason shows a value or is long: %q", c.text, refusal.Detail)
		}
		if len(a.headers) != 0 || r.Headers != nil {
			t.Errorf("%.60q: headers were left behind", c.text)
		}
	}
}

// Any text is either refused or carried; names never begin with ours, and
// nothing panics or loops.
func FuzzRowHeaders(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `{"a":"b"}`, `{"a":{"base64":"AA=="}}`, `{"a":[1,"]"],"b":-1.5e-3}`, `{"a":"\ud83d\ude00"}`, `{"a":"\`, `{"a":{"b":"\"}"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a arena
		a.reset()
		if err := a.rowHeaders(text); err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("the reason is not text: %q", err)
			}
			return
		}
		for _, h := range a.headers {
			if strings.HasPrefix(h.Key, reservedPrefix) || !utf8.ValidString(h.Key) {
				t.Fatalf("header %q passed", h.Key)
			}
		}
	})
}

// Strings, numbers and nesting arrive exactly as written, in order, whatever
// they hold.
func TestRowHeadersArriveAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type member struct{ name, value string }
		var want []member
		var text strings.Builder
		text.WriteString("{ ")
		for i := range rapid.IntRange(0, 12).Draw(t, "members") {
			if i > 0 {
				text.WriteString(" , ")
			}
			name := rapid.StringMatching(`[a-z][a-z0-9]{0,8}`).Draw(t, "name")
			if rapid.Bool().Draw(t, "number") {
				digits := rapid.StringMatching(`-?[1-9][0-9]{0,40}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?`).Draw(t, "digits")
				fmt.Fprintf(&text, "%q : %s", name, digits)
				want = append(want, member{name, digits})
				continue
			}
			value := rapid.String().Draw(t, "value")
			fmt.Fprintf(&text, "%q:\t%s", name, quote(value))
			want = append(want, member{name, value})
		}
		text.WriteString("}\n")
		var a arena
		a.reset()
		if err := a.rowHeaders(text.String()); err != nil {
			t.Fatalf("%s: %v", text.String(), err)
		}
		if len(a.headers) != len(want) {
			t.Fatalf("%d headers, want %d", len(a.headers), len(want))
		}
		for i, h := range a.headers {
			if h.Key != want[i].name || string(h.Value) != want[i].value || h.Value == nil {
				t.Fatalf("header %d is %q=%q, want %+v", i, h.Key, h.Value, want[i])
			}
		}
	})
}

// quote writes a JSON string with an escape for everything outside ASCII.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04X\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		case r > 0x7e && r%2 == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Encoding a row without headers of its own costs no allocation.
func TestEncodingAllocatesNothing(t *testing.T) {
	e := full()
	e.Headers = "{}"
	var a arena
	var r kgo.Record
	a.reset()
	if n := testing.AllocsPerRun(100, func() {
		a.reset()
		if refusal := a.encode(e, &r); refusal != nil {
			t.Fatal(refusal.Detail)
		}
	}); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
}
