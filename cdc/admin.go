package cdc

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// Admin answers questions about the slot and the catalog, and makes and drops
// slots, over one ordinary connection. One goroutine at a time may use it.
// Every call is bounded by its context alone; an expired context closes the
// connection, and the caller opens another.
type Admin struct {
	conn   *pgx.Conn
	config *pgx.ConnConfig
}

// adminApplicationName is not the stream's name on purpose: only a walsender
// can be a synchronous standby, and people should see which is which.
const adminApplicationName = "outbox_relay_admin"

// OpenAdmin connects. cfg is not changed. Errors name host, port, user and
// database and nothing else of it.
func OpenAdmin(ctx context.Context, cfg *pgx.ConnConfig) (*Admin, error) {
	conn := cfg.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = map[string]string{}
	}
	delete(conn.RuntimeParams, "replication")
	maps.Copy(conn.RuntimeParams, outbox.PinnedSettings())
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = adminApplicationName
	}
	// No named statements: the connection may lead through a pooler.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {} // what a notice says, the facts say too
	c, err := pgx.ConnectConfig(ctx, conn)
	if err != nil {
		return nil, connectError(&conn.Config, err)
	}
	if err := pinLate(ctx, c.PgConn()); err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	return &Admin{conn: c, config: conn}, nil
}

// Close ends the connection.
func (a *Admin) Close(ctx context.Context) error {
	if err := a.conn.Close(ctx); err != nil {
		return fmt.Errorf("closing the admin connection: %w", err)
	}
	return nil
}

// Broken says that the connection is gone, so that a new Admin is needed.
func (a *Admin) Broken() bool { return a.conn.IsClosed() }

// ask runs a query of one row with one jsonb and reads it into v. No row and
// null leave v as it is.
func (a *Admin) ask(ctx context.Context, v any, sql string, args ...any) error {
	rows, err := a.conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		if text := rows.RawValues()[0]; text != nil {
			if err := json.Unmarshal(text, v); err != nil {
				return fmt.Errorf("reading the server's answer: %w", err)
			}
		}
	}
	rows.Close()
	return rows.Err()
}
