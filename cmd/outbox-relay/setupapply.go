package main

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// The results of a step.
const (
	stepDone    = "done"
	stepExists  = "exists"
	stepFailed  = "failed"
	stepSkipped = "skipped" // a step before it failed
)

// stepResult is what became of a step.
type stepResult struct {
	Name   string   `json:"name"`
	Result string   `json:"result"`
	Detail string   `json:"detail,omitempty"`
	SQL    []string `json:"sql,omitempty"` // to be run by somebody who may

	err error
}

// applier carries out a plan over one connection.
type applier struct {
	*plan
	app     *app
	conn    *pgx.ConnConfig
	admin   *cdc.Admin
	db      *pgx.Conn
	results []stepResult
}

func (a *app) applySetup(ctx context.Context, o setupOptions) error {
	l, err := a.loadForDatabase()
	if err != nil {
		return err
	}
	p, err := newPlan(&l.Config, o.role)
	if err != nil {
		return err
	}
	s := &applier{plan: p, app: a}
	if s.conn, err = queryConn(l); err != nil {
		return err
	}
	if s.admin, err = cdc.OpenAdmin(ctx, s.conn); err != nil {
		return fmt.Errorf("connecting with postgres.query: %w", err)
	}
	defer func() { _ = s.admin.Close(context.WithoutCancel(ctx)) }()
	pinned := s.conn.Copy()
	maps.Copy(pinned.RuntimeParams, outbox.PinnedSettings())
	if s.db, err = pgx.ConnectConfig(ctx, pinned); err != nil {
		return fmt.Errorf("connecting with postgres.query: %w", err)
	}
	defer func() { _ = s.db.Close(context.WithoutCancel(ctx)) }()
	conn := s.db.PgConn()
	if err := outbox.PinLate(conn.ParameterStatus("server_version"), func(sql string) error { return conn.Exec(ctx, sql).Close() }); err != nil {
		return err
	}
	question := fmt.Sprintf("Prepare database %s at %s as %s for role %s: outbox %s, publication %s, schema %s, slot %s?",
		s.conn.Database, s.conn.Host, s.conn.User, p.role, l.Config.Table.Name, p.target.Publication, migrations.Schema, p.target.Slot)
	if !o.yes && !a.agreed(question) {
		return &failure{code: exitUsage, err: errors.New("not confirmed: nothing was changed"), next: "outbox-relay setup --apply --yes"}
	}
	s.run(ctx)
	return s.answer()
}

// run takes the steps in order. What a failed step is needed for is skipped.
func (s *applier) run(ctx context.Context) {
	s.take(stepRole, s.role(ctx))
	table := s.take(stepTable, s.table(ctx))
	publication := table && s.take(stepPublication, s.publication(ctx))
	schema := s.take(stepSchema, s.schema(ctx))
	if !table {
		s.skip(stepPublication, "the table comes first")
	}
	if table && schema {
		s.take(stepGrants, s.grant(ctx))
	} else {
		s.skip(stepGrants, "tables come first")
	}
	if publication {
		s.take(stepSlot, s.slot(ctx))
	} else {
		s.skip(stepSlot, "the publication comes first")
	}
}

// take notes a step's result and says whether the next may follow.
func (s *applier) take(name string, r stepResult) bool {
	r.Name = name
	if r.err != nil {
		r.Result, r.Detail = stepFailed, r.err.Error()
		if r.SQL == nil {
			r.SQL = s.step(name).SQL
		}
	}
	s.results = append(s.results, r)
	if s.app.format == formatTable {
		fmt.Fprintf(s.app.out, "%-12s %-8s %s\n", r.Name, r.Result, r.Detail)
		for _, sql := range r.SQL {
			fmt.Fprintf(s.app.out, "    %s;\n", sql)
		}
	}
	return r.err == nil
}

func (s *applier) skip(name, why string) {
	s.take(name, stepResult{Result: stepSkipped, Detail: why})
}

func failed(err error) stepResult { return stepResult{err: err} }

func (s *applier) role(ctx context.Context) stepResult {
	f, err := scanRole(s.db.QueryRow(ctx, roleSQL, s.plan.role))
	switch {
	case err != nil:
		return failed(fmt.Errorf("looking for role %s: %w", s.plan.role, err))
	case !f.exists:
		if err := s.exec(ctx, stepRole); err != nil {
			return failed(err)
		}
		return stepResult{Result: stepDone, Detail: "created without a password; set one: \\password " + s.plan.role}
	case !f.login || !f.replication:
		sql := "alter role " + cdc.QuoteIdentifier(s.plan.role) + " login replication"
		if _, err := s.db.Exec(ctx, sql); err != nil {
			return stepResult{err: fmt.Errorf("letting role %s log in and replicate: %w", s.plan.role, err), SQL: []string{sql}}
		}
		return stepResult{Result: stepDone, Detail: "may log in and replicate now"}
	}
	return stepResult{Result: stepExists, Detail: s.plan.role}
}

func (s *applier) table(ctx context.Context) stepResult {
	f, err := s.admin.Facts(ctx, s.target)
	switch {
	case err != nil:
		return failed(err)
	case f.InRecovery:
		return stepResult{err: errors.New("this server is a standby; connect to the primary"), SQL: []string{}}
	case f.TableOID != 0:
		return stepResult{Result: stepExists, Detail: s.cfg.Table.Name}
	case len(s.step(stepTable).SQL) == 0:
		return failed(fmt.Errorf("table %s does not exist, and table.columns maps it, so it is not made here", s.cfg.Table.Name))
	}
	if err := s.exec(ctx, stepTable); err != nil {
		return failed(err)
	}
	return stepResult{Result: stepDone, Detail: "created " + s.cfg.Table.Name}
}

func (s *applier) publication(ctx context.Context) stepResult {
	f, err := s.admin.Facts(ctx, s.target)
	switch {
	case err != nil:
		return failed(err)
	case f.Publication == nil:
		if err := s.admin.CreatePublication(ctx, s.target); err != nil {
			return failed(err)
		}
		return stepResult{Result: stepDone, Detail: "created " + s.target.Publication}
	case f.Publication.Problem() != "":
		return failed(fmt.Errorf("%s, and it is not changed here; correct it, or drop it and run setup again", f.Publication.Problem()))
	}
	return stepResult{Result: stepExists, Detail: s.target.Publication}
}

func (s *applier) schema(ctx context.Context) stepResult {
	applied, err := migrations.Up(ctx, s.conn)
	if err != nil {
		owner := "create schema " + migrations.Schema + " authorization " + cdc.QuoteIdentifier(s.conn.User)
		return stepResult{err: err, SQL: []string{owner}}
	}
	if len(applied) == 0 {
		return stepResult{Result: stepExists, Detail: fmt.Sprintf("version %d", migrations.Version())}
	}
	return stepResult{Result: stepDone, Detail: fmt.Sprintf("migrated to version %d", migrations.Version())}
}

func (s *applier) grant(ctx context.Context) stepResult {
	if err := s.exec(ctx, stepGrants); err != nil {
		return failed(err)
	}
	return stepResult{Result: stepDone, Detail: "to " + s.plan.role}
}

func (s *applier) slot(ctx context.Context) stepResult {
	f, err := s.admin.Facts(ctx, s.target)
	switch {
	case err != nil:
		return failed(err)
	case f.Slot != nil && f.Slot.Lost():
		return stepResult{err: errors.New("it exists, and its log is lost: outbox-relay slot drop, then slot create"), SQL: []string{}}
	case f.Slot != nil:
		return stepResult{Result: stepExists, Detail: s.target.Slot}
	}
	maker := slotMaker{app: s.app, cfg: s.cfg, admin: s.admin, conn: s.conn, failover: s.cfg.Slot.Failover}
	before, err := maker.position(ctx)
	if err != nil {
		return failed(err)
	}
	if before != nil {
		return stepResult{err: errors.New("the relay has a position and its slot is gone: outbox-relay slot create says what that means"), SQL: []string{}}
	}
	err = s.admin.CreateSlot(ctx, cdc.SlotOptions{Name: s.target.Slot, Failover: s.cfg.Slot.Failover, Waiting: maker.waiting})
	if err != nil {
		return failed(err)
	}
	return stepResult{Result: stepDone, Detail: "created " + s.target.Slot}
}

// exec runs a step's statements in one transaction.
func (s *applier) exec(ctx context.Context, name string) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		for _, sql := range s.step(name).SQL {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("running %.60q: %w", sql, err)
			}
		}
		return nil
	})
}

// answer prints the document, and fails when a step failed. The exit code is
// that of the first failure.
func (s *applier) answer() error {
	if s.app.format == formatJSON {
		err := writeJSON(s.app.out, struct {
			document
			Role  string       `json:"role"`
			Steps []stepResult `json:"steps"`
		}{newDocument(), s.plan.role, s.results})
		if err != nil {
			return err
		}
	}
	for _, r := range s.results {
		if r.err != nil {
			code := cdc.Classify(r.err).Class.ExitCode()
			if r.Name == stepPublication && code == exitRuntime {
				code = exitPublication
			}
			return &failure{code: code, err: fmt.Errorf("step %s: %w", r.Name, r.err), hint: "have the statements shown run by somebody who may, then run this again"}
		}
	}
	return nil
}
