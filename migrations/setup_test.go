package migrations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// catalog describes every table, index and constraint of the schema.
const catalog = `select string_agg(x, E'\n' order by x) from (
	select format('%s.%s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, attidentity) x
	from pg_attribute join pg_class c on c.oid = attrelid where relnamespace = to_regnamespace('outbox_relay') and attnum > 0 and relkind = 'r'
	union all select indexdef from pg_indexes where schemaname = 'outbox_relay'
	union all select conrelid::regclass || ' ' || pg_get_constraintdef(oid) from pg_constraint where connamespace = to_regnamespace('outbox_relay')
	union all select 'version ' || version_id || is_applied from outbox_relay.goose_db_version) s`

// Law: the printed SQL, run by hand and then again, leaves exactly what Up
// leaves, the version included; and Up has nothing to do after it. It runs on
// the oldest and the newest supported server that this machine has or can get.
func TestPrintedSQLEqualsUp(t *testing.T) {
	t.Parallel()
	p := harness.SharedPostgres(t, 0)
	byUp := p.CreateDatabase(t)
	up(t, config(t, byUp.DSN()))
	want := byUp.Query1(t, catalog)
	for _, f := range []migrations.Format{migrations.FormatSQL, migrations.FormatFlyway, migrations.FormatLiquibase} {
		db := p.CreateDatabase(t)
		files, err := migrations.Print(f)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, file := range files {
				db.Exec(t, file.SQL)
			}
		}
		if got := db.Query1(t, catalog); got != want {
			t.Errorf("%s leaves\n%s\nwant\n%s", f, got, want)
		}
		if err := migrations.Check(t.Context(), config(t, db.DSN())); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		if applied := up(t, config(t, db.DSN())); len(applied) != 0 {
			t.Errorf("after %s Up applied %v", f, applied)
		}
	}
}

// Law: the DDL works for any legal name, in both layouts, on every supported
// server; the publication publishes inserts only, and no index of the outbox
// mentions a column that success touches.
func TestOutboxDDLWorks(t *testing.T) {
	t.Parallel()
	for _, major := range []int{0, 14, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			p := harness.SharedPostgres(t, major)
			for _, o := range []migrations.OutboxOptions{
				{}, {Schema: `we"ird`, Table: `o;drop 'é`, Publication: `pub "x"`},
				{Layout: migrations.Partitioned}, {Layout: migrations.Partitioned, Schema: `we"ird`, Table: `p's "q`},
			} {
				outboxWorks(t, p.CreateDatabase(t), o)
			}
		})
	}
}

func outboxWorks(t *testing.T, db *harness.Database, o migrations.OutboxOptions) {
	t.Helper()
	conn := db.Conn(t)
	if o.Schema != "" {
		exec(t, conn, `create schema "we""ird"`)
	}
	ddl, err := migrations.OutboxDDL(o)
	if err != nil {
		t.Fatal(err)
	}
	if o.Layout == migrations.Partitioned {
		day, err := migrations.PartitionDDL(o, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ddl = append(ddl, day)
	}
	exec(t, conn, ddl...)
	name := db.Query1(t, `select format('%I.%I', schemaname, tablename) from pg_publication_tables`)
	exec(t, conn, `insert into `+name+` (aggregate_type, event_type) values ('a', 'b')`)
	if got := db.Query1(t, `select count(*) from `+name+` where status = 0 and id = 1`); got != "1" {
		t.Errorf("%+v: %s rows READY with id 1, want 1", o, got)
	}
	if got := db.Query1(t, `select format('%s%s%s%s', pubinsert, pubupdate, pubdelete, pubtruncate) from pg_publication`); got != "tfff" {
		t.Errorf("%+v: publication publishes %s, want inserts only", o, got)
	}
	if got := db.Query1(t, `select count(*) from pg_indexes where indexdef ~ 'status|sent_at|consumed_at'`); got != "0" {
		t.Errorf("%+v: an index mentions a status column", o)
	}
}

// Law: the grants suffice for what the relay does to the outbox and to its
// own tables, and for no more: payloads, keys and the audit stay unwritable.
func TestGrantsAreEnoughAndNoMore(t *testing.T) {
	t.Parallel()
	db := harness.SharedPostgres(t, 0).CreateDatabase(t)
	role := "granted_" + db.Name()
	up(t, config(t, db.DSN()))
	conn := db.Conn(t)
	ddl, err := migrations.OutboxDDL(migrations.OutboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	grants, err := migrations.Grants(migrations.GrantOptions{Role: role, Database: db.Name()})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, append(append(ddl, "create role "+role), grants...)...)
	t.Cleanup(func() { db.Exec(t, `drop owned by `+role+`; drop role `+role) })
	exec(t, conn, `insert into public.outbox (aggregate_type, event_type) values ('a', 'b')`, `set role `+role,
		`with l as (select id from public.outbox for no key update skip locked)
		 update public.outbox o set status = 2, sent_at = now() from l where o.id = l.id`,
		`insert into outbox_relay.line (relay, topic, order_hash, holds, parked_at, since) values ('r', 't', '\x00', false, now(), now())`,
		`delete from outbox_relay.line`, `insert into outbox_relay.audit (who, relay, verb) values ('w', 'r', 'v')`)
	for _, refused := range []string{
		`update public.outbox set payload = '\x00'`, `delete from public.outbox`, `insert into public.outbox (aggregate_type, event_type) values ('a', 'b')`,
		`update outbox_relay.audit set who = 'x'`, `delete from outbox_relay.audit`, `update outbox_relay.goose_db_version set is_applied = false`,
		`create table outbox_relay.x (i int)`,
	} {
		if _, err := conn.Exec(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v, want permission denied", refused, err)
		}
	}
}
