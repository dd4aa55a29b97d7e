package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
	"github.com/outboxrelay/outbox-relay/migrations"
)

// planStep is one step of the set-up: what it is for, and its statements.
type planStep struct {
	Name  string   `json:"name"`
	Title string   `json:"title"`
	Notes []string `json:"notes,omitempty"`
	SQL   []string `json:"sql"`
}

// plan is the set-up in the order in which it has to happen: the publication
// before the slot, because rows written before the publication exists can
// never be read from the log.
type plan struct {
	cfg    *config.Config
	target cdc.Target
	role   string
	steps  []*planStep
}

// The steps, by name.
const (
	stepRole        = "role"
	stepTable       = "table"
	stepPublication = "publication"
	stepSchema      = "schema"
	stepGrants      = "grants"
	stepSlot        = "slot"
)

// placeholderRole is used when neither flag nor connection string names one.
const placeholderRole = "outbox_relay"

func newPlan(cfg *config.Config, role string) (*plan, error) {
	t, err := target(cfg)
	if err != nil {
		return nil, err
	}
	p := &plan{cfg: cfg, target: t, role: role}
	if p.role == "" {
		p.role = placeholderRole
		if conn, err := cfg.ReplicationConn(); err == nil && cfg.Postgres.Replication != "" {
			p.role = conn.User
		}
	}
	table, publication, err := p.outbox()
	if err != nil {
		return nil, err
	}
	grants, err := p.grants()
	if err != nil {
		return nil, err
	}
	schema, err := p.schemaStep()
	if err != nil {
		return nil, err
	}
	p.steps = []*planStep{p.roleStep(), table, publication, schema, grants, p.slotStep()}
	return p, nil
}

func (p *plan) step(name string) *planStep {
	return p.steps[slices.IndexFunc(p.steps, func(s *planStep) bool { return s.Name == name })]
}

func (p *plan) roleStep() *planStep {
	role := cdc.QuoteIdentifier(p.role)
	return &planStep{
		Name: stepRole, Title: "the role " + p.role,
		Notes: []string{
			"Give it a password of its own (in psql: \\password " + p.role + ").",
			"Managed services grant replication otherwise: RDS and Aurora by grant rds_replication to the role.",
			"pg_hba.conf needs a line that names the database, such as: hostssl DATABASE " + p.role + " ADDRESS scram-sha-256",
		},
		SQL: []string{"create role " + role + " login replication connection limit 8"},
	}
}

// outbox makes the steps for the table and its publication. The statements
// for the table are for one that is to be made; a mapped table is there.
func (p *plan) outbox() (table, publication *planStep, err error) {
	ddl, err := migrations.OutboxDDL(migrations.OutboxOptions{
		Schema: p.target.Schema, Table: p.target.Table, Publication: p.target.Publication, FillFactor: p.fillFactor(),
	})
	if err != nil {
		return nil, nil, err
	}
	last := len(ddl) - 1
	table = &planStep{Name: stepTable, Title: "the outbox table", SQL: ddl[:last]}
	if p.cfg.Table.Columns != config.Default().Table.Columns {
		table.Notes = []string{"table.columns maps an existing table, so none is made."}
		table.SQL = []string{}
	}
	publication = &planStep{
		Name: stepPublication, Title: "the publication, always before the slot",
		Notes: []string{"Inserts only: one that publishes updates makes the application's updates fail on a table without a replica identity."},
		SQL:   ddl[last:],
	}
	return table, publication, nil
}

// fillFactor leaves room in each page where the status is updated in place.
func (p *plan) fillFactor() int {
	switch p.cfg.EffectiveWriteBack() {
	case "status", "async":
		return 50
	default:
		return 100
	}
}

// schemaStep holds the migrations themselves, so that the printed script is
// whole.
func (p *plan) schemaStep() (*planStep, error) {
	files, err := migrations.Print(migrations.FormatSQL)
	if err != nil {
		return nil, err
	}
	s := &planStep{
		Name: stepSchema, Title: "the relay's own tables, as outbox-relay migrate up makes them",
		Notes: []string{"For a project that runs its own migrations: outbox-relay migrate print."},
	}
	for _, f := range files {
		s.SQL = append(s.SQL, strings.TrimSuffix(strings.TrimSpace(f.SQL), ";"))
	}
	return s, nil
}

func (p *plan) grants() (*planStep, error) {
	o := migrations.GrantOptions{Role: p.role, Schema: p.target.Schema, Table: p.target.Table}
	switch p.cfg.EffectiveWriteBack() {
	case "delete":
		o.Writes = migrations.WritesDelete
	case "off":
		o.Writes = migrations.WritesNothing
	}
	for _, column := range []config.Column{p.cfg.Table.Columns.Status, p.cfg.Table.Columns.SentAt} {
		if column != "" {
			o.StatusColumns = append(o.StatusColumns, string(column))
		}
	}
	if len(o.StatusColumns) == 0 {
		o.StatusColumns = []string{string(p.cfg.Table.Columns.ID)}
	}
	if conn, err := p.cfg.QueryConn(); err == nil {
		o.Database = conn.Database
	}
	sql, err := migrations.Grants(o)
	if err != nil {
		return nil, err
	}
	return &planStep{Name: stepGrants, Title: "the grants, after the relay's tables are there", SQL: sql}, nil
}

func (p *plan) slotStep() *planStep {
	failover, notes := ", false, false", []string{"It waits for every transaction that runs now. From here on the server keeps its log until the relay reads it."}
	if p.cfg.Slot.Failover {
		failover = ", false, false, true"
		notes = append(notes, "The last argument makes a failover slot (PostgreSQL 17 and later).")
	}
	return &planStep{
		Name: stepSlot, Title: "the slot", Notes: notes,
		SQL: []string{fmt.Sprintf("select pg_create_logical_replication_slot(%s, 'pgoutput'%s)", literal(p.target.Slot), failover)},
	}
}

// literal quotes a string constant for a script. It uses no backslash escape.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// roleFacts is what the catalog says about a role.
type roleFacts struct {
	exists, login, replication bool
	current                    bool // it is the role of this connection
}

const roleSQL = `select r.rolcanlogin, r.rolsuper or r.rolreplication
    or coalesce((select pg_has_role(r.oid, p.oid, 'member') from pg_roles p where p.rolname = 'rds_replication'), false),
    r.rolname = current_user
  from pg_roles r where r.rolname = $1::text`

func scanRole(row pgx.Row) (f roleFacts, err error) {
	f.exists = true
	err = row.Scan(&f.login, &f.replication, &f.current)
	if errors.Is(err, pgx.ErrNoRows) {
		return roleFacts{}, nil
	}
	return f, err
}
