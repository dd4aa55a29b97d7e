package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: one statement gives the facts on every version, to a role with no right
// but CONNECT, and they are what the catalog says.
// Case F61 of docs/guarantees.md.
func TestFacts(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		role := "facts_" + b.Name()
		b.Server().CreateRole(t, role, "")
		t.Cleanup(func() { b.Exec(t, "drop role "+role) })
		s := b.stream(t)
		b.insert(t, "x")
		end := next(t, s).commit.EndLSN
		if err := s.Confirm(end, true); err != nil {
			t.Fatal(err)
		}
		keepaliveAt(t, s, end)
		for _, dsn := range []string{b.DSN(), b.Server().DSNAs(b.Name(), role, "")} {
			f, err := openAdmin(t, dsn).Facts(t.Context(), b.target())
			if err != nil {
				t.Fatal(err)
			}
			if f.SystemID != s.Identity().SystemID || f.Timeline != 1 || f.ServerVersion != s.Identity().ServerVersion || f.Database != b.Name() || f.InRecovery {
				t.Errorf("server: %+v", f)
			}
			sl := f.Slot
			if sl == nil || sl.Plugin != "pgoutput" || sl.Type != "logical" || sl.Database != b.Name() || !sl.Active || sl.ActivePID != s.Identity().BackendPID ||
				sl.ConfirmedLSN != end || sl.WALStatus != "reserved" || sl.Lost() || sl.RestartLSN == 0 || sl.CatalogXminAge < 0 {
				t.Errorf("slot: %+v", sl)
			}
			if sl.LagBytes != int64(f.FlushLSN-sl.ConfirmedLSN) || sl.RetainedBytes != int64(f.FlushLSN-sl.RestartLSN) || sl.LagBytes > sl.RetainedBytes {
				t.Errorf("differences: %+v at %v", sl.SlotWAL, f.FlushLSN)
			}
			if f.Walsender == nil || f.Walsender.PID != sl.ActivePID || f.Walsender.User != "postgres" {
				t.Errorf("walsender: %+v", f.Walsender)
			}
			if p := f.Publication; p.Problem() != "" || !p.HasTable || (b.Server().Major() >= 15) != slices.Equal(p.Columns, []string{"id", "payload"}) {
				t.Errorf("publication: %+v", p)
			}
			if f.TableOID == 0 || time.Since(f.At) > time.Minute || f.Synchronous {
				t.Errorf("table %d, at %v, synchronous %v", f.TableOID, f.At, f.Synchronous)
			}
		}
		none, err := openAdmin(t, b.DSN()).Facts(t.Context(), Target{Slot: "no", Publication: "no", Schema: "no", Table: "no"})
		if err != nil || none.Slot != nil || none.Publication != nil || none.Walsender != nil || none.TableOID != 0 {
			t.Errorf("facts about nothing: %+v, %v", none, err)
		}
	})
}

// Law: a publication that stops being whole shows at once, whichever way it
// was broken (F26, F27, F28).
func TestFactsSeeABrokenPublication(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		admin := openAdmin(t, b.DSN())
		b.Exec(t, "create table other (id int primary key)")
		for _, c := range []struct {
			sql, problem string
			since        int
		}{
			{"alter publication pub set (publish = 'insert, update')", "publishes updates", 14},
			{"alter publication pub set (publish = 'delete')", "does not publish inserts", 14},
			{"alter publication pub set (publish = 'insert')", "", 14},
			{"alter publication pub add table other", "other tables", 14},
			{"alter publication pub drop table other", "", 14},
			{"alter publication pub set table outbox where (id > 5)", "filters rows", 15},
			{"alter publication pub set table outbox", "", 14},
			{"alter publication pub drop table outbox", "does not contain", 14},
			{"drop publication pub; create publication pub for all tables", "all tables", 14},
			{"drop publication pub; create publication pub for tables in schema public with (publish = 'insert')", "other tables", 15},
			{"drop table other", "", 15},
			{"drop publication pub", "does not exist", 14},
		} {
			if b.Server().Major() < c.since {
				continue
			}
			b.Exec(t, c.sql)
			f, err := admin.Facts(t.Context(), b.target())
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Publication.Problem(); (c.problem == "") != (got == "") || !strings.Contains(got, c.problem) {
				t.Errorf("%s: problem %q, want %q", c.sql, got, c.problem)
			}
		}
	})
}

// Law: CreatePublication and the preflight agree on partitioned tables: through
// the root it is whole, else the preflight says so although each partition is
// published.
// Case F28 of docs/guarantees.md.
func TestPartitionedTable(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		admin := openAdmin(t, b.DSN())
		b.Exec(t, `drop publication pub; drop table outbox;
			create table outbox (id bigint, payload text, primary key (id)) partition by range (id);
			create table p1 partition of outbox for values from (0) to (10);
			create table p2 partition of outbox for values from (10) to (20)`)
		if err := admin.CreatePublication(t.Context(), b.target()); err != nil {
			t.Fatal(err)
		}
		o := PreflightOptions{Target: b.target(), Mapping: decode.Mapping{ID: "id", Payload: "payload"}}
		codes := func() string {
			findings, table, err := admin.Preflight(t.Context(), o)
			if err != nil || !table.Partitioned() {
				t.Fatalf("%+v, %v", table, err)
			}
			return errorCodes(findings)
		}
		if got := codes(); got != "" {
			t.Errorf("through the root: %s", got)
		}
		b.Exec(t, "alter publication pub set (publish_via_partition_root = false)")
		if got := codes(); got != "publication.via_root" {
			t.Errorf("not through the root: %s", got)
		}
		b.Exec(t, "drop publication pub; create publication pub for table p1 with (publish = 'insert')")
		if got := codes(); got != "publication.no_table publication.via_root" {
			t.Errorf("one partition of two: %s", got)
		}
	})
}

// Law: on real servers too, each bad set-up gives its code, the sound one none,
// and the SQL of the fix really fixes it.
// Cases F7, F60 of docs/guarantees.md.
func TestPreflightOnServers(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		admin := openAdmin(t, b.DSN())
		o := PreflightOptions{Target: b.target(), Mapping: decode.Mapping{ID: "id", Payload: "payload"}}
		look := func() (string, []Finding, *TableInfo) {
			findings, table, err := admin.Preflight(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return errorCodes(findings), findings, table
		}
		got, findings, table := look()
		if got != "" {
			t.Fatalf("sound: %s: %+v", got, findings)
		}
		if len(table.PrimaryKey) != 1 || table.PrimaryKey[0].TypeName != "bigint" || table.Columns[1].Name != "payload" || table.Columns[1].TypeOID != 25 {
			t.Errorf("table: %+v", table)
		}
		if !hasCode(findings, "role.superuser") {
			t.Error("no warning of the superuser")
		}
		for _, c := range []struct {
			code, breaks, repairs string // repairs "": the fix does
			since                 int
		}{
			{"publication.updates", "alter publication pub set (publish = 'insert, update')", "", 14},
			{"publication.no_insert", "alter publication pub set (publish = 'truncate')", "", 14},
			{"publication.no_table", "alter publication pub drop table outbox", "", 14},
			{"publication.other_tables", "create table other (id int); alter publication pub add table other", "", 14},
			{"publication.row_filter", "alter publication pub set table outbox where (id > 1)", "", 15},
			{"publication.column_list", "alter publication pub set table outbox (id)", "", 15},
			{"publication.all_tables", "drop publication pub; create publication pub for all tables with (publish = 'insert')", "", 14},
			{"publication.missing", "drop publication pub", "", 14},
			{"slot.missing", "select pg_drop_replication_slot('" + b.slot + "')", "", 14},
			{"slot.plugin", "select pg_drop_replication_slot('" + b.slot + "'); select pg_create_logical_replication_slot('" + b.slot + "', 'test_decoding')",
				"select pg_drop_replication_slot('" + b.slot + "'); select pg_create_logical_replication_slot('" + b.slot + "', 'pgoutput')", 14},
			{"slot.two_phase", "select pg_drop_replication_slot('" + b.slot + "'); select pg_create_logical_replication_slot('" + b.slot + "', 'pgoutput', false, true)",
				"select pg_drop_replication_slot('" + b.slot + "'); select pg_create_logical_replication_slot('" + b.slot + "', 'pgoutput')", 14},
			{"table.no_primary_key", "alter table outbox drop constraint outbox_pkey", "alter table outbox add primary key (id)", 14},
			{"table.mapping", "alter table outbox alter payload type text[] using array[payload]", "alter table outbox alter payload type text using payload[1]", 14},
			{"table.mapping", "alter table outbox rename payload to body", "alter table outbox rename body to payload", 14},
		} {
			if b.Server().Major() < c.since {
				continue
			}
			b.Exec(t, c.breaks)
			got, findings, _ := look()
			if got != c.code {
				t.Errorf("%s: %s, want %s", c.breaks, got, c.code)
			}
			repair := c.repairs
			if i := slices.IndexFunc(findings, func(f Finding) bool { return f.Code == c.code }); repair == "" && i >= 0 {
				repair = findings[i].Fix
			}
			b.Exec(t, repair)
			if got, _, _ := look(); got != "" {
				t.Fatalf("after %s: %s", repair, got)
			}
		}
		b.Exec(t, "create table plain (id int)")
		o.Table = "nosuch"
		if got, _, table := look(); got != "table.missing publication.no_table publication.other_tables" && got != "table.missing publication.no_table" || table != nil {
			t.Errorf("no table: %s, %+v", got, table)
		}
	})
}

// Law: row-level security is an error for a role that it blinds, and a remark
// for one that is exempt; an unlogged table and a view are refused.
func TestPreflightTables(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	role := "rls_" + b.Name()
	b.Server().CreateRole(t, role, "", "REPLICATION")
	t.Cleanup(func() { b.Exec(t, "drop owned by "+role+"; drop role "+role) })
	b.Exec(t, "grant select on outbox to "+role+"; alter table outbox enable row level security")
	o := PreflightOptions{Target: b.target(), Mapping: decode.Mapping{ID: "id", Payload: "payload"}}
	for dsn, want := range map[string]string{b.DSN(): "table.row_security_exempt", b.Server().DSNAs(b.Name(), role, ""): "table.row_security"} {
		findings, _, err := openAdmin(t, dsn).Preflight(t.Context(), o)
		if err != nil || !hasCode(findings, want) {
			t.Errorf("%s: %+v, %v", want, findings, err)
		}
	}
	b.Exec(t, "alter publication pub drop table outbox; create view v as select * from outbox; create unlogged table u (id int primary key, payload text)")
	for table, want := range map[string]string{"v": "table.kind publication.no_table", "u": "table.unlogged publication.no_table"} {
		o.Table = table
		findings, _, err := openAdmin(t, b.DSN()).Preflight(t.Context(), o)
		if err != nil || errorCodes(findings) != want {
			t.Errorf("%s: %s, %v", table, errorCodes(findings), err)
		}
	}
}

// Law: a slot is made, listed and dropped; making one of a bad name, one that
// is there, or a failover slot before 17, and dropping a busy one, fail with
// their reasons.
func TestSlotLifecycle(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		admin := openAdmin(t, b.DSN())
		name := b.slot + "_new"
		failover := b.Server().Major() >= 17
		if err := admin.CreateSlot(t.Context(), SlotOptions{Name: name, Failover: true}); failover != (err == nil) {
			t.Errorf("a failover slot on %d: %v", b.Server().Major(), err)
		}
		if !failover {
			if err := admin.CreateSlot(t.Context(), SlotOptions{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.CreateSlot(t.Context(), SlotOptions{Name: name}); err == nil {
			t.Error("a second slot of the same name was made")
		}
		if err := admin.CreateSlot(t.Context(), SlotOptions{Name: "Bad-Name"}); err == nil {
			t.Error("a slot of a bad name was made")
		}
		slots, err := admin.ListSlots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(slots, func(s Slot) bool { return s.Name == name })
		if i < 0 || slots[i].Plugin != "pgoutput" || slots[i].Type != "logical" || slots[i].Failover != failover || slots[i].ConfirmedLSN == 0 || slots[i].Active {
			t.Errorf("listed: %+v", slots)
		}
		b.stream(t)
		if err := admin.DropSlot(t.Context(), b.slot); err == nil || Classify(err).Class != ClassSlotBusy {
			t.Errorf("dropping a busy slot: %v", err)
		}
		if err := admin.DropSlot(t.Context(), name); err != nil {
			t.Error(err)
		}
		if err := admin.DropSlot(t.Context(), name); err == nil || Classify(err).Class != ClassSlotMissing {
			t.Errorf("dropping a slot that is not there: %v", err)
		}
	})
}

// Law: a creation that waits for a running transaction says whose, and one
// that is given up leaves no slot behind.
func TestSlotCreationThatHangs(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	writer := b.Conn(t)
	if _, err := writer.Exec(t.Context(), "begin; insert into outbox (payload) values ('open')"); err != nil {
		t.Fatal(err)
	}
	admin := openAdmin(t, b.DSN())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told atomic.Int64
	name := b.slot + "_new"
	err := admin.CreateSlot(ctx, SlotOptions{Name: name, Waiting: func(blockers []Blocker) {
		if blockers[0].State != "idle in transaction" || blockers[0].OpenFor <= 0 || blockers[0].User != "postgres" {
			t.Errorf("blockers: %+v", blockers)
		}
		told.Store(int64(blockers[0].PID))
		cancel()
	}})
	pid := fmt.Sprint(writer.PgConn().PID())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "process "+pid) || fmt.Sprint(told.Load()) != pid {
		t.Errorf("got %v, told %d; want process %s named", err, told.Load(), pid)
	}
	if got := b.Query1(t, "select count(*) from pg_replication_slots where slot_name = $1", name); got != "0" {
		t.Error("a slot was left behind")
	}
	if err := admin.CreateSlot(t.Context(), SlotOptions{Name: name, Temporary: true, Waiting: func([]Blocker) {
		_, _ = writer.Exec(context.Background(), "commit")
	}}); err != nil {
		t.Errorf("after the writer committed: %v", err)
	}
}

// Law: a stale walsender is ended only when it is of our role and has been
// silent for long enough to see.
func TestTerminateStale(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	admin := openAdmin(t, b.DSN())
	terminate := func(role string, age time.Duration) Termination {
		got, err := admin.TerminateStale(t.Context(), b.slot, role, age)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := terminate("postgres", 0); got != (Termination{}) {
		t.Errorf("nobody reads the slot: %+v", got)
	}
	s := b.stream(t)
	if got := terminate("postgres", 0); got.Terminated || got.ReplyKnown || got.PID != s.Identity().BackendPID {
		t.Errorf("before any reply: %+v", got)
	}
	if err := s.Confirm(0, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reply is seen", func() bool { return terminate("postgres", time.Hour).ReplyKnown })
	if got := terminate("postgres", time.Hour); got.Terminated || !got.OwnRole || got.ReplyAge <= 0 {
		t.Errorf("a fresh one: %+v", got)
	}
	if got := terminate("somebody", 0); got.Terminated || got.OwnRole {
		t.Errorf("another role's: %+v", got)
	}
	eventually(t, "the stale one is ended", func() bool { return terminate("postgres", 100*time.Millisecond).Terminated })
	_, err := tryNext(s, time.Now().Add(20*time.Second))
	if c := Classify(err).Class; c != ClassServerStopping {
		t.Errorf("the old reader got %v of class %v", err, c)
	}
	b.stream(t) // the slot is free again
}

// Law: an expired context leaves an Admin that says it is broken.
func TestAdminAfterAnExpiredContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	admin := openAdmin(t, b.DSN())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var text string
	err := admin.ask(ctx, &text, "select to_jsonb(pg_sleep(30)::text)")
	if err == nil || Classify(err).Class != ClassRetry || !admin.Broken() {
		t.Errorf("%v, broken: %v", err, admin.Broken())
	}
}

// Law: quoting is the server's own: what it calls a name or a constant comes
// back unchanged through ours.
func FuzzQuoting(f *testing.F) {
	for _, s := range []string{"a", `a"b`, "a'b", `a\b`, "a;drop table x--", "ä €", "select", " ", "$1", "/*"} {
		f.Add(s)
	}
	b := newBench(f, harness.SharedPostgres(f, 15))
	conn := b.Conn(f)
	f.Fuzz(func(t *testing.T, s string) {
		if checkIdentifier("name", s) != nil || strings.ToValidUTF8(s, "") != s {
			return
		}
		var column, value string
		rows, err := conn.Query(t.Context(), "select "+quoteLiteral(s)+" as "+QuoteIdentifier(s))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			column = rows.FieldDescriptions()[0].Name
			if err := rows.Scan(&value); err != nil {
				t.Fatal(err)
			}
		}
		if rows.Err() != nil || column != s || value != s {
			t.Errorf("%q came back as column %q and value %q, %v", s, column, value, rows.Err())
		}
	})
}

func hasCode(findings []Finding, code string) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == code })
}

// errorCodes lists what forbids a start.
func errorCodes(findings []Finding) string {
	var codes []string
	for _, f := range findings {
		if f.Severity == Error {
			codes = append(codes, f.Code)
		}
	}
	return strings.Join(codes, " ")
}
