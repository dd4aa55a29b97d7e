package decode

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Law: what is encoded is parsed back, whatever the message was used for
// before. The encoder is the test's own.
func TestParseReadsBackWhatWasEncoded(t *testing.T) {
	t.Parallel()
	var got Message // used for all rounds, as the relay uses it
	rapid.Check(t, func(t *rapid.T) {
		want := drawMessage(t)
		if err := Parse(encode(want), &got); err != nil {
			t.Fatalf("parsing %+v: %v", want, err)
		}
		if diff := cmp.Diff(named(want), named(&got), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-encoded +parsed):\n%s", diff)
		}
	})
}

// Law: a message that is cut short anywhere, or followed by anything, is an
// error: no part of it is believed.
func TestParseRefusesCutAndTrailingBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := encode(drawMessage(t))
		var m Message
		for n := range data {
			if err := Parse(data[:n], &m); err == nil || m.Kind != 0 {
				t.Fatalf("%x was parsed as %v, cut from %x", data[:n], m.Kind, data)
			}
		}
		var format *FormatError
		if err := Parse(append(data, 0), &m); !errors.As(err, &format) || format.Offset != len(data) {
			t.Fatalf("a byte behind %x: %v", data, err)
		}
	})
}

// named keeps of a message what its kind says it holds.
func named(m *Message) any {
	switch m.Kind {
	case KindBegin:
		return m.Begin
	case KindCommit:
		return m.Commit
	case KindOrigin:
		return m.Origin
	case KindRelation:
		return m.Relation
	case KindType:
		return m.Type
	case KindInsert:
		return m.Insert
	case KindUpdate:
		return m.Update
	case KindDelete:
		return m.Delete
	case KindTruncate:
		return m.Truncate
	case KindLogical:
		return m.Logical
	default:
		return m.Kind
	}
}

func drawMessage(t *rapid.T) *Message {
	name := rapid.StringMatching(`[^\x00]{0,12}`)
	lsn := rapid.Custom(func(t *rapid.T) outbox.LSN { return outbox.LSN(rapid.Uint64().Draw(t, "lsn")) })
	oid := rapid.Uint32()
	m := &Message{Kind: rapid.SampledFrom([]Kind{KindBegin, KindCommit, KindOrigin, KindRelation, KindType, KindInsert,
		KindUpdate, KindDelete, KindTruncate, KindLogical}).Draw(t, "kind")}
	switch m.Kind {
	case KindBegin:
		m.Begin = Begin{FinalLSN: lsn.Draw(t, "final"), CommitTime: drawTime(t), XID: oid.Draw(t, "xid")}
	case KindCommit:
		m.Commit = Commit{CommitLSN: lsn.Draw(t, "commit"), EndLSN: lsn.Draw(t, "end"), CommitTime: drawTime(t)}
	case KindOrigin:
		m.Origin = Origin{CommitLSN: lsn.Draw(t, "commit"), Name: name.Draw(t, "name")}
	case KindRelation:
		m.Relation = drawRelation(t, name)
	case KindType:
		m.Type = Type{OID: oid.Draw(t, "oid"), Namespace: name.Draw(t, "namespace"), Name: name.Draw(t, "name")}
	case KindInsert:
		m.Insert = Insert{RelationOID: oid.Draw(t, "oid"), Columns: drawColumns(t)}
	case KindUpdate:
		m.Update = Update{RelationOID: oid.Draw(t, "oid"), New: drawColumns(t)}
		if m.Update.OldKind = rapid.SampledFrom([]byte{0, 'K', 'O'}).Draw(t, "old kind"); m.Update.OldKind != 0 {
			m.Update.Old = drawColumns(t)
		}
	case KindDelete:
		old := rapid.SampledFrom([]byte{'K', 'O'}).Draw(t, "old kind")
		m.Delete = Delete{RelationOID: oid.Draw(t, "oid"), OldKind: old, Old: drawColumns(t)}
	case KindTruncate:
		m.Truncate = Truncate{Cascade: rapid.Bool().Draw(t, "cascade"), RestartIdentity: rapid.Bool().Draw(t, "restart"),
			RelationOIDs: rapid.SliceOfN(oid, 0, 5).Draw(t, "oids")}
	case KindLogical:
		m.Logical = LogicalMessage{Transactional: rapid.Bool().Draw(t, "transactional"), LSN: lsn.Draw(t, "lsn"),
			Prefix: name.Draw(t, "prefix"), Content: rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "content")}
	}
	return m
}

// drawTime draws from the whole range of the server's timestamps.
func drawTime(t *rapid.T) time.Time {
	return timeOf(rapid.Int64Range(minMicros, endMicros-1).Draw(t, "micros"))
}

func drawRelation(t *rapid.T, name *rapid.Generator[string]) *Relation {
	column := rapid.Custom(func(t *rapid.T) RelationColumn {
		return RelationColumn{Key: rapid.Bool().Draw(t, "key"), Name: name.Draw(t, "column"),
			TypeOID: rapid.Uint32().Draw(t, "type"), TypeModifier: rapid.Int32().Draw(t, "modifier")}
	})
	return &Relation{OID: rapid.Uint32().Draw(t, "oid"), Namespace: name.Draw(t, "namespace"), Name: name.Draw(t, "name"),
		ReplicaIdentity: rapid.SampledFrom([]byte("dnfi")).Draw(t, "identity"), Columns: rapid.SliceOfN(column, 0, 20).Draw(t, "columns")}
}

func drawColumns(t *rapid.T) []Column {
	column := rapid.Custom(func(t *rapid.T) Column {
		c := Column{Format: rapid.SampledFrom([]byte("ntbu")).Draw(t, "format")}
		if c.Format == FormatText || c.Format == FormatBinary {
			c.Data = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data")
		}
		return c
	})
	return rapid.SliceOfN(column, 0, 20).Draw(t, "columns")
}

// Law: streamed and prepared transactions, and kinds that nobody knows, are
// refused with the byte in the error.
// Cases F6, F8 of docs/guarantees.md.
func TestParseRefusesOtherKinds(t *testing.T) {
	t.Parallel()
	for k := range 256 {
		var m Message
		err := Parse([]byte{byte(k), 0, 0, 0, 0}, &m)
		var kind *KindError
		refused := errors.As(err, &kind)
		known := isKnown(Kind(k))
		if refused == known || (refused && kind.Kind != Kind(k)) {
			t.Errorf("kind %q: known %v, error %v", byte(k), known, err)
		}
	}
	for k, words := range map[Kind]string{
		'S': `refusing a Stream Start message ('S'): streamed and prepared transactions are never asked for; the replication slot or the start options are not the relay's own`,
		'P': `refusing a Prepare message ('P'): streamed and prepared transactions are never asked for; the replication slot or the start options are not the relay's own`,
		'z': `refusing a message of unknown kind 'z' (0x7A): this server speaks a newer protocol than this program knows`,
	} {
		if err := Parse([]byte{byte(k)}, new(Message)); err == nil || err.Error() != words {
			t.Errorf("kind %q: %v", k, err)
		}
	}
}

func isKnown(k Kind) bool {
	switch k {
	case 'B', 'C', 'O', 'R', 'Y', 'I', 'U', 'D', 'T', 'M':
		return true
	}
	return false
}

// Law: numbers that a message makes up are compared with its length before
// they are believed.
func TestParseRefusesMadeUpNumbers(t *testing.T) {
	t.Parallel()
	row := func(b ...byte) []byte { return append([]byte{'I', 0, 0, 0, 1, 'N'}, b...) }
	for name, data := range map[string][]byte{
		"empty":                   {},
		"columns negative":        row(0xFF, 0xFF),
		"columns beyond the end":  row(0x7F, 0xFF, 'n'),
		"length negative":         row(0, 1, 't', 0xFF, 0xFF, 0xFF, 0xFF),
		"length beyond the end":   row(0, 1, 't', 0x7F, 0xFF, 0xFF, 0xFF, 'x'),
		"length one too many":     row(0, 1, 't', 0, 0, 0, 2, 'x'),
		"format unknown":          row(0, 1, 'x'),
		"old row in an insert":    {'I', 0, 0, 0, 1, 'O', 0, 0},
		"new row in a delete":     {'D', 0, 0, 0, 1, 'N', 0, 0},
		"update without new row":  {'U', 0, 0, 0, 1, 'K', 0, 0, 'K', 0, 0},
		"relations beyond":        {'T', 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 1},
		"relations negative":      {'T', 0x80, 0, 0, 0, 0},
		"content beyond":          {'M', 0, 0, 0, 0, 0, 0, 0, 0, 0, 'p', 0, 0x7F, 0xFF, 0xFF, 0xFF},
		"name without an end":     {'Y', 0, 0, 0, 1, 'a', 'b'},
		"relation's columns":      {'R', 0, 0, 0, 1, 0, 'r', 0, 'd', 0x7F, 0xFF, 0, 0},
		"commit flags":            append([]byte{'C', 1}, make([]byte, 24)...),
		"relation without a name": {'R', 0, 0, 0, 1, 'n', 's'},
	} {
		var format *FormatError
		var m Message
		if err := Parse(data, &m); !errors.As(err, &format) || m.Kind != 0 {
			t.Errorf("%s: error %v, kind %v", name, err, m.Kind)
		}
	}
}

// Law: no count costs memory that the message does not back: 32,767 columns
// are announced, and none is allocated.
func TestParseAllocatesNothingForMadeUpNumbers(t *testing.T) {
	data := []byte{'R', 0, 0, 0, 1, 0, 'r', 0, 'd', 0x7F, 0xFF, 0, 0}
	var m Message
	bytes := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_ = Parse(data, &m)
		}
	}).AllocedBytesPerOp()
	if bytes > 1000 {
		t.Fatalf("%d bytes for a refused relation", bytes)
	}
}

// Law: every number of microseconds is some time, also those that no server
// sends.
func TestTimeOfTakesEveryNumber(t *testing.T) {
	t.Parallel()
	for _, micros := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		at := timeOf(micros)
		if got := (at.Unix()-postgresEpoch)*1_000_000 + int64(at.Nanosecond())/1000; got != micros {
			t.Errorf("%d became %v, which is %d", micros, at, got)
		}
	}
}

// Law: Begin, Commit and Insert cost no allocation once the message has grown.
func TestParseAllocatesNothing(t *testing.T) {
	begin := encode(&Message{Kind: KindBegin, Begin: Begin{CommitTime: timeOf(0)}})
	commit := encode(&Message{Kind: KindCommit, Commit: Commit{CommitTime: timeOf(0)}})
	row := encode(&Message{Kind: KindInsert, Insert: insert(usualText()...)})
	var m Message
	for name, data := range map[string][]byte{"begin": begin, "commit": commit, "insert": row} {
		if n := testing.AllocsPerRun(100, func() { _ = Parse(data, &m) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
