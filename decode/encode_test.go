package decode

import (
	"encoding/binary"
	"time"
)

// encode builds the bytes of a message, as the server would, from the
// documentation alone: it shares nothing with the parser.
func encode(m *Message) []byte {
	w := writer{byte(m.Kind)}
	switch m.Kind {
	case KindBegin:
		w.u64(uint64(m.Begin.FinalLSN)).time(m.Begin.CommitTime).u32(m.Begin.XID)
	case KindCommit:
		w.u8(m.Commit.Flags).u64(uint64(m.Commit.CommitLSN)).u64(uint64(m.Commit.EndLSN)).time(m.Commit.CommitTime)
	case KindOrigin:
		w.u64(uint64(m.Origin.CommitLSN)).name(m.Origin.Name)
	case KindType:
		w.u32(m.Type.OID).name(m.Type.Namespace).name(m.Type.Name)
	case KindRelation:
		w.relation(m.Relation)
	case KindInsert:
		w.u32(m.Insert.RelationOID).u8('N').tuple(m.Insert.Columns)
	case KindUpdate:
		w.u32(m.Update.RelationOID)
		if m.Update.OldKind != 0 {
			w.u8(m.Update.OldKind).tuple(m.Update.Old)
		}
		w.u8('N').tuple(m.Update.New)
	case KindDelete:
		w.u32(m.Delete.RelationOID).u8(m.Delete.OldKind).tuple(m.Delete.Old)
	case KindTruncate:
		w.u32(uint32(len(m.Truncate.RelationOIDs)))
		w.u8(bit(m.Truncate.Cascade, 1) | bit(m.Truncate.RestartIdentity, 2))
		for _, oid := range m.Truncate.RelationOIDs {
			w.u32(oid)
		}
	case KindLogical:
		w.u8(bit(m.Logical.Transactional, 1)).u64(uint64(m.Logical.LSN)).name(m.Logical.Prefix)
		w.u32(uint32(len(m.Logical.Content))).raw(m.Logical.Content)
	}
	return w
}

type writer []byte

func (w *writer) raw(b []byte) *writer  { *w = append(*w, b...); return w }
func (w *writer) u8(v byte) *writer     { *w = append(*w, v); return w }
func (w *writer) u16(v uint16) *writer  { *w = binary.BigEndian.AppendUint16(*w, v); return w }
func (w *writer) u32(v uint32) *writer  { *w = binary.BigEndian.AppendUint32(*w, v); return w }
func (w *writer) u64(v uint64) *writer  { *w = binary.BigEndian.AppendUint64(*w, v); return w }
func (w *writer) name(s string) *writer { *w = append(append(*w, s...), 0); return w }

func (w *writer) time(t time.Time) *writer {
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return w.u64(uint64(t.UnixMicro() - epoch.UnixMicro()))
}

func (w *writer) relation(r *Relation) *writer {
	w.u32(r.OID).name(r.Namespace).name(r.Name).u8(r.ReplicaIdentity).u16(uint16(len(r.Columns)))
	for _, c := range r.Columns {
		w.u8(bit(c.Key, 1)).name(c.Name).u32(c.TypeOID).u32(uint32(c.TypeModifier))
	}
	return w
}

func (w *writer) tuple(columns []Column) *writer {
	w.u16(uint16(len(columns)))
	for _, c := range columns {
		w.u8(c.Format)
		if c.Format == FormatText || c.Format == FormatBinary {
			w.u32(uint32(len(c.Data))).raw(c.Data)
		}
	}
	return w
}

func bit(set bool, value byte) byte {
	if set {
		return value
	}
	return 0
}

// The columns of a test row.
func text(s string) Column       { return Column{Format: FormatText, Data: []byte(s)} }
func bin(b ...byte) Column       { return Column{Format: FormatBinary, Data: b} }
func null() Column               { return Column{Format: FormatNull} }
func unchanged() Column          { return Column{Format: FormatUnchanged} }
func binInt8(v int64) Column     { return bin(binary.BigEndian.AppendUint64(nil, uint64(v))...) }
func binInt2(v int16) Column     { return bin(binary.BigEndian.AppendUint16(nil, uint16(v))...) }
func binString(s string) Column  { return bin([]byte(s)...) }
func insert(cs ...Column) Insert { return Insert{RelationOID: 1, Columns: cs} }

// standardMapping names the columns of the documented outbox table.
var standardMapping = Mapping{
	ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
	Topic: "topic", Key: "message_key", Payload: "payload", ContentType: "content_type", Headers: "headers",
	DeliverAfter: "deliver_after", CreatedAt: "created_at", Status: "status",
}

// standardRelation is the documented outbox table with its 13 mapped columns.
func standardRelation() *Relation {
	return relation("id:20", "event_id:2950", "aggregate_type:25", "aggregate_id:25", "event_type:25", "topic:25",
		"message_key:25", "payload:17", "content_type:25", "headers:3802", "deliver_after:1184", "created_at:1184", "status:21")
}
