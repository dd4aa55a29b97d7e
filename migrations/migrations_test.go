package migrations_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func config(t *testing.T, dsn string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func up(t *testing.T, c *pgx.ConnConfig) []migrations.Migration {
	t.Helper()
	applied, err := migrations.Up(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// Law: Up may be repeated; the second run applies nothing. Status and Check
// say so, and neither of them writes: before Up there is still no schema.
func TestUpIsRepeatable(t *testing.T) {
	t.Parallel()
	db := harness.SharedPostgres(t, 0).CreateDatabase(t)
	c := config(t, db.DSN())
	var older *migrations.VersionError
	if err := migrations.Check(t.Context(), c); !errors.As(err, &older) || !strings.Contains(err.Error(), "outbox-relay migrate up") {
		t.Fatalf("check of an empty database: %v, want a VersionError that names the command", err)
	}
	before, err := migrations.Status(t.Context(), c)
	if err != nil || len(before) != migrations.Version() || !before[0].AppliedAt.IsZero() {
		t.Fatalf("status of an empty database: %v, %v", before, err)
	}
	if got := db.Query1(t, `select to_regnamespace('outbox_relay') is null`); got != "t" {
		t.Fatal("check or status made the schema")
	}
	if n := len(up(t, c)); n != migrations.Version() {
		t.Fatalf("first run applied %d, want %d", n, migrations.Version())
	}
	if n := len(up(t, c)); n != 0 {
		t.Fatalf("second run applied %d, want 0", n)
	}
	if err := migrations.Check(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	after, err := migrations.Status(t.Context(), c)
	if err != nil || after[0].AppliedAt.IsZero() || time.Since(after[0].AppliedAt).Abs() > time.Hour {
		t.Fatalf("status after up: %v, %v", after, err)
	}
}

// Law: processes that migrate at once do not disturb each other.
func TestUpConcurrently(t *testing.T) {
	t.Parallel()
	db := harness.SharedPostgres(t, 0).CreateDatabase(t)
	c := config(t, db.DSN())
	const workers = 4
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() { _, errs[i] = migrations.Up(t.Context(), c) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Check(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// Law: a newer schema is refused by Check and left alone by Up, and the
// message says that the program is the older one.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	db := harness.SharedPostgres(t, 0).CreateDatabase(t)
	c := config(t, db.DSN())
	up(t, c)
	db.Exec(t, `insert into outbox_relay.goose_db_version (version_id, is_applied) values (9999, true)`)
	var newer *migrations.VersionError
	if err := migrations.Check(t.Context(), c); !errors.As(err, &newer) || !strings.Contains(err.Error(), "this program is older than the schema") {
		t.Fatalf("check: %v", err)
	}
	if _, err := migrations.Up(t.Context(), c); !errors.As(err, &newer) {
		t.Fatalf("up: %v", err)
	}
}

// Law: a role that owns the schema and has no right on the database
// migrates; one that does not own it gets an error that says what to do.
func TestUpUnprivileged(t *testing.T) {
	t.Parallel()
	p := harness.SharedPostgres(t, 0)
	db := p.CreateDatabase(t)
	role := "migrator_" + db.Name()
	db.Exec(t, `create role `+role+` login; create schema outbox_relay authorization `+role)
	t.Cleanup(func() { db.Exec(t, `drop owned by `+role+`; drop role `+role) })
	c := config(t, db.DSN())
	c.User = role
	up(t, c)
	up(t, c)
	other := p.CreateDatabase(t)
	c = config(t, other.DSN())
	c.User = role
	if _, err := migrations.Up(t.Context(), c); err == nil || !strings.Contains(err.Error(), "create schema outbox_relay authorization") {
		t.Fatalf("without the schema: %v", err)
	}
}

// Law: what Print gives to other tools is pinned; a change of it is seen.
func TestPrintGolden(t *testing.T) {
	t.Parallel()
	for _, f := range migrations.Formats() {
		files, err := migrations.Print(f)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, file := range files {
			fmt.Fprintf(&all, "=== %s\n%s", file.Name, file.SQL)
		}
		golden(t, "print_"+string(f)+".golden", all.String())
	}
	if _, err := migrations.Print("tern"); err == nil {
		t.Fatal("an unknown format was printed")
	}
}

// Law: the outbox's DDL and the grants are pinned.
func TestSetupGolden(t *testing.T) {
	t.Parallel()
	odd := migrations.OutboxOptions{Schema: `we"ird`, Table: `o;ut'b`, Publication: `pub "x"`, FillFactor: 70}
	var all strings.Builder
	for _, o := range []migrations.OutboxOptions{{}, odd, {Layout: migrations.Partitioned}} {
		ddl, err := migrations.OutboxDDL(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "=== %+v\n%s;\n", o, strings.Join(ddl, ";\n"))
	}
	day, err := migrations.PartitionDDL(migrations.OutboxOptions{}, time.Date(2026, 2, 28, 23, 59, 59, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&all, "=== partition\n%s;\n", day)
	for _, g := range []migrations.GrantOptions{
		{Role: "relay"},
		{Role: `re"lay`, Database: "app db", Schema: "s", Table: "t", StatusColumns: []string{"State"}, Writes: migrations.WritesDelete},
		{Role: "relay", Writes: migrations.WritesNothing},
	} {
		grants, err := migrations.Grants(g)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "=== %+v\n%s;\n", g, strings.Join(grants, ";\n"))
	}
	golden(t, "setup.golden", all.String())
}

// Law: names that no identifier can be are refused, not sent.
func TestImpossibleNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\x00b", strings.Repeat("x", 64)} {
		if _, err := migrations.OutboxDDL(migrations.OutboxOptions{Table: name}); err == nil {
			t.Errorf("table %q was accepted", name)
		}
		if _, err := migrations.Grants(migrations.GrantOptions{Role: name}); err == nil {
			t.Errorf("role %q was accepted", name)
		}
	}
	if _, err := migrations.Grants(migrations.GrantOptions{}); err == nil {
		t.Error("grants for no role were given")
	}
	if _, err := migrations.OutboxDDL(migrations.OutboxOptions{FillFactor: 5}); err == nil {
		t.Error("fill factor 5 was accepted")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -rewrite and explain the change\n%s", name, got)
	}
}

// exec runs statements one by one in the extended protocol's order.
func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(context.WithoutCancel(t.Context()), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
