package harness

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// Law: a server of every supported major starts, decodes with pgoutput and
// with test_decoding, and is gone with the test.
func TestEveryMajorDecodes(t *testing.T) {
	t.Parallel()
	for major := pgserver.OldestMajor; major <= pgserver.NewestMajor; major++ {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			Need(t, PostgresMajor(major))
			p := StartPostgres(t, PostgresOptions{Major: major})
			if got := p.Version() / 10000; got != major {
				t.Fatalf("version %d, want major %d", p.Version(), major)
			}
			d := p.CreateDatabase(t)
			d.Exec(t, "create table x (id int primary key); create publication x for table x")
			for _, plugin := range []string{"pgoutput", "test_decoding"} {
				d.Exec(t, "select pg_create_logical_replication_slot($1, $1)", plugin)
			}
			d.Exec(t, "insert into x values (1)")
			if got := d.Query1(t, "select string_agg(data, '|') from pg_logical_slot_get_changes('test_decoding', null, null)"); !strings.Contains(got, "id[integer]:1") {
				t.Errorf("test_decoding gave %q", got)
			}
			binary := `select count(*) from pg_logical_slot_get_binary_changes('pgoutput', null, null,
				'proto_version', '1', 'publication_names', 'x')`
			if got := d.Query1(t, binary); got != "4" { // begin, relation, insert, commit
				t.Errorf("pgoutput gave %s messages, want 4", got)
			}
		})
	}
}

// Law: a crash loses no committed row although fsync is off, and the server
// comes back on the same port with its logical slot.
func TestCrashKeepsCommittedRows(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, PostgresOptions{})
	d := p.CreateDatabase(t)
	d.Exec(t, "create table x (id int)")
	d.Exec(t, "select pg_create_logical_replication_slot('s', 'pgoutput')")
	port := p.Port()
	for i, stop := range []func(){func() { p.Crash(t) }, func() { p.Stop(t, "kill") }, func() { p.Stop(t, "fast") }} {
		d.Exec(t, "insert into x values ($1)", i)
		stop()
		p.Start(t)
	}
	if got := d.Query1(t, "select count(*) from x"); got != "3" {
		t.Errorf("%s rows after three stops, want 3", got)
	}
	if got := d.Query1(t, "select count(*) from pg_replication_slots"); got != "1" {
		t.Errorf("%s slots after three stops, want 1", got)
	}
	if p.Port() != port {
		t.Errorf("port %d became %d", port, p.Port())
	}
	if !strings.Contains(p.Log(), "database system was not properly shut down") {
		t.Error("the log shows no recovery: the crash was none")
	}
}

// Law: a standby streams, follows, and after its promotion takes writes on a
// new timeline.
func TestStandbyStreamsAndIsPromoted(t *testing.T) {
	t.Parallel()
	for _, major := range []int{14, 15, 17} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			Need(t, PostgresMajor(major))
			p := StartPostgres(t, PostgresOptions{Major: major})
			d := p.CreateDatabase(t)
			d.Exec(t, "create table x (id int); insert into x values (1)")
			d.Exec(t, "select pg_create_logical_replication_slot('stays_here', 'pgoutput')")
			b := p.Standby(t, StandbyOptions{})
			d.Exec(t, "insert into x values (2)")
			b.WaitFor(t, p)
			on := d.On(b)
			if got := on.Query1(t, "select pg_is_in_recovery()::text || count(*) from x"); got != "true2" {
				t.Fatalf("standby shows %s, want true2", got)
			}
			if got := on.Query1(t, "select count(*) from pg_replication_slots"); got != "0" {
				t.Errorf("the copy holds %s slots, want 0", got)
			}
			p.Crash(t)
			b.Promote(t)
			on.Exec(t, "insert into x values (3)")
			if got := on.Query1(t, "select count(*) || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) from x"); got != "3 00000002" {
				t.Errorf("rows and timeline after promotion: %s, want 3 00000002", got)
			}
		})
	}
}

// Law: TLS is offered with a certificate that verifies, and a role with a
// password must know it where a pg_hba line says so.
func TestTLSAndPasswords(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, PostgresOptions{TLS: true, HBA: []string{
		"hostssl all app 127.0.0.1/32 scram-sha-256",
		"hostnossl all app 127.0.0.1/32 reject",
	}})
	p.CreateRole(t, "app", "it's secret", "REPLICATION")
	connect := func(dsn string) error {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err
	}
	if err := connect(p.TLSDSN("postgres", "app", "it's secret")); err != nil {
		t.Errorf("the right password over TLS: %v", err)
	}
	if err := connect(p.TLSDSN("postgres", "app", "wrong")); err == nil {
		t.Error("a wrong password was taken")
	}
	if err := connect(p.DSNAs("postgres", "app", "it's secret")); err == nil {
		t.Error("a connection without TLS was taken")
	}
}

// Law: a database goes with its test although a slot of it is in use, and the
// shared server stays.
func TestDatabaseIsDroppedWithSlotsInUse(t *testing.T) {
	t.Parallel()
	p := SharedPostgres(t, 0)
	var name string
	t.Run("user", func(t *testing.T) {
		d := p.CreateDatabase(t)
		name = d.Name()
		d.Exec(t, "select pg_create_logical_replication_slot($1, 'test_decoding')", name)
		conn, err := pgx.Connect(t.Context(), d.DSN()+"&replication=database&default_query_exec_mode=simple_protocol")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		conn.PgConn().Frontend().Send(startReplication(name))
		if err := conn.PgConn().Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().ReceiveMessage(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := d.Query1(t, "select active from pg_replication_slots where slot_name = $1", name); got != "t" {
			t.Fatalf("slot active: %s", got)
		}
	})
	if SharedPostgres(t, 0) != p {
		t.Error("a second shared server")
	}
	conn, err := p.Connect(t.Context(), "postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var left int
	err = conn.QueryRow(t.Context(), `select (select count(*) from pg_database where datname = $1) +
		(select count(*) from pg_replication_slots where slot_name = $1)`, name).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d databases or slots left, %v", left, err)
	}
}

// Law: nothing stays behind in the file system or as a process after Close.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := pgserver.New(t.Context(), pgserver.Options{})
	if err != nil {
		startFailed(t, "postgres", err)
	}
	dir := s.DataDir()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("data directory after Close: %v", err)
	}
	if s.Running() {
		t.Error("the server runs after Close")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func startReplication(slot string) *pgproto3.Query {
	return &pgproto3.Query{String: "START_REPLICATION SLOT " + slot + " LOGICAL 0/0"}
}
