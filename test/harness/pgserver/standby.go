package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// StandbyOptions says which standby is wanted.
type StandbyOptions struct {
	// Settings win over those of the primary.
	Settings map[string]string
	// SyncSlots makes the standby keep copies of the primary's failover slots
	// (PostgreSQL 17 and later): sync_replication_slots, hot_standby_feedback.
	SyncSlots bool
	// Database is the one that slot synchronisation connects to; "" = postgres.
	Database string
}

// Standby copies this running primary into a new server that streams from it
// through a physical slot. The standby belongs to the caller, who closes it.
func (s *Server) Standby(ctx context.Context, o StandbyOptions) (*Server, error) {
	options := s.options
	options.Major = s.major
	options.Settings = merge(s.options.Settings, o.Settings)
	b, err := prepare(ctx, options)
	if err != nil {
		return nil, err
	}
	b.version = s.version
	// The directory's number is unique in this process, as the slot must be.
	slot := "standby_" + strings.ReplaceAll(filepath.Base(b.dir), "-", "_")
	err = errors.Join(b.makeDirs(), s.backup(ctx, slot, b.DataDir()))
	if err == nil {
		err = b.follow(ctx, s, slot, o)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a standby: %w", err), b.Close())
	}
	return b, nil
}

func merge(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// follow writes the standby's settings and starts it.
func (s *Server) follow(ctx context.Context, primary *Server, slot string, o StandbyOptions) error {
	database := o.Database
	if database == "" {
		database = "postgres"
	}
	name := filepath.Base(s.dir)
	s.options.Settings = merge(map[string]string{
		"primary_slot_name": slot,
		"cluster_name":      name,
		"primary_conninfo": fmt.Sprintf("host=%s port=%d user=%s dbname=%s application_name=%s",
			primary.SocketDir(), primary.Port(), User, database, name),
	}, s.options.Settings)
	if o.SyncSlots {
		s.options.Settings["sync_replication_slots"] = "on"
		s.options.Settings["hot_standby_feedback"] = "on"
	}
	if err := s.configure(); err != nil {
		return err
	}
	if err := s.owner.writeFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o600); err != nil {
		return err
	}
	if err := s.owner.give(s.DataDir()); err != nil {
		return err
	}
	return s.boot(ctx)
}

// backup copies the data directory between the start and the stop of a base
// backup. WAL is not copied: slot keeps it for the standby to fetch.
func (s *Server) backup(ctx context.Context, slot, dst string) error {
	return s.admin(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "select pg_create_physical_replication_slot($1, true)", slot); err != nil {
			return fmt.Errorf("creating slot %s: %w", slot, err)
		}
		start, stop := "select pg_backup_start('standby', true)", "select labelfile, spcmapfile from pg_backup_stop(false)"
		if s.major < 15 {
			start, stop = "select pg_start_backup('standby', true, false)", "select labelfile, spcmapfile from pg_stop_backup(false, false)"
		}
		if _, err := conn.Exec(ctx, start); err != nil {
			return fmt.Errorf("starting the backup: %w", err)
		}
		if err := copyData(s.DataDir(), dst); err != nil {
			return fmt.Errorf("copying the data directory: %w", err)
		}
		var label, tablespaces string
		if err := conn.QueryRow(ctx, stop).Scan(&label, &tablespaces); err != nil {
			return fmt.Errorf("stopping the backup: %w", err)
		}
		return os.WriteFile(filepath.Join(dst, "backup_label"), []byte(label), 0o600)
	})
}

// leftOut are directories whose content must not be copied (PostgreSQL
// documentation, "Backing Up the Data Directory").
var leftOut = map[string]bool{
	"pg_wal": true, "pg_replslot": true, "pg_dynshmem": true, "pg_notify": true,
	"pg_serial": true, "pg_snapshots": true, "pg_stat_tmp": true, "pg_subtrans": true,
}

// copyData copies a live data directory. Files that vanish meanwhile are left
// out; recovery mends what is torn.
func copyData(src, dst string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		switch {
		case d.IsDir():
			if err := os.MkdirAll(to, 0o700); err != nil {
				return err
			}
			if leftOut[rel] {
				return emptyDir(rel, to)
			}
			return nil
		case rel == "postmaster.pid" || rel == "postmaster.opts" || !d.Type().IsRegular():
			return nil
		}
		return copyFile(path, to)
	})
}

// emptyDir makes the directories that the server expects inside rel.
func emptyDir(rel, to string) error {
	if rel == "pg_wal" {
		if err := os.MkdirAll(filepath.Join(to, "archive_status"), 0o700); err != nil {
			return err
		}
	}
	return fs.SkipDir
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// Promote ends recovery: the standby becomes a primary of a new timeline. It
// returns when the server takes writes.
func (s *Server) Promote(ctx context.Context) error {
	return s.admin(ctx, func(conn *pgx.Conn) error {
		var done bool
		if err := conn.QueryRow(ctx, "select pg_promote(true, 60)").Scan(&done); err != nil {
			return fmt.Errorf("promoting: %w", err)
		}
		if !done {
			return errors.New("promoting: the server did not leave recovery within 60 s")
		}
		return nil
	})
}

// WaitFor returns when this standby has replayed what primary has written by
// now.
func (s *Server) WaitFor(ctx context.Context, primary *Server) error {
	var target string
	err := primary.admin(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&target)
	})
	if err != nil {
		return fmt.Errorf("reading the primary's position: %w", err)
	}
	return s.admin(ctx, func(conn *pgx.Conn) error {
		return guard.Poll(ctx, "the standby to replay "+target, nil, func() (bool, error) {
			var done bool
			err := conn.QueryRow(ctx, "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", target).Scan(&done)
			return done, err
		})
	})
}
