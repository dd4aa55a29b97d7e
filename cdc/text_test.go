package cdc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Law: the command holds configured names quoted twice over, as an identifier
// inside a literal, and refuses what no quoting can carry.
func TestStartCommandQuotes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    StartOptions
		want string
	}{
		{StartOptions{Slot: "s_1", Publication: "pub", LSN: 0x1_0000_00FF},
			`START_REPLICATION SLOT "s_1" LOGICAL 1/FF (proto_version '1', publication_names '"pub"', messages 'true')`},
		{StartOptions{Slot: "s", Publication: `Re-l,a'y "P`, Binary: true},
			`START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '1', publication_names '"Re-l,a''y ""P"', messages 'true', binary 'true')`},
	} {
		got, err := startCommand(c.o)
		if err != nil || got != c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
		}
	}
	for _, bad := range []StartOptions{
		{Slot: "", Publication: "p"}, {Slot: "Capital", Publication: "p"}, {Slot: "a-b", Publication: "p"},
		{Slot: `a" LOGICAL 0/0`, Publication: "p"}, {Slot: strings.Repeat("a", 64), Publication: "p"}, {Slot: "a\n", Publication: "p"},
		{Slot: "s", Publication: ""}, {Slot: "s", Publication: "a\x00b"}, {Slot: "s", Publication: strings.Repeat("ä", 32)},
	} {
		if got, err := startCommand(bad); err == nil {
			t.Errorf("%+v gave %s", bad, got)
		}
	}
}

// Law: a timeline history is read as the server writes it, and what is not
// one is an error.
func TestParseHistory(t *testing.T) {
	t.Parallel()
	got, err := parseHistory("# remark\n1\t0/3000000\tno recovery target specified\n\n2\t0/A000148\tx\n")
	want := []Fork{{1, 0x3000000}, {2, 0xA000148}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"1", "x 0/1 r", "1 zz r", "-1 0/1 r"} {
		if got, err := parseHistory(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

// Law: a name is found in synchronous_standby_names wherever the server would
// find it, and nowhere else.
func TestNamesStandby(t *testing.T) {
	t.Parallel()
	const us = "outbox_relay"
	for setting, want := range map[string]bool{
		"": false, "*": true, "outbox_relay": true, "OUTBOX_Relay": true, "a, outbox_relay": true, "a,b": false,
		"FIRST 1 (a, outbox_relay)": true, "ANY 2 (a,b)": false, "2 (a, *)": true, "1 (outbox_relay)": true,
		"first 1 ( a , \"outbox_relay\" )": true, `"outbox_relay"`: true, `"outbox relay"`: false, `"a, outbox_relay"`: false,
		`"a(b", outbox_relay`: true, `"x""y", b`: false, "outbox_relay2": false, "FIRST 1 (outbox_relay2)": false,
	} {
		if got := namesStandby(setting, us); got != want {
			t.Errorf("%q: %v, want %v", setting, got, want)
		}
	}
	if !namesStandby(`"x""y"`, `x"y`) {
		t.Error("a doubled quote is one quote")
	}
}

// Law: a skipped publication ends the stream before any later frame is
// returned, in any language.
func TestSkippedPublicationIsFatal(t *testing.T) {
	t.Parallel()
	for _, n := range []pgproto3.NoticeResponse{
		{SeverityUnlocalized: "WARNING", Code: "55000", Message: `skipped loading publication "Pub"`, Routine: "LoadPublications"},
		{SeverityUnlocalized: "WARNING", Code: "55000", Message: `Laden der Publikation "Pub" übersprungen`, Routine: "LoadPublications"},
		{SeverityUnlocalized: "WARNING", Code: "55000", Message: `skipped loading publication "Pub"`},
	} {
		s := startedOn(&replay{bytes: append(notice(t, n), dataFrame(1, "x")...)}, "tcp", 0)
		f, err := s.Next(time.Time{})
		pub, ok := err.(*PublicationError)
		if !ok || pub.Publication != "Pub" || f.Kind != FrameNone {
			t.Errorf("%q: got %+v, %v; want a PublicationError", n.Message, f, err)
		}
	}
	harmless := notice(t, pgproto3.NoticeResponse{SeverityUnlocalized: "WARNING", Code: "55000", Message: "else"})
	s := startedOn(&replay{bytes: append(harmless, dataFrame(1, "x")...)}, "tcp", 0)
	if f, err := s.Next(time.Time{}); err != nil || f.Kind != FrameData {
		t.Errorf("after a harmless notice: %+v, %v", f, err)
	}
}

// Law: a wait for a standby shows from its notice until the stream moves
// beyond where it stood; a keepalive that repeats the position is no
// movement.
func TestBlockedUntilProgress(t *testing.T) {
	t.Parallel()
	wait := notice(t, pgproto3.NoticeResponse{SeverityUnlocalized: "WARNING", Code: "55000", Routine: "StandbySlotsHaveCaughtup",
		Message: `replication slot "sb1" specified in parameter "synchronized_standby_slots" does not have active_pid`})
	bytes := slices.Concat(dataFrame(0x10, "a"), keepaliveFrame(0x20, false), wait, keepaliveFrame(0x20, true), dataFrame(0, "R"), keepaliveFrame(0x30, false))
	s := startedOn(&replay{bytes: bytes}, "tcp", 0)
	var got []bool
	for range 5 {
		if _, err := s.Next(time.Time{}); err != nil {
			t.Fatal(err)
		}
		b, blocked := s.Blocked()
		if blocked && (b.Standby != "sb1" || b.Since.IsZero()) {
			t.Errorf("blocked by %+v", b)
		}
		got = append(got, blocked)
	}
	if want := []bool{false, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("blocked: %v, want %v", got, want)
	}
}

// Law: what is published is whole, or Problem says why not.
func TestPublicationProblem(t *testing.T) {
	t.Parallel()
	good := Publication{HasTable: true, Insert: true}
	if p := good.Problem(); p != "" {
		t.Errorf("a whole publication has the problem %q", p)
	}
	bad := map[string]*Publication{
		"missing": nil, "all": {AllTables: true, HasTable: true, Insert: true}, "no table": {Insert: true}, "no insert": {HasTable: true},
		"update": {HasTable: true, Insert: true, Update: true}, "delete": {HasTable: true, Insert: true, Delete: true},
		"filter": {HasTable: true, Insert: true, RowFilter: "x"}, "others": {HasTable: true, Insert: true, Others: 1},
	}
	for name, p := range bad {
		if p.Problem() == "" {
			t.Errorf("%s: no problem", name)
		}
	}
}

// Law: addresses come out as one can type them again, and nothing of the
// configuration but host, port, user and database is in a connect error.
func TestConnectErrorsNameOnlyTheAddress(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:secret@[::1]:5433/db?sslmode=disable":                "[::1]:5433",
		"host=/run/postgresql user=u password=secret":                      "/run/postgresql port 5432",
		"postgres://u:secret@a:1,b:2/db?sslmode=disable":                   "a:1,b:2",
		"postgres:///db?host=/run/postgresql&port=6000&user=u&password=se": "/run/postgresql port 6000",
	} {
		c, err := pgconn.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, endpoint(c)); diff != "" {
			t.Error(diff)
		}
		text := connectError(c, pgconn.NewParseConfigError("x", "y", nil)).Error()
		if strings.Contains(text, "se"+"cret") || !strings.Contains(text, want) {
			t.Errorf("error text: %s", text)
		}
	}
}
