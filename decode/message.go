package decode

import (
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Kind is the first byte of a pgoutput message.
type Kind byte

// The kinds of protocol version 1. Zero is no message.
const (
	KindBegin    Kind = 'B'
	KindCommit   Kind = 'C'
	KindOrigin   Kind = 'O'
	KindRelation Kind = 'R'
	KindType     Kind = 'Y'
	KindInsert   Kind = 'I'
	KindUpdate   Kind = 'U'
	KindDelete   Kind = 'D'
	KindTruncate Kind = 'T'
	KindLogical  Kind = 'M'
)

// The kinds of later protocol versions, which Parse refuses by name.
const (
	kindStreamStart    Kind = 'S'
	kindStreamStop     Kind = 'E'
	kindStreamCommit   Kind = 'c'
	kindStreamAbort    Kind = 'A'
	kindBeginPrepare   Kind = 'b'
	kindPrepare        Kind = 'P'
	kindCommitPrepared Kind = 'K'
	kindRollback       Kind = 'r'
	kindStreamPrepare  Kind = 'p'
)

// String names the kind as the PostgreSQL documentation does.
func (k Kind) String() string {
	if name := kindName(k); name != "" {
		return name
	}
	return fmt.Sprintf("unknown kind 0x%02X", byte(k))
}

func kindName(k Kind) string {
	switch k {
	case KindBegin:
		return "Begin"
	case KindCommit:
		return "Commit"
	case KindOrigin:
		return "Origin"
	case KindRelation:
		return "Relation"
	case KindType:
		return "Type"
	case KindInsert:
		return "Insert"
	case KindUpdate:
		return "Update"
	case KindDelete:
		return "Delete"
	case KindTruncate:
		return "Truncate"
	case KindLogical:
		return "Message"
	default:
		return refusedKindName(k)
	}
}

// refusedKindName is "" for a kind that no version up to 4 has.
func refusedKindName(k Kind) string {
	switch k {
	case kindStreamStart:
		return "Stream Start"
	case kindStreamStop:
		return "Stream Stop"
	case kindStreamCommit:
		return "Stream Commit"
	case kindStreamAbort:
		return "Stream Abort"
	case kindBeginPrepare:
		return "Begin Prepare"
	case kindPrepare:
		return "Prepare"
	case kindCommitPrepared:
		return "Commit Prepared"
	case kindRollback:
		return "Rollback Prepared"
	case kindStreamPrepare:
		return "Stream Prepare"
	default:
		return ""
	}
}

// Message is one parsed message. Only the field that Kind names holds
// anything; the others keep what earlier messages left in them, so that their
// slices can be used again. A Message belongs to one goroutine.
//
// Lifetime: column data and LogicalMessage.Content alias the bytes given to
// Parse and die with them. The slices of columns die at the next Parse.
// Everything in Relation, Type and Origin is owned by the message's reader
// for good.
type Message struct {
	Kind     Kind
	Begin    Begin
	Commit   Commit
	Origin   Origin
	Relation *Relation // a new one each time
	Type     Type
	Insert   Insert
	Update   Update
	Delete   Delete
	Truncate Truncate
	Logical  LogicalMessage
}

// Begin opens a transaction. The server sends whole committed transactions
// only, so its end is sure to follow.
type Begin struct {
	FinalLSN   outbox.LSN // where its commit record starts: Commit.CommitLSN
	CommitTime time.Time  // UTC
	XID        uint32
}

// Commit closes a transaction.
type Commit struct {
	Flags     byte       // always 0; the protocol defines no flag, and Parse refuses others
	CommitLSN outbox.LSN // where the commit record starts; identifies the transaction
	// EndLSN is where the commit record ends: the only position of the
	// transaction that may be confirmed. Confirming CommitLSN would make
	// the server send it again.
	EndLSN     outbox.LSN
	CommitTime time.Time // UTC
}

// Origin says that the transaction was replayed from another server.
type Origin struct {
	CommitLSN outbox.LSN // on the other server
	Name      string
}

// Relation describes a table's columns as they are in the rows that follow.
// It replaces what was known under its OID. It owns its memory.
//
// A partitioned table that is published via its root sends two of them, the
// root's and the leaf's; rows name the root. Keeping them by OID keeps them
// apart.
type Relation struct {
	OID             uint32
	Namespace       string // "" for pg_catalog
	Name            string
	ReplicaIdentity byte // 'd' default, 'n' nothing, 'f' full, 'i' index
	Columns         []RelationColumn
}

// RelationColumn is one published column.
type RelationColumn struct {
	Key          bool // part of the replica identity
	Name         string
	TypeOID      uint32
	TypeModifier int32
}

// String gives namespace.name for messages to people.
func (r *Relation) String() string {
	if r.Namespace == "" {
		return "pg_catalog." + r.Name
	}
	return r.Namespace + "." + r.Name
}

// Type names a type that is not built in; it comes before the first Relation
// that uses it.
type Type struct {
	OID       uint32
	Namespace string // "" for pg_catalog
	Name      string
}

// The format bytes of a column.
const (
	FormatNull      byte = 'n'
	FormatText      byte = 't'
	FormatBinary    byte = 'b'
	FormatUnchanged byte = 'u' // a TOASTed value that an update left alone; its bytes are not sent
)

// Column is one value of a row. Data is nil for 'n' and 'u' and not nil
// otherwise; it aliases the input of Parse.
type Column struct {
	Format byte
	Data   []byte
}

// Insert is a new row, its columns in the relation's order.
type Insert struct {
	RelationOID uint32
	Columns     []Column
}

// Update is a changed row. An insert-only publication never sends one.
type Update struct {
	RelationOID uint32
	OldKind     byte // 'K' Old holds the key, 'O' the whole row, 0 Old is empty
	Old         []Column
	New         []Column
}

// Delete is a deleted row. An insert-only publication never sends one.
type Delete struct {
	RelationOID uint32
	OldKind     byte // 'K' Old holds the key, 'O' the whole row
	Old         []Column
}

// Truncate names the tables that were emptied.
type Truncate struct {
	Cascade         bool
	RestartIdentity bool
	RelationOIDs    []uint32
}

// LogicalMessage is what pg_logical_emit_message wrote. One that is not
// transactional arrives at once, outside Begin and Commit, and even when its
// transaction rolls back.
type LogicalMessage struct {
	Transactional bool
	LSN           outbox.LSN
	Prefix        string
	Content       []byte // aliases the input of Parse
}

// KindError says that a message is of a kind that Parse refuses.
type KindError struct {
	Kind Kind
}

// Error names the byte, and what it stands for where that is known.
func (e *KindError) Error() string {
	if name := refusedKindName(e.Kind); name != "" {
		return fmt.Sprintf("refusing a %s message (%q): streamed and prepared transactions are never asked for; "+
			"the replication slot or the start options are not the relay's own", name, byte(e.Kind))
	}
	return fmt.Sprintf("refusing a message of unknown kind %q (0x%02X): this server speaks a newer protocol than this program knows",
		byte(e.Kind), byte(e.Kind))
}

// FormatError says that a message is not built as its kind demands.
type FormatError struct {
	Kind   Kind   // 0 for an empty message
	Offset int    // of the byte that could not be read, from the start of the message
	Reason string // never holds bytes of the message
}

// Error says what was wrong and where.
func (e *FormatError) Error() string {
	if e.Kind == 0 {
		return "parsing a message: " + e.Reason
	}
	return fmt.Sprintf("parsing a %s message at byte %d: %s", e.Kind, e.Offset, e.Reason)
}
