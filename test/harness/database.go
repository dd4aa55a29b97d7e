package harness

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Database is one database of a server.
type Database struct {
	server *Postgres
	name   string
}

// CreateDatabase makes a fresh database. It is dropped when the test ends,
// with its slots and whoever uses them, if the server runs then.
func (p *Postgres) CreateDatabase(t testing.TB) *Database {
	t.Helper()
	d := &Database{server: p, name: fmt.Sprintf("test_%d", p.next.Add(1))}
	p.try(t, func(ctx context.Context) error { return p.Server.CreateDatabase(ctx, d.name) })
	t.Cleanup(func() {
		if p.Running() {
			p.try(t, func(ctx context.Context) error { return p.DropDatabase(ctx, d.name) })
		}
	})
	return d
}

// On gives the same database on another server, for example on a standby.
func (d *Database) On(p *Postgres) *Database { return &Database{server: p, name: d.name} }

// Name is the database's name.
func (d *Database) Name() string { return d.name }

// Server is the server that holds the database.
func (d *Database) Server() *Postgres { return d.server }

// DSN connects as superuser over 127.0.0.1.
func (d *Database) DSN() string { return d.server.DSN(d.name) }

// SocketDSN connects as superuser over the unix socket.
func (d *Database) SocketDSN() string { return d.server.SocketDSN(d.name) }

// Exec runs one statement on a connection of its own; without arguments it may
// also be several statements with semicolons between.
func (d *Database) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	d.server.try(t, func(ctx context.Context) error {
		conn, err := d.server.Connect(ctx, d.name)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		if len(args) == 0 {
			_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
		} else {
			_, err = conn.Exec(ctx, sql, args...)
		}
		if err != nil {
			return fmt.Errorf("executing %s: %w", sql, err)
		}
		return nil
	})
}

// Query1 gives the first column of the first row as PostgreSQL writes it, "" for
// null. No row fails the test.
func (d *Database) Query1(t testing.TB, sql string, args ...any) string {
	t.Helper()
	var text string
	d.server.try(t, func(ctx context.Context) error {
		conn, err := d.server.Connect(ctx, d.name)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		text, err = firstText(ctx, conn, sql, args)
		return err
	})
	return text
}

// firstText reads in the text format, which every type has.
func firstText(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, error) {
	rows, err := conn.Query(ctx, sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return "", fmt.Errorf("querying %s: %w", sql, err)
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return "", fmt.Errorf("querying %s: %w", sql, err)
		}
		return "", fmt.Errorf("querying %s: %w", sql, pgx.ErrNoRows)
	}
	text := string(rows.RawValues()[0])
	rows.Close()
	return text, rows.Err()
}

// Conn opens a connection that is closed when the test ends.
func (d *Database) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	var conn *pgx.Conn
	d.server.try(t, func(ctx context.Context) (err error) {
		conn, err = d.server.Connect(ctx, d.name)
		return err
	})
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
