package cdc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Law: every error that servers 14 to 18 give is judged by SQLSTATE and
// routine; the texts here are theirs, and where the routine is known a
// translated text is judged the same.
func TestClassify(t *testing.T) {
	t.Parallel()
	pg := func(code, message, routine string) error {
		return fmt.Errorf("streaming: %w", &EndError{Reason: "error", Err: &pgconn.PgError{Severity: "ERROR", Code: code, Message: message, Routine: routine}})
	}
	for _, c := range []struct {
		err  error
		want Class
	}{
		{pg("55006", `replication slot "relay_7" is active for PID 14235`, "ReplicationSlotAcquire"), ClassSlotBusy},
		{pg("42704", `replication slot "nope" does not exist`, "ReplicationSlotAcquire"), ClassSlotMissing},
		{pg("42704", `Replikations-Slot »nope« existiert nicht`, "ReplicationSlotAcquire"), ClassSlotMissing},
		{pg("42704", `publication "pp" does not exist`, "get_publication_oid"), ClassPublication},
		{pg("42704", `Publikation »pp« existiert nicht`, "get_publication_oid"), ClassPublication},
		{pg("42704", `type "x" does not exist`, "typenameType"), ClassUnknown},
		{pg("55000", `cannot read from logical replication slot "s"`, "StartLogicalReplication"), ClassSlotLost},
		{pg("55000", `can no longer get changes from replication slot "s"`, "CreateDecodingContext"), ClassSlotLost},
		{pg("55000", `can no longer access replication slot "s"`, "ReplicationSlotAcquire"), ClassSlotLost},
		{pg("55000", `kann nicht mehr auf Replikations-Slot »s« zugreifen`, "ReplicationSlotAcquire"), ClassSlotLost},
		{pg("55000", `replication slot "od" was not created in this database`, "CreateDecodingContext"), ClassSlotForeign},
		{pg("55000", `cannot use physical replication slot for logical decoding`, "CreateDecodingContext"), ClassSlotForeign},
		{pg("55000", `logical decoding requires "wal_level" >= "logical"`, "CheckLogicalDecodingRequirements"), ClassConfig},
		{pg("55000", `recovery is in progress`, "pg_current_wal_flush_lsn"), ClassWrongNode},
		{pg("55000", `replication slot "sb1" specified in parameter "synchronized_standby_slots" does not have active_pid`, "StandbySlotsHaveCaughtup"), ClassBlocked},
		{pg("55000", `something nobody has seen yet`, "SomeRoutine"), ClassUnknown},
		{pg("0A000", `logical decoding cannot be used while in recovery`, "CheckLogicalDecodingRequirements"), ClassWrongNode},
		{pg("0A000", `client sent proto_version=9 but server only supports protocol 4 or lower`, "pgoutput_startup"), ClassSlotForeign},
		{pg("22023", `option "proto_version" = "1" is unknown`, "pg_decode_startup"), ClassSlotForeign},
		{pg("22023", `invalid value for parameter "wal_sender_timeout": "x"`, "set_config_option"), ClassConfig},
		{pg("25006", "cannot execute UPDATE in a read-only transaction", ""), ClassWrongNode},
		{pg("42501", "permission denied to start WAL sender", ""), ClassPermission},
		{pg("28P01", `password authentication failed for user "u"`, ""), ClassAuth},
		{pg("28000", `no pg_hba.conf entry for host "::1", user "u", database "d", no encryption`, ""), ClassAuth},
		{pg("3D000", `database "d" does not exist`, ""), ClassConfig},
		{pg("53300", "sorry, too many clients already", ""), ClassCapacity},
		{pg("53400", "all replication slots are in use", ""), ClassCapacity},
		{pg("57P01", "terminating connection due to administrator command", ""), ClassServerStopping},
		{pg("57P03", "the database system is starting up", ""), ClassServerStopping},
		{pg("57P02", "terminating connection because of crash of another server process", ""), ClassRetry},
		{pg("57014", "canceling statement due to statement timeout", ""), ClassRetry},
		{pg("25P04", "terminating connection due to transaction timeout", ""), ClassRetry},
		{pg("08006", "connection failure", ""), ClassRetry},
		{pg("08P01", "unsupported startup parameter: replication", ""), ClassConfig},
		{pg("42601", `syntax error at or near "START_REPLICATION"`, ""), ClassConfig},
		{pg("42601", `syntax error at or near "x"`, ""), ClassUnknown},
		{pg("58P01", "requested WAL segment 00000001 has already been removed", ""), ClassSlotLost},
		{pg("58P01", "could not open file", ""), ClassUnknown},
		{pg("XX000", "invalid memory alloc request size", ""), ClassUnknown},
		{&PublicationError{Publication: "p"}, ClassPublication},
		{&EndError{Reason: "closed", Err: ErrServerEnded}, ClassServerStopping},
		{&EndError{Reason: "protocol", Err: errors.New("unexpected message")}, ClassUnknown},
		{fmt.Errorf("reading: %w", io.EOF), ClassRetry},
		{fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), ClassRetry},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, ClassRetry},
		{&net.DNSError{Err: "no such host", Name: "h"}, ClassRetry},
		{context.DeadlineExceeded, ClassRetry},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, ClassConfig},
		{errors.New("tls error: server refused TLS connection"), ClassConfig},
		{errors.New("ValidateConnect failed: read only connection"), ClassWrongNode},
		{errors.New("anything"), ClassUnknown},
	} {
		got := Classify(c.err)
		if got.Class != c.want {
			t.Errorf("%v: class %v, want %v", c.err, got.Class, c.want)
		}
		if got.Class.Permanent() && got.Hint == "" {
			t.Errorf("%v: permanent and without a hint", c.err)
		}
	}
}

// Law: the process that holds the slot is named, in any language and with
// digits in the slot's name.
func TestClassifyFindsTheBusyProcess(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]uint32{
		`replication slot "relay_7" is active for PID 14235`: 14235,
		`Replikations-Slot »relay_7« ist aktiv für PID 99`:   99,
		`no number`:            0,
		`99999999999999999999`: 0,
	} {
		if got := Classify(&pgconn.PgError{Code: "55006", Message: message}).PID; got != want {
			t.Errorf("%s: process %d, want %d", message, got, want)
		}
	}
}

// Law: exit codes are a contract.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	var got []string
	for c := ClassUnknown; c <= ClassConfig; c++ {
		got = append(got, fmt.Sprintf("%v=%d", c, c.ExitCode()))
	}
	want := "unknown=1 retry=12 server_stopping=12 slot_busy=11 slot_missing=10 slot_lost=10 slot_foreign=10 " +
		"publication=15 capacity=12 permission=14 auth=14 wrong_node=12 blocked=12 config=2"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if Class(200).String() != "unknown" || Class(200).ExitCode() != 1 || Class(200).Permanent() {
		t.Error("an unnamed class must be unknown")
	}
}

// Law: the catalog has the last word on a slot that an error calls lost or
// missing.
func TestCheckTrustsTheCatalog(t *testing.T) {
	t.Parallel()
	lost := &Slot{Type: "logical", Plugin: "pgoutput", SlotWAL: SlotWAL{WALStatus: "lost"}}
	whole := &Slot{Type: "logical", Plugin: "pgoutput", SlotWAL: SlotWAL{WALStatus: "reserved"}}
	physical := &Slot{Type: "physical"}
	for _, c := range []struct {
		give Class
		slot *Slot
		want Class
	}{
		{ClassUnknown, lost, ClassSlotLost},
		{ClassSlotMissing, whole, ClassRetry},
		{ClassSlotLost, whole, ClassRetry},
		{ClassSlotLost, physical, ClassSlotForeign},
		{ClassSlotLost, nil, ClassSlotMissing},
		{ClassUnknown, nil, ClassSlotMissing},
		{ClassUnknown, whole, ClassUnknown},
		{ClassPublication, lost, ClassPublication},
		{ClassRetry, nil, ClassRetry},
	} {
		if got := (Fault{Class: c.give}).Check(c.slot); got.Class != c.want {
			t.Errorf("%v with %+v: %v, want %v", c.give, c.slot, got.Class, c.want)
		}
	}
}
