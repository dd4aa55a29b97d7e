package decode

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pglogrepl"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Law: on what real servers send, this parser and pglogrepl's read the same
// values.
func TestParseAgreesWithPglogrepl(t *testing.T) {
	t.Parallel()
	for _, name := range captureNames() {
		seen := map[Kind]int{}
		var m Message
		for i, frame := range loadCapture(t, name) {
			theirs, err := pglogrepl.Parse(frame)
			if err != nil {
				t.Fatal(err)
			}
			if err := Parse(frame, &m); err != nil {
				t.Fatal(err)
			}
			seen[m.Kind]++
			if diff := cmp.Diff(translate(t, theirs), named(&m), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("capture %s, message %d (-pglogrepl +ours):\n%s", name, i, diff)
			}
		}
		for _, k := range []Kind{KindBegin, KindCommit, KindRelation, KindType, KindInsert, KindUpdate, KindDelete, KindTruncate, KindLogical} {
			if seen[k] == 0 {
				t.Errorf("capture %s holds no %s", name, k)
			}
		}
	}
}

// translate turns their message into ours.
func translate(t *testing.T, message pglogrepl.Message) any {
	switch v := message.(type) {
	case *pglogrepl.BeginMessage:
		return Begin{FinalLSN: outbox.LSN(v.FinalLSN), CommitTime: v.CommitTime.UTC(), XID: v.Xid}
	case *pglogrepl.CommitMessage:
		return Commit{Flags: v.Flags, CommitLSN: outbox.LSN(v.CommitLSN), EndLSN: outbox.LSN(v.TransactionEndLSN), CommitTime: v.CommitTime.UTC()}
	case *pglogrepl.TypeMessage:
		return Type{OID: v.DataType, Namespace: v.Namespace, Name: v.Name}
	case *pglogrepl.RelationMessage:
		r := &Relation{OID: v.RelationID, Namespace: v.Namespace, Name: v.RelationName, ReplicaIdentity: v.ReplicaIdentity}
		for _, c := range v.Columns {
			r.Columns = append(r.Columns, RelationColumn{Key: c.Flags == 1, Name: c.Name, TypeOID: c.DataType, TypeModifier: c.TypeModifier})
		}
		return r
	case *pglogrepl.InsertMessage:
		return Insert{RelationOID: v.RelationID, Columns: translateTuple(v.Tuple)}
	case *pglogrepl.UpdateMessage:
		return Update{RelationOID: v.RelationID, OldKind: v.OldTupleType, Old: translateTuple(v.OldTuple), New: translateTuple(v.NewTuple)}
	case *pglogrepl.DeleteMessage:
		return Delete{RelationOID: v.RelationID, OldKind: v.OldTupleType, Old: translateTuple(v.OldTuple)}
	case *pglogrepl.TruncateMessage:
		return Truncate{Cascade: v.Option&pglogrepl.TruncateOptionCascade != 0,
			RestartIdentity: v.Option&pglogrepl.TruncateOptionRestartIdentity != 0, RelationOIDs: v.RelationIDs}
	case *pglogrepl.LogicalDecodingMessage:
		return LogicalMessage{Transactional: v.Transactional, LSN: outbox.LSN(v.LSN), Prefix: v.Prefix, Content: v.Content}
	default:
		t.Fatalf("%T is in no capture", message)
		return nil
	}
}

func translateTuple(tuple *pglogrepl.TupleData) []Column {
	if tuple == nil {
		return nil
	}
	var columns []Column
	for _, c := range tuple.Columns {
		columns = append(columns, Column{Format: c.DataType, Data: c.Data})
	}
	return columns
}
