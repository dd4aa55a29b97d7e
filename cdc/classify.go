package cdc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class is what an error asks of the caller. The zero value is ClassUnknown,
// which is never success: retry with back-off and show it.
type Class uint8

// The classes. Permanent says which of them only a person can end.
const (
	ClassUnknown        Class = iota
	ClassRetry                // the connection or the server is away for now
	ClassServerStopping       // the server shuts down or starts; leave it at once
	ClassSlotBusy             // another session reads the slot
	ClassSlotMissing          // no slot of that name: rows may be missing
	ClassSlotLost             // the slot is there, its WAL is not
	ClassSlotForeign          // the slot belongs to another database, plugin or kind
	ClassPublication          // the publication is missing or does not bring our rows
	ClassCapacity             // no free slot, sender or connection
	ClassPermission
	ClassAuth
	ClassWrongNode // a standby, or a demoted primary
	ClassBlocked   // held back for a standby
	ClassConfig    // what we asked for cannot work here
)

var classNames = [...]string{"unknown", "retry", "server_stopping", "slot_busy", "slot_missing", "slot_lost", "slot_foreign",
	"publication", "capacity", "permission", "auth", "wrong_node", "blocked", "config"}

// String gives the class in one word, for logs and metrics.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[ClassUnknown]
}

// Permanent says that trying again changes nothing until a person has acted.
func (c Class) Permanent() bool {
	switch c {
	case ClassSlotMissing, ClassSlotLost, ClassSlotForeign, ClassPublication, ClassPermission, ClassAuth, ClassConfig:
		return true
	default:
		return false
	}
}

// ExitCode is the program's exit code when it ends for such an error.
func (c Class) ExitCode() int {
	switch c {
	case ClassSlotMissing, ClassSlotLost, ClassSlotForeign:
		return 10
	case ClassSlotBusy:
		return 11
	case ClassRetry, ClassServerStopping, ClassCapacity, ClassWrongNode, ClassBlocked:
		return 12
	case ClassPermission, ClassAuth:
		return 14
	case ClassPublication:
		return 15
	case ClassConfig:
		return 2
	default:
		return 1
	}
}

// Fault is an error judged.
type Fault struct {
	Class Class
	Code  string // the server's SQLSTATE; "" when the error is not the server's
	PID   uint32 // ClassSlotBusy: the backend that reads the slot
	Hint  string // what an operator does next; "" when there is nothing to do but wait
}

// SQLSTATEs that more than one place names.
const (
	codeNotInPrerequisiteState = "55000"
	codeUndefinedObject        = "42704"
	codeInsufficientPrivilege  = "42501"
)

// Classify judges any error that this package, or PostgreSQL through pgx,
// returned. It looks at SQLSTATE first, then at the server routine that
// raised it, and at the text last, since texts are translated and differ by
// version. Nil must not be passed. Where the slot's row can be read, let
// Fault.Check have the last word.
func Classify(err error) Fault {
	var pub *PublicationError
	if errors.As(err, &pub) {
		return Fault{Class: ClassPublication, Code: codeNotInPrerequisiteState, Hint: hintPublication}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		f := judge(pg)
		f.Code = pg.Code
		if f.Hint == "" {
			f.Hint = hints[f.Class]
		}
		return f
	}
	c := classifyConnection(err)
	return Fault{Class: c, Hint: hints[c]}
}

// classifyConnection judges errors that no server worded.
func classifyConnection(err error) Class {
	var (
		certificate *tls.CertificateVerificationError
		hostname    x509.HostnameError
		authority   x509.UnknownAuthorityError
		network     net.Error
		end         *EndError
	)
	text := err.Error()
	switch {
	case errors.Is(err, ErrServerEnded):
		return ClassServerStopping
	case errors.As(err, &certificate), errors.As(err, &hostname), errors.As(err, &authority),
		strings.Contains(text, "server refused TLS connection"):
		return ClassConfig
	case strings.Contains(text, "read only connection"), strings.Contains(text, "hot standby mode"), strings.Contains(text, "server is in standby"):
		return ClassWrongNode // pgx: target_session_attrs is not met
	case errors.As(err, &end):
		return ClassUnknown // a broken protocol: reconnecting may or may not help
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, pgconn.ErrConnClosed), pgconn.Timeout(err):
		return ClassRetry
	default:
		return ClassUnknown
	}
}

// judge reads the server's error. Every case has its reason in the hint or
// beside it.
func judge(e *pgconn.PgError) Fault {
	switch e.Code {
	case "55006": // object_in_use
		return Fault{Class: ClassSlotBusy, PID: busyPID(e.Message)}
	case codeUndefinedObject:
		return judgeUndefined(e)
	case codeNotInPrerequisiteState:
		return judgeState(e)
	case codeInsufficientPrivilege:
		return Fault{Class: ClassPermission}
	case "28P01", "28000": // invalid_password, invalid_authorization_specification
		return judgeAuth(e)
	case "3D000": // no such database
		return Fault{Class: ClassConfig, Hint: "Correct the database name in the connection string."}
	case "57P01", "57P03": // admin_shutdown, cannot_connect_now
		return Fault{Class: ClassServerStopping}
	case "25006": // read_only_sql_transaction
		return Fault{Class: ClassWrongNode}
	case "53300", "53400": // too_many_connections, configuration_limit_exceeded
		return Fault{Class: ClassCapacity}
	case "42601", "08P01": // syntax_error, protocol_violation: a pooler took the connection
		return judgeProtocol(e)
	case "0A000", "22023": // feature_not_supported, invalid_parameter_value
		return judgeUnsupported(e)
	case "58P01": // undefined_file
		if strings.Contains(e.Message, "WAL segment") {
			return Fault{Class: ClassSlotLost}
		}
		return Fault{}
	case "57014", "55P03", "25P03", "25P04", "57P02", "57P05", "40001", "40P01", "53100", "53200":
		return Fault{Class: ClassRetry} // time-outs, a crash elsewhere, conflicts, disk and memory
	}
	if strings.HasPrefix(e.Code, "08") {
		return Fault{Class: ClassRetry}
	}
	return Fault{}
}

func judgeUndefined(e *pgconn.PgError) Fault {
	switch {
	case e.Routine == "get_publication_oid", strings.Contains(e.Message, "publication"):
		return Fault{Class: ClassPublication, Hint: hintPublication}
	case strings.Contains(e.Routine, "ReplicationSlot"), strings.Contains(e.Message, "replication slot"):
		return Fault{Class: ClassSlotMissing}
	case strings.Contains(e.Message, "configuration parameter"):
		return Fault{Class: ClassConfig}
	default:
		return Fault{}
	}
}

// judgeState splits 55000, which covers a dozen conditions.
func judgeState(e *pgconn.PgError) Fault {
	text := e.Message + "\n" + e.Detail
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case e.Routine == "StandbySlotsHaveCaughtup", has("synchronized_standby_slots"):
		return Fault{Class: ClassBlocked}
	case has("recovery is in progress"), has("during recovery"), has("being synchronized from the primary"), has("being synced from the primary"):
		return Fault{Class: ClassWrongNode}
	case has("was not created in this database"), has("cannot use physical replication slot"):
		return Fault{Class: ClassSlotForeign}
	case has("wal_level"), has("effective_wal_level"):
		return Fault{Class: ClassConfig, Hint: hintWALLevel}
	case has("can no longer get changes"), has("cannot read from logical replication slot"), has("can no longer access replication slot"),
		e.Routine == "ReplicationSlotAcquire", e.Routine == "StartLogicalReplication":
		return Fault{Class: ClassSlotLost}
	case has("all replication slots are in use"):
		return Fault{Class: ClassCapacity}
	default:
		return Fault{}
	}
}

func judgeAuth(e *pgconn.PgError) Fault {
	f := Fault{Class: ClassAuth}
	if strings.Contains(e.Message, "pg_hba.conf") {
		f.Hint = "Add a line to pg_hba.conf that names the database, such as: hostssl DATABASE USER ADDRESS scram-sha-256. " +
			"A logical stream is matched by its database; a line with the word replication does not admit it."
	}
	return f
}

func judgeProtocol(e *pgconn.PgError) Fault {
	if e.Code == "42601" && !strings.Contains(e.Message, "IDENTIFY_SYSTEM") && !strings.Contains(e.Message, "START_REPLICATION") {
		return Fault{}
	}
	return Fault{Class: ClassConfig, Hint: "Connect directly: something between us and the server, such as a connection pooler, does not pass a replication connection on. Only postgres.query may go through a pooler."}
}

func judgeUnsupported(e *pgconn.PgError) Fault {
	switch {
	case strings.Contains(e.Message, "while in recovery"):
		return Fault{Class: ClassWrongNode}
	case strings.Contains(e.Message, "proto_version"), strings.Contains(e.Message, "pgoutput"):
		return Fault{Class: ClassSlotForeign, Hint: "The slot's output plugin does not know our options. Use a slot that was made for pgoutput, or create one: outbox-relay slot create."}
	case e.Code == "22023":
		return Fault{Class: ClassConfig}
	default:
		return Fault{}
	}
}

var busyBackend = regexp.MustCompile(`([0-9]+)[^0-9]*$`)

// busyPID finds the number at the end of "replication slot "x" is active for
// PID 123", in any language.
func busyPID(message string) uint32 {
	m := busyBackend.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	pid, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(pid)
}

const (
	hintPublication = "Check the publication: outbox-relay status and outbox-relay setup --print. Decoding uses the catalog of the moment a row was written, so rows written before the publication existed " +
		"cannot be decoded later: they must be published from the table."
	hintWALLevel = "Set wal_level = logical and restart the server (managed services: rds.logical_replication=1, cloudsql.logical_decoding=on, or their like)."
)

var hints = map[Class]string{
	ClassSlotBusy:    "Another relay reads this slot; this one waits. If that one is dead, the server frees the slot after wal_sender_timeout.",
	ClassSlotMissing: "Rows written since the slot was last read may not be published. See both positions: outbox-relay status. Then outbox-relay slot create makes a new slot and says which interval it leaves out; rows that still say READY afterwards must be inserted again.",
	ClassSlotLost:    "The server has removed WAL that the slot needed. Drop it and make a new one: outbox-relay slot drop, then outbox-relay slot create, which says what the new one leaves out; rows that still say READY afterwards must be inserted again.",
	ClassSlotForeign: "The slot of that name is not ours: another database, another plugin, or a physical one. Correct slot.name or the database in the connection string.",
	ClassPublication: hintPublication,
	ClassCapacity:    "Raise max_replication_slots, max_wal_senders or max_connections, or free what is not used: select * from pg_replication_slots.",
	ClassPermission:  "The role lacks a right; the message names it. For the stream: ALTER ROLE ... REPLICATION (RDS: GRANT rds_replication TO ...).",
	ClassAuth:        "Check user and password of this connection and the pg_hba.conf line that admits it.",
	ClassWrongNode:   "This server is a standby or read-only. Point the connection string at the primary, or list all hosts with target_session_attrs=read-write.",
	ClassBlocked:     "A standby named in synchronized_standby_slots is away. Start it, or take it out of that setting.",
	ClassConfig:      "The server refuses what we ask for; correct the configuration.",
}

// Check lets the slot's row, read after the error (nil: there is none), have
// the last word on whether the slot is lost or missing: texts differ by
// version, and some versions call a physical slot lost.
func (f Fault) Check(slot *Slot) Fault {
	if f.Class != ClassSlotLost && f.Class != ClassSlotMissing && f.Class != ClassUnknown {
		return f
	}
	class := f.Class
	switch {
	case slot == nil:
		class = ClassSlotMissing
	case slot.Type != "logical" || slot.Plugin != "pgoutput":
		class = ClassSlotForeign
	case slot.Lost():
		class = ClassSlotLost
	case f.Class != ClassUnknown:
		class = ClassRetry // it is there, and whole
	}
	if class != f.Class {
		f.Class, f.Hint = class, hints[class]
	}
	return f
}
