package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// database is an empty database: on a throw-away server, or on the caller's.
type database struct {
	name    string // of the database and of the slot
	dsn     string
	version string           // for people
	server  *pgserver.Server // nil on the caller's server
	given   string           // the caller's connection string
}

// openDatabase starts a server and makes a database, or makes one on the server
// that dsn names. progress is told about a download.
func openDatabase(ctx context.Context, dsn string, progress io.Writer) (*database, error) {
	var tag [4]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return nil, fmt.Errorf("choosing a name: %w", err)
	}
	d := &database{name: "outbox_demo_" + hex.EncodeToString(tag[:]), given: dsn}
	open := d.onThrowAway
	if dsn != "" {
		open = func(ctx context.Context, _ io.Writer) error { return d.onGiven(ctx) }
	}
	if err := open(ctx, progress); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// onThrowAway starts a server of our own. Durable, so that the figures hold
// the cost of a real commit.
func (d *database) onThrowAway(ctx context.Context, progress io.Writer) error {
	server, err := pgserver.New(ctx, pgserver.Options{Durable: true, Progress: progress})
	if err != nil {
		return err
	}
	d.server = server
	if err := server.CreateDatabase(ctx, d.name); err != nil {
		return err
	}
	d.dsn = server.DSN(d.name)
	d.version = fmt.Sprintf("%d.%d", server.Version()/10000, server.Version()%10000)
	return nil
}

func (d *database) onGiven(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.given)
	if err != nil {
		return fmt.Errorf("connecting to the server that --dsn names: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var level string
	err = conn.QueryRow(ctx, "select current_setting('wal_level'), split_part(current_setting('server_version'), ' ', 1)").Scan(&level, &d.version)
	if err != nil {
		return fmt.Errorf("asking the server for its settings: %w", err)
	}
	if level != "logical" {
		return fmt.Errorf("the server has wal_level = %s: set it to logical and restart the server", level)
	}
	if d.dsn, err = withDatabase(d.given, d.name); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{d.name}.Sanitize()+" template template0 encoding 'UTF8'"); err != nil {
		return fmt.Errorf("creating database %s (the role needs CREATEDB and REPLICATION): %w", d.name, err)
	}
	return nil
}

// withDatabase puts another database into a connection string of either form.
func withDatabase(dsn, name string) (string, error) {
	if !strings.Contains(dsn, "://") {
		return dsn + " dbname=" + name, nil // the last one wins
	}
	u, err := url.Parse(dsn)
	if err != nil {
		// url's error repeats the string, and with it the password.
		return "", errors.New("reading --dsn: it is not a URL that can be parsed")
	}
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.Path, u.RawQuery = "/"+name, query.Encode()
	return u.String(), nil
}

// Connect opens a connection. The caller closes it.
func (d *database) Connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		return nil, fmt.Errorf("connecting to database %s: %w", d.name, err)
	}
	return conn, nil
}

// Close removes what was made. The relay must have ended.
func (d *database) Close() error {
	if d.server != nil {
		return d.server.Close()
	}
	if d.dsn == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.given)
	if err != nil {
		return fmt.Errorf("connecting to drop database %s: %w", d.name, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	// A walsender of a relay that was killed may hold the slot for a moment:
	// it is ended with the database's sessions.
	_, errEnd := conn.Exec(ctx, "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1", d.name)
	_, errSlot := conn.Exec(ctx, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = $1", d.name)
	_, errDrop := conn.Exec(ctx, "drop database if exists "+pgx.Identifier{d.name}.Sanitize()+" with (force)")
	if err := errors.Join(errEnd, errSlot, errDrop); err != nil {
		return fmt.Errorf("dropping database %s and its slot: %w", d.name, err)
	}
	return nil
}
