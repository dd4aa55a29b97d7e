package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Schema is the schema of the relay's own tables.
const Schema = "outbox_relay"

const (
	versionTable = Schema + ".goose_db_version"
	// lockID keeps two migrations of one database apart. Any constant
	// would do; this one spells "outboxrl".
	lockID = 0x6f7574626f78726c
	// A migration waits for the other one as long as a slow one may take.
	lockTries, lockEverySeconds = 300, 1
	// A table lock that an old session holds must fail the migration, not
	// queue every other session behind it.
	lockTimeout = "10s"
)

//go:embed sql/*.sql
var embedded embed.FS

// Migration is one numbered step, and whether a database has it.
type Migration struct {
	Version   int
	Name      string    // the file's name
	AppliedAt time.Time // by the database's clock; zero when not applied
}

// VersionError says that the schema and the program do not fit. Its message
// names the command that helps.
type VersionError struct {
	Database int // version of the schema; 0 when there is none
	Program  int // version that the program needs
}

func (e *VersionError) Error() string {
	switch {
	case e.Database == 0:
		return fmt.Sprintf("schema %s has no tables yet, this program needs version %d: run `outbox-relay migrate up`", Schema, e.Program)
	case e.Database < e.Program:
		return fmt.Sprintf("schema %s has version %d, this program needs version %d: run `outbox-relay migrate up`", Schema, e.Database, e.Program)
	default:
		return fmt.Sprintf("this program is older than the schema: schema %s has version %d, this program knows version %d; install the newer program",
			Schema, e.Database, e.Program)
	}
}

// Version is the schema version that this program needs.
func Version() int {
	all := list()
	return all[len(all)-1].Version
}

// list gives the embedded migrations, oldest first.
func list() []Migration {
	names, err := fs.Glob(embedded, "sql/*.sql")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("migrations: no embedded files: %v", err))
	}
	all := make([]Migration, 0, len(names))
	for _, n := range names {
		base := path.Base(n)
		number, _, _ := strings.Cut(base, "_")
		v, err := strconv.Atoi(number)
		if err != nil {
			panic(fmt.Sprintf("migrations: file name %q has no number", base))
		}
		all = append(all, Migration{Version: v, Name: base})
	}
	return all
}

// Up brings the schema to Version and returns what it applied. It may be
// repeated, and several processes may call it at once: one works, the others
// wait. The role must own the schema, or be allowed to create it.
func Up(ctx context.Context, conn *pgx.ConnConfig) ([]Migration, error) {
	if err := createSchema(ctx, conn); err != nil {
		return nil, err
	}
	if err := refuseNewer(ctx, conn); err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*pinned(conn))
	defer db.Close()
	files, err := fs.Sub(embedded, "sql")
	if err != nil {
		return nil, fmt.Errorf("reading embedded migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(lockEverySeconds, lockTries))
	if err != nil {
		return nil, fmt.Errorf("preparing the migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable),
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("reading embedded migrations: %w", err)
	}
	results, err := p.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrating schema %s: %w", Schema, err)
	}
	applied := make([]Migration, 0, len(results))
	for _, r := range results {
		applied = append(applied, Migration{Version: int(r.Source.Version), Name: path.Base(r.Source.Path)})
	}
	return applied, nil
}

// createSchema makes the schema unless it is there.
func createSchema(ctx context.Context, conn *pgx.ConnConfig) error {
	return with(ctx, conn, func(c *pgx.Conn) error {
		var there bool
		if err := c.QueryRow(ctx, `select to_regnamespace($1::text) is not null`, Schema).Scan(&there); err != nil {
			return fmt.Errorf("looking for schema %s: %w", Schema, err)
		}
		if there {
			return nil
		}
		_, err := c.Exec(ctx, "create schema "+Schema)
		// Two that create at once: the loser meets the name, or the
		// catalog's unique index.
		if code := sqlState(err); code == pgerrcode.DuplicateSchema || code == pgerrcode.UniqueViolation {
			return nil
		}
		if err != nil {
			return fmt.Errorf("creating schema %s (or let the database's owner create it for this role: create schema %s authorization <role>): %w",
				Schema, Schema, err)
		}
		return nil
	})
}

// refuseNewer keeps an older program from touching a newer schema.
func refuseNewer(ctx context.Context, conn *pgx.ConnConfig) error {
	var newer *VersionError
	if err := Check(ctx, conn); errors.As(err, &newer) && newer.Database > newer.Program {
		return err
	}
	return nil
}

// Status lists every migration that the program knows, oldest first, and when
// the database applied it. It writes nothing.
func Status(ctx context.Context, conn *pgx.ConnConfig) ([]Migration, error) {
	all := list()
	err := with(ctx, conn, func(c *pgx.Conn) error {
		applied, err := appliedVersions(ctx, c)
		for i := range all {
			all[i].AppliedAt = applied[all[i].Version]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Check returns nil when the schema is the one that this program needs, a
// *VersionError when it is older, newer or missing, and another error when
// that could not be found out. It writes nothing.
func Check(ctx context.Context, conn *pgx.ConnConfig) error {
	have := 0
	err := with(ctx, conn, func(c *pgx.Conn) error {
		applied, err := appliedVersions(ctx, c)
		for v := range applied {
			have = max(have, v)
		}
		return err
	})
	if err != nil {
		return err
	}
	if want := Version(); have != want {
		return &VersionError{Database: have, Program: want}
	}
	return nil
}

// appliedVersions reads the version table; a missing one is no error.
func appliedVersions(ctx context.Context, c *pgx.Conn) (map[int]time.Time, error) {
	var there bool
	err := c.QueryRow(ctx, `select exists (select from pg_tables where schemaname || '.' || tablename = $1)`, versionTable).Scan(&there)
	if err != nil {
		return nil, fmt.Errorf("looking for table %s: %w", versionTable, err)
	}
	if !there {
		return nil, nil
	}
	rows, err := c.Query(ctx, `select version_id, tstamp from `+versionTable+` where is_applied and version_id > 0`)
	if err != nil {
		return nil, fmt.Errorf("reading the schema version: %w", err)
	}
	applied := map[int]time.Time{}
	var version int
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error { applied[version] = at; return nil })
	if sqlState(err) == pgerrcode.InsufficientPrivilege {
		return nil, fmt.Errorf("reading the schema version (the role needs the grants that `outbox-relay setup --print` shows): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the schema version: %w", err)
	}
	return applied, nil
}

// with runs f on a connection of its own.
func with(ctx context.Context, conn *pgx.ConnConfig, f func(*pgx.Conn) error) error {
	c, err := pgx.ConnectConfig(ctx, pinned(conn))
	if err != nil {
		return fmt.Errorf("connecting for migrations: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	p := c.PgConn()
	if err := outbox.PinLate(p.ParameterStatus("server_version"), func(sql string) error { return p.Exec(ctx, sql).Close() }); err != nil {
		return err
	}
	return f(c)
}

// pinned returns a copy of conn with the settings of the relay.
func pinned(conn *pgx.ConnConfig) *pgx.ConnConfig {
	c := conn.Copy()
	maps.Copy(c.RuntimeParams, outbox.PinnedSettings())
	c.RuntimeParams["lock_timeout"] = lockTimeout
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "outbox-relay migrate"
	}
	return c
}

// sqlState gives the SQLSTATE of a server error, "" for any other.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
