package pgserver

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// CreateDatabase makes an empty database.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, func(conn *pgx.Conn) error {
		// template0: nobody is ever connected to it, so parallel tests do not
		// refuse each other with "being accessed by other users".
		_, err := conn.Exec(ctx, "create database "+ident(name)+" template template0")
		if err != nil {
			return fmt.Errorf("creating database %s: %w", name, err)
		}
		return nil
	})
}

// DropDatabase ends the sessions of a database, walsenders included, drops its
// logical slots, and then the database. One that is not there is no error.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, func(conn *pgx.Conn) error {
		err := guard.Poll(ctx, "the slots of "+name+" to go", nil, func() (bool, error) {
			return dropSlots(ctx, conn, name)
		})
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "drop database if exists "+ident(name)+" with (force)"); err != nil {
			return fmt.Errorf("dropping database %s: %w", name, err)
		}
		return nil
	})
}

// dropSlots ends the users of the database's slots and drops what is free. It
// is done when none is left. A slot may be taken or dropped by others between
// two statements, so errors only mean another round.
func dropSlots(ctx context.Context, conn *pgx.Conn, database string) (bool, error) {
	rows, err := conn.Query(ctx, "select slot_name::text, coalesce(active_pid, 0) from pg_replication_slots where database = $1", database)
	if err != nil {
		return false, err
	}
	type slot struct {
		Name string
		PID  int
	}
	slots, err := pgx.CollectRows(rows, pgx.RowToStructByPos[slot])
	if err != nil {
		return false, err
	}
	for _, s := range slots {
		if s.PID != 0 {
			_, _ = conn.Exec(ctx, "select pg_terminate_backend($1)", s.PID)
			continue
		}
		_, _ = conn.Exec(ctx, "select pg_drop_replication_slot($1)", s.Name)
	}
	return len(slots) == 0, nil
}

// Role is a role that can log in.
type Role struct {
	Name, Password string   // the password is kept as SCRAM-SHA-256; "" sets none
	Attributes     []string // for example "REPLICATION"
}

// CreateRole makes a role.
func (s *Server) CreateRole(ctx context.Context, r Role) error {
	return s.admin(ctx, func(conn *pgx.Conn) error {
		sql := "create role " + ident(r.Name) + " login"
		for _, a := range r.Attributes {
			sql += " " + a
		}
		if r.Password != "" {
			quoted, err := conn.PgConn().EscapeString(r.Password)
			if err != nil {
				return fmt.Errorf("quoting the password of %s: %w", r.Name, err)
			}
			sql += " password '" + quoted + "'"
		}
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("creating role %s: %w", r.Name, err)
		}
		return nil
	})
}

// admin lends a superuser connection to database postgres.
func (s *Server) admin(ctx context.Context, use func(*pgx.Conn) error) error {
	conn, err := s.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return use(conn)
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
