package cdc

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrConnectionString says that a connection string cannot be read. It holds
// no part of it: pgx masks passwords only as far as it can guess them, and a
// malformed string leaves it guessing.
var ErrConnectionString = errors.New("the connection string cannot be read: write it as a URL with special characters percent-encoded, " +
	"or as keyword=value pairs with values in single quotes, and check each setting's value; a password is best kept in a file of its own")

// ParseStreamDSN reads the connection string of the replication connection.
// The error is ErrConnectionString, whatever was wrong.
func ParseStreamDSN(dsn string) (*pgconn.Config, error) {
	c, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, ErrConnectionString
	}
	return c, nil
}

// ParseQueryDSN reads the connection string of ordinary connections; a
// setting replication in it is dropped. The error is ErrConnectionString,
// whatever was wrong.
func ParseQueryDSN(dsn string) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, ErrConnectionString
	}
	delete(c.RuntimeParams, "replication")
	return c, nil
}
