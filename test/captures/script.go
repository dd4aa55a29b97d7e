package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// script is a list of steps. A line that begins with "---" begins a step and
// says what it is about; "--- copy x" sends the lines below it to COPY x.
//
//go:embed script.sql
var script string

// connect opens a connection with the relay's own settings, so that the
// server's casts to text in the script print what its slots send.
func connect(ctx context.Context, dsn string, more map[string]string) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams = outbox.PinnedSettings()
	for name, value := range more {
		config.RuntimeParams[name] = value
	}
	return pgconn.ConnectConfig(ctx, config)
}

func runScript(ctx context.Context, dsn string) error {
	conn, err := connect(ctx, dsn, nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for step := range strings.SplitSeq(script, "--- ") {
		title, body, _ := strings.Cut(step, "\n")
		if err := runStep(ctx, conn, title, body); err != nil {
			return fmt.Errorf("running the step %q: %w", title, err)
		}
	}
	return nil
}

func runStep(ctx context.Context, conn *pgconn.PgConn, title, body string) error {
	if table, ok := strings.CutPrefix(title, "copy "); ok {
		rows := strings.TrimSpace(body) + "\n"
		_, err := conn.CopyFrom(ctx, strings.NewReader(rows), "copy "+table+" from stdin")
		return err
	}
	_, err := conn.Exec(ctx, body).ReadAll()
	return err
}
