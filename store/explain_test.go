package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: every statement against the outbox finds its rows by the primary key,
// never by a walk through the table or through the event ids, whether the
// table was analysed, never analysed, or analysed while it was empty.
func TestStatementsUseThePrimaryKey(t *testing.T) {
	t.Parallel()
	for _, layout := range []migrations.Layout{migrations.Plain, migrations.Partitioned} {
		for _, analyze := range []string{"never", "full", "empty"} {
			t.Run(fmt.Sprint(layout, " ", analyze), func(t *testing.T) {
				t.Parallel()
				conn, table := filled(t, layout, analyze)
				for name, sql := range table.statements() {
					plan := explain(t, conn, name, sql, table)
					if !strings.Contains(plan, "pkey") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "event_id_key") {
						t.Errorf("%s:\n%s", name, plan)
					}
				}
			})
		}
	}
}

// filled makes an outbox with 50,000 rows and sets what a Store sets.
func filled(t *testing.T, layout migrations.Layout, analyze string) (*pgx.Conn, Table) {
	t.Helper()
	conn := harness.SharedPostgres(t, 0).CreateDatabase(t).Conn(t)
	o := migrations.OutboxOptions{Layout: layout}
	ddl, err := migrations.OutboxDDL(o)
	if err != nil {
		t.Fatal(err)
	}
	table := Table{Schema: "public", Name: "outbox", Key: []Column{{Name: "id"}}, EventID: "event_id", Status: "status", SentAt: "sent_at"}
	if layout == migrations.Partitioned {
		ddl = append(ddl, `create table public.rest partition of public.outbox default`)
		table.Key = append(table.Key, Column{Name: "created_at"})
	}
	insert, statistics := `insert into public.outbox (aggregate_type, event_type) select 'a', 'b' from generate_series(1, 50000)`, `analyze public.outbox`
	switch analyze {
	case "empty":
		ddl = append(ddl, statistics, insert)
	case "full":
		ddl = append(ddl, insert, statistics)
	default:
		ddl = append(ddl, insert)
	}
	for name, value := range planSettings() {
		ddl = append(ddl, fmt.Sprintf("set %s = %s", name, value))
	}
	for _, sql := range ddl {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	table, err = table.resolve(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, table
}

// explain plans a statement for 500 rows.
func explain(t *testing.T, conn *pgx.Conn, name, sql string, table Table) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	array := func(text string) string { return "(select array_agg(" + text + ") from generate_series(1, 500) i)" }
	args := []string{array("i::text")}
	if len(table.Key) == 2 {
		args = append(args, array("now()::text"))
	}
	args = append(args, array("gen_random_uuid()::text"))
	switch name {
	case stmtShowFree:
		args = append(args, "2", "'{0}'")
	case stmtShowAll:
		args = append(args, "2", "'{0}'", "500")
	case stmtRemoveFree:
		args = append(args, "'{0}'")
	case stmtRemoveAll:
		args = append(args, "'{0}'", "500")
	}
	if _, err := conn.Exec(ctx, "prepare "+name+" as "+sql); err != nil {
		t.Fatal(err)
	}
	// EXECUTE takes no subqueries: the values go in as literals.
	for i, a := range args {
		if strings.HasPrefix(a, "(") {
			var literal string
			if err := conn.QueryRow(ctx, "select quote_literal("+a+"::text)").Scan(&literal); err != nil {
				t.Fatal(err)
			}
			args[i] = literal
		}
	}
	rows, err := conn.Query(ctx, "explain execute "+name+"("+strings.Join(args, ", ")+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.Join(lines, "\n")
}
