package config

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// nasty is a password with everything that breaks home-made parsers.
const nasty = `p@ss:w/rd%25#?&=' "\x+ é`

// Every legal spelling of an address reaches the host and port that it means,
// with the transport security that its host asks for.
func TestAddressesInEverySpelling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dsn, want string
	}{
		{"postgres://u@[::1]:5432/db", "host=::1 port=5432 user=u dbname=db sslmode=prefer"},
		{"host=::1 user=u dbname=db", "host=::1 port=5432 user=u dbname=db sslmode=prefer"},
		{"host=/run/postgresql user=u dbname=db", "host=/run/postgresql port=5432 user=u dbname=db sslmode=disable"},
		{"postgres:///db?host=/run/postgresql&user=u", "host=/run/postgresql port=5432 user=u dbname=db sslmode=disable"},
		{"postgresql://u@localhost/db", "host=localhost port=5432 user=u dbname=db sslmode=prefer"},
		{"postgres://u@db-1:5433,db-2/db", "host=db-1,db-2 port=5433,5432 user=u dbname=db sslmode=verify-full"},
		{"host=db-1,/run/postgresql user=u dbname=db", "host=db-1,/run/postgresql port=5432,5432 user=u dbname=db sslmode=verify-full"},
		{"postgres://u@localhost,db-2/db", "host=localhost,db-2 port=5432,5432 user=u dbname=db sslmode=verify-full"},
		{"postgres://u:secret@db/db?application_name=x", "host=db port=5432 user=u dbname=db sslmode=verify-full password=********"},
		{"postgres://u@127.0.0.1/db?sslmode=verify-full", "host=127.0.0.1 port=5432 user=u dbname=db sslmode=verify-full"},
		{"host=db user=u dbname=db sslmode=require", "host=db port=5432 user=u dbname=db sslmode=require"},
		{"postgres://u@[2001:db8::1]:5433/db", "host=2001:db8::1 port=5433 user=u dbname=db sslmode=verify-full"},
	} {
		db, err := openDSN(c.dsn, nil)
		if err != nil {
			t.Errorf("%s: %v", c.dsn, err)
			continue
		}
		if got := db.describe(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.dsn, got, c.want)
		}
	}
}

// A password arrives whole by each way in: percent-encoded in a URL, quoted in
// keywords, and from a file, whose line end is no part of it.
func TestNastyPasswordArrivesWhole(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(nasty+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	quoted := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(nasty) + "'"
	for name, p := range map[string]Postgres{
		"url":         {Replication: (&url.URL{Scheme: "postgres", User: url.UserPassword("u", nasty), Host: "localhost", Path: "/db"}).String()},
		"keywords":    {Replication: "host=localhost user=u dbname=db password=" + quoted},
		"file":        {Replication: "postgres://u@localhost/db", PasswordFile: file},
		"string wins": {Replication: "host=localhost user=u dbname=db password=" + quoted, PasswordFile: other},
	} {
		conf := Config{Postgres: p}
		stream, err := conf.ReplicationConn()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		query, err := conf.QueryConn()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if stream.Password != nasty || query.Password != nasty {
			t.Errorf("%s: the password changed on its way", name)
		}
	}
}

// A rotated password file is read again by the hook that runs before each
// authentication, and only the connection at hand gets it.
func TestPasswordFileIsReadAtEachConnection(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\r\n")
	conf := Config{Postgres: Postgres{Replication: "postgres://u@localhost/db", PasswordFile: file}}
	conn, err := conf.ReplicationConn()
	if err != nil {
		t.Fatal(err)
	}
	write("second")
	one := conn.Copy()
	if _, err := conn.AfterNetConnect(t.Context(), one, nil); err != nil {
		t.Fatal(err)
	}
	if conn.Password != "first" || one.Password != "second" {
		t.Errorf("got %q and %q", conn.Password, one.Password)
	}
	write("")
	if _, err := conn.AfterNetConnect(t.Context(), one, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("an empty file gave %v", err)
	}
}

// replication= of a string is dropped: the stream sets it itself, and a query
// connection with it would be a walsender.
func TestReplicationParameterIsDropped(t *testing.T) {
	t.Parallel()
	conf := Config{Postgres: Postgres{Replication: "host=localhost replication=database application_name=x"}}
	conn, err := conf.QueryConn()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := conn.RuntimeParams["replication"]; ok || conn.RuntimeParams["application_name"] != "x" {
		t.Errorf("parameters: %v", conn.RuntimeParams)
	}
	for k := range outbox.PinnedSettings() {
		if _, ok := conn.RuntimeParams[k]; ok {
			t.Errorf("%s is set by the string", k)
		}
	}
}

// With several hosts, only one that takes writes will do, unless the string
// says otherwise.
// Case F5 of docs/guarantees.md.
func TestSeveralHostsWantThePrimary(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]bool{
		"host=a,b sslmode=verify-full":                          true,
		"host=a sslmode=verify-full":                            false,
		"host=localhost":                                        false,
		"host=a,b sslmode=verify-full target_session_attrs=any": true,
	} {
		conf := Config{Postgres: Postgres{Replication: dsn}}
		conn, err := conf.ReplicationConn()
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ValidateConnect != nil; got != want {
			t.Errorf("%s: checks for writes: %v, want %v", dsn, got, want)
		}
	}
}

// No part of a malformed connection string reaches an error, whatever is
// wrong with it. The pieces are between the special characters.
func FuzzDSNErrorsAreSilent(f *testing.F) {
	for _, dsn := range []string{
		"postgres://u:CANARY" + nasty + "CANARY@h/db", "host=h password=CANARY" + nasty + "CANARY", "postgres://u:1/CANARY@h", "CANARY", "postgres://CANARY:CANARY:CANARY@h:CANARY/",
		"host=h port=CANARY", "host=h sslmode=CANARY", "host=h connect_timeout=CANARY", "host=h target_session_attrs=CANARY", "host=h service=CANARY",
		"postgres://h/db?CANARY=1", "host=h require_auth=CANARY", "host=h sslcertmode=CANARY", "postgres://u@h/db?sslrootcert=CANARY",
		"host=h min_protocol_version=CANARY", "host=h channel_binding=CANARY", "host=h,g port=1,2,CANARY", "host=h default_query_exec_mode=CANARY",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if !strings.Contains(dsn, "CANARY") {
			return
		}
		if _, err := openDSN(dsn, nil); err != nil && strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%q shows itself: %v", dsn, err)
		}
	})
}
