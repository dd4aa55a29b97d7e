package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
)

// queryConn gives the connection of postgres.query; what it cannot read is a
// mistake in the configuration.
func queryConn(l *config.Loaded) (*pgx.ConnConfig, error) {
	conn, err := l.Config.QueryConn()
	if err != nil {
		return nil, &failure{code: exitUsage, err: err, next: "outbox-relay config validate"}
	}
	return conn, nil
}

// target names what the catalog is asked about.
func target(c *config.Config) (cdc.Target, error) {
	schema, table, err := config.SplitTable(c.Table.Name)
	if err != nil {
		return cdc.Target{}, fmt.Errorf("reading table.name: %w", err)
	}
	return cdc.Target{Slot: c.Slot.Name, Publication: c.Publication.Name, Schema: schema, Table: table}, nil
}

// withAdmin runs f with an open catalog connection.
func (a *app) withAdmin(ctx context.Context, f func(*config.Loaded, *cdc.Admin) error) error {
	l, err := a.loadForDatabase()
	if err != nil {
		return err
	}
	conn, err := queryConn(l)
	if err != nil {
		return err
	}
	admin, err := cdc.OpenAdmin(ctx, conn)
	if err != nil {
		return fmt.Errorf("connecting with postgres.query: %w", err)
	}
	err = f(l, admin)
	if closed := admin.Close(context.WithoutCancel(ctx)); closed != nil && err != nil {
		return errors.Join(err, closed)
	}
	return err
}
