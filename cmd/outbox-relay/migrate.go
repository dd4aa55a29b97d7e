package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "make or update the relay's own tables",
		`Make or update the relay's own tables, all in schema outbox_relay. The outbox
table, the publication and the grants are not touched: see setup.`,
		a.migrateUpCommand(), a.migrateStatusCommand(), a.migratePrintCommand())
}

// queryConn gives the connection of postgres.query for a short command.
func (a *app) queryConn() (*pgx.ConnConfig, error) {
	l, err := a.loadForDatabase()
	if err != nil {
		return nil, err
	}
	return queryConn(l)
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "apply what is missing",
		Long: `Apply every migration that the database lacks. It can be repeated, also by
several processes at once. The role of postgres.query must own schema
outbox_relay, or be allowed to create it.`,
		Example: "  outbox-relay migrate up",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := a.queryConn()
			if err != nil {
				return err
			}
			applied, err := migrations.Up(c.Context(), conn)
			if err != nil {
				return err
			}
			if a.format == formatJSON {
				return a.migrationsDocument(applied)
			}
			for _, m := range applied {
				fmt.Fprintf(a.out, "applied %s\n", m.Name)
			}
			_, err = fmt.Fprintf(a.out, "schema %s has version %d\n", migrations.Schema, migrations.Version())
			return err
		},
	}
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "list the migrations and when they were applied",
		Example: "  outbox-relay migrate status -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := a.queryConn()
			if err != nil {
				return err
			}
			all, err := migrations.Status(c.Context(), conn)
			if err != nil {
				return err
			}
			if a.format == formatJSON {
				return a.migrationsDocument(all)
			}
			t := table{head: []string{"VERSION", "NAME", "APPLIED"}}
			for _, m := range all {
				at := "no: outbox-relay migrate up"
				if !m.AppliedAt.IsZero() {
					at = m.AppliedAt.UTC().Format(time.RFC3339)
				}
				t.row(fmt.Sprint(m.Version), m.Name, at)
			}
			return t.write(a.out)
		},
	}
}

// migration is one entry of migrate -o json.
type migration struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // null: not applied; left open by up
}

func (a *app) migrationsDocument(all []migrations.Migration) error {
	doc := struct {
		document
		Schema     string      `json:"schema"`
		Needs      int         `json:"needs"`
		Migrations []migration `json:"migrations"`
	}{newDocument(), migrations.Schema, migrations.Version(), []migration{}}
	for _, m := range all {
		one := migration{Version: m.Version, Name: m.Name}
		if !m.AppliedAt.IsZero() {
			one.AppliedAt = &m.AppliedAt
		}
		doc.Migrations = append(doc.Migrations, one)
	}
	return writeJSON(a.out, doc)
}

func (a *app) migratePrintCommand() *cobra.Command {
	var format, dir string
	c := &cobra.Command{
		Use:   "print",
		Short: "print the migrations for another tool",
		Long: `Print the migrations for a project that runs its own: as plain SQL, or in the
form of goose, Flyway or Liquibase. What they leave is what "migrate up" leaves,
the version included. It connects to nothing.`,
		Example: "  outbox-relay migrate print | psql\n  outbox-relay migrate print --format flyway --dir db/migration",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if !slices.Contains(migrations.Formats(), migrations.Format(format)) {
				return usage("unknown format %q: want one of %v", format, migrations.Formats())
			}
			files, err := migrations.Print(migrations.Format(format))
			if err != nil {
				return err
			}
			if dir != "" {
				return a.writeFiles(dir, files)
			}
			if len(files) > 1 && format != string(migrations.FormatSQL) {
				return usage("there are %d files: name a folder with --dir", len(files))
			}
			for _, f := range files {
				if _, err := fmt.Fprint(a.out, f.SQL); err != nil {
					return fmt.Errorf("writing the answer: %w", err)
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", string(migrations.FormatSQL), fmt.Sprintf("one of %v", migrations.Formats()))
	c.Flags().StringVar(&dir, "dir", "", "write one file each into this folder; files that are there already are an error")
	return c
}

// writeFiles writes migrations that are not there yet.
func (a *app) writeFiles(dir string, files []migrations.File) error {
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		_, err = out.WriteString(f.SQL)
		if err := errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		fmt.Fprintln(a.out, name)
	}
	return nil
}
