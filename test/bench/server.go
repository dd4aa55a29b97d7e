package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// major is the server whose distribution has pg_recvlogical.
const major = 15

const publication = "outbox_relay_pub"

// startServer starts the one PostgreSQL of all scenarios. Unlike the servers
// of the tests it syncs.
func startServer(ctx context.Context) (*pgserver.Server, error) {
	pg, err := pgserver.New(ctx, pgserver.Options{
		Major: major, Durable: true,
		Settings: map[string]string{"shared_buffers": "256MB", "max_wal_size": "8GB", "max_connections": "200"},
	})
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return pg, nil
}

// recvlogical is the path of the raw reader.
func recvlogical(pg *pgserver.Server) string { return filepath.Join(pg.BinDir(), "pg_recvlogical") }

// database is one database with an outbox, and the connection over which the
// bench looks at it. It belongs to one goroutine.
type database struct {
	pg   *pgserver.Server
	name string
	conn *pgx.Conn
	next int // number of the next slot
}

// createDatabase makes a database with the default outbox table and the
// relay's own schema.
func createDatabase(ctx context.Context, pg *pgserver.Server, name string) (*database, error) {
	if err := pg.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	conn, err := pg.Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &database{pg: pg, name: name, conn: conn}
	ddl, err := migrations.OutboxDDL(migrations.OutboxOptions{Publication: publication})
	if err != nil {
		return nil, err
	}
	for _, sql := range append(ddl, makePayload, makeLoader) {
		if err := d.exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	if _, err := migrations.Up(ctx, conn.Config()); err != nil {
		return nil, fmt.Errorf("migrating database %s: %w", name, err)
	}
	return d, nil
}

// drop removes the database with its slots.
func (d *database) drop(ctx context.Context) error {
	_ = d.conn.Close(ctx) // the server ends what is left of it
	return d.pg.DropDatabase(ctx, d.name)
}

// dsn is the way over a link.
func (d *database) dsn(link string) string {
	if link == unix {
		return d.pg.SocketDSN(d.name)
	}
	return d.pg.DSN(d.name)
}

func (d *database) exec(ctx context.Context, sql string, args ...any) error {
	if _, err := d.conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("running %.60q: %w", sql, err)
	}
	return nil
}

// ask runs a query of one row and one column.
func ask[T any](ctx context.Context, d *database, sql string, args ...any) (T, error) {
	var v T
	if err := d.conn.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		return v, fmt.Errorf("asking %.60q: %w", sql, err)
	}
	return v, nil
}

func askLSN(ctx context.Context, d *database, sql string, args ...any) (outbox.LSN, error) {
	text, err := ask[string](ctx, d, sql, args...)
	if err != nil {
		return 0, err
	}
	return outbox.ParseLSN(text)
}

// freshSlot makes a slot: a copy of base, or where base is "" one that starts
// now. Its name is new, so that no position row knows it.
func (d *database) freshSlot(ctx context.Context, base string) (string, error) {
	d.next++
	name := fmt.Sprintf("%s_s%d", d.name, d.next)
	if base == "" {
		return name, d.exec(ctx, "select pg_create_logical_replication_slot($1, 'pgoutput')", name)
	}
	return name, d.exec(ctx, "select pg_copy_logical_replication_slot($1, $2)", base, name)
}

// dropSlot waits until nobody reads the slot, then drops it.
func (d *database) dropSlot(ctx context.Context, slot string) error {
	err := poll(ctx, 10*time.Millisecond, func() (bool, error) {
		return ask[bool](ctx, d, "select not active from pg_replication_slots where slot_name = $1", slot)
	})
	if err != nil {
		return fmt.Errorf("waiting for slot %s to be free: %w", slot, err)
	}
	return d.exec(ctx, "select pg_drop_replication_slot($1)", slot)
}

// waitTaken waits until a walsender has the slot, and gives its process.
func (d *database) waitTaken(ctx context.Context, slot string) (pid int, at time.Time, err error) {
	err = poll(ctx, 2*time.Millisecond, func() (bool, error) {
		pid, err = ask[int](ctx, d, "select coalesce(active_pid, 0) from pg_replication_slots where slot_name = $1", slot)
		return pid != 0, err
	})
	return pid, time.Now(), err
}

// waitConfirmed waits until the slot's confirmed position has passed an LSN.
func (d *database) waitConfirmed(ctx context.Context, slot string, lsn outbox.LSN) (time.Time, error) {
	err := poll(ctx, 10*time.Millisecond, func() (bool, error) {
		return ask[bool](ctx, d, "select confirmed_flush_lsn > $2::text::pg_lsn from pg_replication_slots where slot_name = $1", slot, lsn.String())
	})
	return time.Now(), err
}

// poll asks again and again until the answer is yes. When ctx ends, its cause
// is the error.
func poll(ctx context.Context, every time.Duration, ok func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		yes, err := ok()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case yes:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
