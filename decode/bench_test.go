package decode

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// The usual row: 13 columns of the documented table, 515 bytes of payload, 92
// of headers.
var (
	usualPayload = strings.Repeat(`{"order":42,"total":"17.50","items":[{"sku":"A-1","n":2}]} `, 9)[:515]
	usualHeaders = `{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": "nord"}`
)

func usualText() []Column {
	return []Column{text("1234567"), text("018f2f5e-7b1a-7c3d-9e4f-0a1b2c3d4e5f"), text("order"), text("order-1234567"),
		text("order.placed"), null(), null(), text(`\x` + hex.EncodeToString([]byte(usualPayload))), text("application/json"),
		text(usualHeaders), null(), text("2026-01-01 00:00:00.123456+00"), text("0")}
}

func usualBinary() []Column {
	created := time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC).UnixMicro() - postgresEpoch*1_000_000
	return []Column{binInt8(1234567), bin(0x01, 0x8f, 0x2f, 0x5e, 0x7b, 0x1a, 0x7c, 0x3d, 0x9e, 0x4f, 0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f),
		binString("order"), binString("order-1234567"), binString("order.placed"), null(), null(), binString(usualPayload),
		binString("application/json"), binString("\x01" + usualHeaders), null(), binInt8(created), binInt2(0)}
}

// usualPlain is the usual row with its payload as text.
func usualPlain() ([]Column, *Relation) {
	rel := standardRelation()
	rel.Columns[7].TypeOID = 25
	return with(usualText(), 7, text(usualPayload)), rel
}

func BenchmarkParseInsert(b *testing.B) {
	data := encode(&Message{Kind: KindInsert, Insert: insert(usualBinary()...)})
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var m Message
	for b.Loop() {
		if err := Parse(data, &m); err != nil {
			b.Fatal(err)
		}
	}
}

// benchEvent parses and maps, as the relay does for each row.
func benchEvent(b *testing.B, rel *Relation, columns []Column) {
	l := mustLayout(b, standardMapping, rel)
	data := encode(&Message{Kind: KindInsert, Insert: insert(columns...)})
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var m Message
	for b.Loop() {
		if err := Parse(data, &m); err != nil {
			b.Fatal(err)
		}
		e := new(outbox.Event) // the relay keeps each
		if err := l.Event(m.Insert, e); err != nil || e.Defect != "" {
			b.Fatal(err, e.Defect)
		}
	}
}

// BenchmarkEventText has the payload as text, as the 770 bytes a row of the
// documented measurements are.
func BenchmarkEventText(b *testing.B) {
	columns, rel := usualPlain()
	benchEvent(b, rel, columns)
}

// BenchmarkEventTextBytea has the payload as 1,030 hexadecimal digits.
func BenchmarkEventTextBytea(b *testing.B) { benchEvent(b, standardRelation(), usualText()) }

func BenchmarkEventBinary(b *testing.B) { benchEvent(b, standardRelation(), usualBinary()) }
