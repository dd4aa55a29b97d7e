package config

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ReplicationConn gives the configuration of the stream's connection. The
// password file is read again at each connection made with it, so that a
// rotated password is used; the files of the TLS parameters are read now. The
// caller owns the result. The error says nothing secret.
func (c *Config) ReplicationConn() (*pgconn.Config, error) {
	conn, err := c.Postgres.connect("postgres.replication", c.Postgres.Replication)
	if err != nil {
		return nil, err
	}
	return &conn.Config, nil
}

// QueryConn does the same for everything else. It uses the stream's
// connection string when postgres.query is empty.
func (c *Config) QueryConn() (*pgx.ConnConfig, error) {
	if c.Postgres.Query == "" {
		return c.Postgres.connect("postgres.replication", c.Postgres.Replication)
	}
	return c.Postgres.connect("postgres.query", c.Postgres.Query)
}

func (p Postgres) connect(key, text string) (*pgx.ConnConfig, error) {
	db, err := openDSN(text, environment())
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	p.finish(db.conn)
	if p.PasswordFile == "" || hasPassword(text) {
		return db.conn, nil
	}
	if err := p.freshPassword(&db.conn.Config); err != nil {
		return nil, err
	}
	// The hook gets the configuration of that one connection, before it
	// authenticates.
	db.conn.AfterNetConnect = func(_ context.Context, one *pgconn.Config, c net.Conn) (net.Conn, error) {
		return c, p.freshPassword(one)
	}
	return db.conn, nil
}

// freshPassword puts the password of the file into conn.
func (p Postgres) freshPassword(conn *pgconn.Config) error {
	password, err := readSecret(p.PasswordFile)
	if err != nil {
		return fmt.Errorf("reading postgres.password_file %s: %w", p.PasswordFile, err)
	}
	conn.Password = password
	return nil
}

// finish sets what the string leaves open: the limit of one attempt, and,
// with several hosts, that only the one which takes writes will do. A standby
// can neither be written to nor hold our position row.
func (p Postgres) finish(conn *pgx.ConnConfig) {
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = p.ConnectTimeout
	}
	if conn.ValidateConnect == nil && severalHosts(conn) {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

func severalHosts(conn *pgx.ConnConfig) bool {
	for _, a := range attempts(conn)[1:] {
		if a.Host != conn.Host || a.Port != conn.Port {
			return true
		}
	}
	return false
}
