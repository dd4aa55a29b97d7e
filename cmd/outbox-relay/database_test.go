package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

// site is a database and a configuration that leads to it.
type site struct {
	*harness.Database
	file string
	slot string
}

// newSite makes an empty database. The slot's name is its own, because slots
// belong to the server.
func newSite(t *testing.T, extra string) *site {
	t.Helper()
	d := harness.SharedPostgres(t, 0).CreateDatabase(t)
	s := &site{Database: d, slot: "s_" + strings.ToLower(d.Name())}
	s.file = writeConfig(t, fmt.Sprintf("postgres: {replication: %q}\nslot: {name: %s}\nkafka: {brokers: [localhost:1]}\n%s", d.DSN(), s.slot, extra))
	return s
}

// call runs a command with the site's configuration and a limit.
func (s *site) call(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return call(ctx, nil, append(args, "-c", s.file)...)
}

// must calls, and fails the test unless the code is 0.
func (s *site) must(t *testing.T, args ...string) string {
	t.Helper()
	r := s.call(t, args...)
	if r.code != exitOK {
		t.Fatalf("%v ended with %d\n%s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// Setup asks before it changes anything; applied, it reports each step, and
// applied again it finds everything in place.
func TestSetupApplyIsRepeatable(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	if r := s.call(t, "setup", "--apply"); r.code != exitUsage || !strings.Contains(r.err, "[y/N]") || !strings.Contains(r.err, "nothing was changed") {
		t.Errorf("without an answer: %+v", r)
	}
	if n := s.Query1(t, "select count(*) from pg_publication"); n != "0" {
		t.Fatalf("it changed something without an answer")
	}
	first := s.must(t, "setup", "--apply", "--yes")
	for _, want := range []string{"role         exists", "table        done", "publication  done", "schema       done", "grants       done", "slot         done"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	again := s.must(t, "setup", "--apply", "--yes")
	if strings.Count(again, "exists") != 5 || strings.Contains(again, "failed") {
		t.Errorf("the second time:\n%s", again)
	}
	doc := checkDocument(t, nil, s.must(t, "setup", "--apply", "--yes", "-o", "json"))
	if steps := doc["steps"].([]any); len(steps) != 6 {
		t.Errorf("steps: %v", steps)
	}
}

// The printed script, run by hand in one go, leaves what apply would leave.
func TestSetupPrintRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	role := "r_" + strings.ToLower(s.Name())
	script := s.must(t, "setup", "--print", "--role", role)
	before, slot, _ := strings.Cut(script, "-- 6. the slot") // a slot cannot be made in the implicit transaction of one query string
	conn := s.Conn(t)
	if _, err := conn.PgConn().Exec(t.Context(), before).ReadAll(); err != nil {
		t.Fatalf("running the script: %v", err)
	}
	if _, err := conn.PgConn().Exec(t.Context(), "--"+slot).ReadAll(); err != nil {
		t.Fatalf("making the slot: %v", err)
	}
	t.Cleanup(func() {
		s.Exec(t, "drop owned by "+role)
		s.Exec(t, "drop role "+role)
	})
	again := s.must(t, "setup", "--apply", "--yes", "--role", role)
	if strings.Count(again, "exists") != 5 {
		t.Errorf("apply finds something missing after the script:\n%s", again)
	}
}

// A role that may do little is told what somebody else has to run; no slot is
// made without its publication.
func TestSetupWithoutRights(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	role := "weak_" + strings.ToLower(s.Name())
	s.Exec(t, "create role "+role+" login")
	t.Cleanup(func() { s.Exec(t, "drop role "+role) })
	file := writeConfig(t, fmt.Sprintf("postgres: {replication: %q}\nslot: {name: %s}\n", s.Server().DSNAs(s.Name(), role, ""), s.slot))
	r := call(t.Context(), nil, "setup", "--apply", "--yes", "-c", file)
	if r.code != exitPermission || !strings.Contains(r.out, "slot         skipped") || !strings.Contains(r.out, `alter role "`+role+`" login replication;`) {
		t.Errorf("got %+v", r)
	}
	if n := s.Query1(t, "select count(*) from pg_replication_slots where slot_name = '"+s.slot+"'"); n != "0" {
		t.Error("a slot was made")
	}
}

// Migrate up, status and print agree on what is there.
func TestMigrate(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	if out := s.must(t, "migrate", "status"); !strings.Contains(out, "no: outbox-relay migrate up") {
		t.Errorf("before: %s", out)
	}
	if out := s.must(t, "migrate", "up"); !strings.Contains(out, "applied 0001_") {
		t.Errorf("up: %s", out)
	}
	if out := s.must(t, "migrate", "up"); strings.Contains(out, "applied") {
		t.Errorf("up again: %s", out)
	}
	doc := checkDocument(t, nil, s.must(t, "migrate", "status", "-o", "json"))
	if m := doc["migrations"].([]any)[0].(map[string]any); m["applied_at"] == nil {
		t.Errorf("not applied: %v", doc)
	}
}

// The publication comes before the slot, dropping needs the name again, and a
// slot that is not there is told with 5.
// Case F25 of docs/guarantees.md.
func TestSlotCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.must(t, "migrate", "up")
	if r := s.call(t, "slot", "create"); r.code != exitPublication || !strings.Contains(r.err, "next: outbox-relay setup --print") {
		t.Errorf("without a publication: %+v", r)
	}
	if r := s.call(t, "slot", "show"); r.code != exitNothing {
		t.Errorf("show of nothing: %+v", r)
	}
	s.must(t, "setup", "--apply", "--yes")
	if r := s.call(t, "slot", "create"); r.code != exitUsage || !strings.Contains(r.err, "exists already") {
		t.Errorf("a second time: %+v", r)
	}
	if out := s.must(t, "slot", "list"); !strings.Contains(out, s.slot+" *") {
		t.Errorf("list: %s", out)
	}
	for _, args := range [][]string{{"slot", "list"}, {"slot", "show"}} {
		checkDocument(t, args, s.must(t, append(args, "-o", "json")...))
	}
	if r := s.call(t, "slot", "drop", "--confirm", "other"); r.code != exitUsage || !strings.Contains(r.err, "cannot be streamed any more") {
		t.Errorf("drop without the name: %+v", r)
	}
	if out := s.must(t, "slot", "drop", "--confirm", s.slot); !strings.Contains(out, "dropped slot "+s.slot) {
		t.Errorf("drop: %s", out)
	}
	if r := s.call(t, "slot", "drop", "--confirm", s.slot); r.code != exitNothing {
		t.Errorf("drop of nothing: %+v", r)
	}
}

// A relay that has a position gets a new slot only when a person types its
// name; the position then moves to where the slot starts, and the audit knows.
func TestSlotCreateMovesThePosition(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.must(t, "setup", "--apply", "--yes")
	s.Exec(t, `insert into outbox_relay.position (relay, slot, system_identifier, timeline, lsn, session, updated_at)
		values ('default', $1, '1', 1, '0/10', gen_random_uuid(), now())`, s.slot)
	s.must(t, "slot", "drop", "--confirm", s.slot)
	if r := s.call(t, "setup", "--apply", "--yes"); r.code == exitOK || !strings.Contains(r.out, "slot         failed") {
		t.Errorf("setup made a slot over a position: %+v", r)
	}
	r := s.call(t, "slot", "create")
	if r.code != exitUsage || !strings.Contains(r.err, "0/10") || !strings.Contains(r.err, "next: outbox-relay slot create --confirm "+s.slot) {
		t.Fatalf("without the name: %+v", r)
	}
	doc := checkDocument(t, nil, s.must(t, "slot", "create", "--confirm", s.slot, "-o", "json"))
	if gap := doc["not_streamed"].(map[string]any); gap["from"] != "0/10" {
		t.Errorf("gap: %v", gap)
	}
	if same := s.Query1(t, `select p.lsn = s.confirmed_flush_lsn and p.timeline = 1 and p.next_index = 0 from outbox_relay.position p join pg_replication_slots s on s.slot_name = p.slot where relay = 'default'`); same != "t" {
		t.Errorf("position and slot differ (%s)", same)
	}
	if n := s.Query1(t, `select count(*) from outbox_relay.audit where verb = 'reset_position' and before like '%0/10'`); n != "1" {
		t.Errorf("the audit has %s entries", n)
	}
}

// Status reads straight from Postgres, whatever is there: nothing, a set-up, a
// relay that has lines.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	out := s.must(t, "status")
	for _, want := range []string{"there is none: outbox-relay slot create", "the publication does not exist", "no tables yet: outbox-relay migrate up", "the relay never started"} {
		if !strings.Contains(out, want) {
			t.Errorf("empty database: no %q in\n%s", want, out)
		}
	}
	s.must(t, "setup", "--apply", "--yes")
	s.Exec(t, `insert into outbox_relay.position (relay, slot, system_identifier, timeline, lsn, session, updated_at) values ('default', $1, '1', 1, pg_current_wal_flush_lsn(), gen_random_uuid(), now())`, s.slot)
	s.Exec(t, `insert into outbox_relay.line (relay, topic, order_hash, holds, parked_at, since) values ('default', 'orders', 'x', true, now(), now())`)
	s.Exec(t, `insert into outbox_relay.line_event (line_id, relay, row_key, reason, record, added_at) select id, 'default', '["1"]', 'refused', '', now() from outbox_relay.line`)
	out = s.must(t, "status")
	for _, want := range []string{s.slot + ", active: no", "outbox_relay_pub, whole", "version 1", "behind the end of the log", `"orders"  1      1       1       1`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	doc := checkDocument(t, nil, s.must(t, "status", "-o", "json"))
	if doc["slot"].(map[string]any)["name"] != s.slot || doc["position"].(map[string]any)["behind_bytes"].(float64) < 0 || len(doc["lines"].([]any)) != 1 {
		t.Errorf("document: %v", doc)
	}
}

// A server that cannot be reached is 12, a time limit 124, a wrong database
// name 2; each says which connection failed.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	dead := writeConfig(t, "postgres: {replication: \"host=127.0.0.1 port=1 user=u dbname=d\"}\n")
	if r := call(t.Context(), nil, "status", "-c", dead); r.code != exitPostgres || !strings.Contains(r.err, "postgres.query") {
		t.Errorf("dead server: %+v", r)
	}
	if r := call(t.Context(), nil, "status", "-c", dead, "--timeout", "1ns"); r.code != exitTimeout {
		t.Errorf("time limit: %+v", r)
	}
	d := start(t, []string{"OUTBOX_RELAY_KAFKA__BROKERS=localhost:1"}, "-c", dead, "--timeout", "1s")
	if code := <-d.code; code != exitTimeout {
		t.Errorf("run with a time limit ended with %d:\n%s", code, d.err.String())
	}
	s := newSite(t, "")
	wrong := writeConfig(t, fmt.Sprintf("postgres: {replication: %q}\n", s.Server().DSN("no_such_database")))
	if r := call(t.Context(), nil, "status", "-c", wrong); r.code != exitUsage || !strings.Contains(r.err, "hint: ") {
		t.Errorf("wrong database: %+v", r)
	}
}

// daemonCall is a run command on its way.
type daemonCall struct {
	out, err buffer
	stop     context.CancelCauseFunc
	code     chan int
	address  string
}

// start runs the daemon until the test ends. Its listener is on a free port,
// which its log tells.
func start(t *testing.T, env []string, args ...string) *daemonCall {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	d := &daemonCall{stop: cancel, code: make(chan int, 1)}
	go func() {
		d.code <- newApp(strings.NewReader(""), &d.out, &d.err, env).execute(ctx, append([]string{"run", "--listen", "127.0.0.1:0"}, args...))
	}()
	t.Cleanup(func() { cancel(errSignal) })
	return d
}

// until polls for a condition that the daemon brings about, with a deadline.
func (d *daemonCall) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s; the log:\n%s", what, d.err.String())
		}
		select {
		case code := <-d.code:
			t.Fatalf("waiting for %s; the program ended with %d:\n%s", what, code, d.err.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *daemonCall) listening(t *testing.T) string {
	t.Helper()
	d.until(t, "the listener", func() bool {
		_, rest, ok := strings.Cut(d.err.String(), `"address":"`)
		d.address, _, _ = strings.Cut(rest, `"`)
		return ok
	})
	return d.address
}

// end stops the daemon like a first signal, and gives its code.
func (d *daemonCall) end(t *testing.T) int {
	t.Helper()
	d.stop(errSignal)
	select {
	case code := <-d.code:
		d.code <- code
		return code
	case <-time.After(time.Minute):
		t.Fatalf("it does not stop; the log:\n%s", d.err.String())
		return -1
	}
}

// The whole way: set-up, run, a row in the table becomes a record in the
// topic, the probes and metrics answer, the first signal ends it with 0.
func TestRunPublishes(t *testing.T) {
	t.Parallel()
	kafka := harness.StartKfake(t, harness.KfakeOptions{})
	kafka.CreateTopic(t, "outbox.event.order", 1, nil)
	s := newSite(t, "")
	s.must(t, "setup", "--apply", "--yes")
	d := start(t, []string{"OUTBOX_RELAY_KAFKA__BROKERS=" + strings.Join(kafka.Brokers(), ",")}, "-c", s.file)
	address := d.listening(t)
	healthy := func(args ...string) bool {
		env := []string{"OUTBOX_RELAY_LISTEN__PROBES=" + address}
		return call(t.Context(), env, append([]string{"healthcheck"}, args...)...).code == exitOK
	}
	d.until(t, "readiness", func() bool { return healthy("--ready") })
	if !healthy() {
		t.Error("it is ready but does not live")
	}
	s.Exec(t, `insert into public.outbox (aggregate_type, aggregate_id, event_type, payload) values ('order', '7', 'placed', 'hello CANARYpayload')`)
	d.until(t, "the status", func() bool { return s.Query1(t, "select status from public.outbox") == "2" })
	if records := kafka.Dump(t, "outbox.event.order"); len(records) != 1 || string(records[0].Value) != "hello CANARYpayload" {
		t.Errorf("records: %v", records)
	}
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var metrics buffer
	if err := answer.Write(&metrics); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"outbox_relay_build_info{", `outbox_relay_pipeline_info{database="` + s.Name() + `",publication="outbox_relay_pub",server_version="`, `outbox_relay_state{slot="` + s.slot + `",state="streaming"} 1`, "go_goroutines", "outbox_relay_records_published_total"} {
		if !strings.Contains(metrics.String(), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if out := s.must(t, "status"); !strings.Contains(out, "read by process") {
		t.Errorf("status while it runs:\n%s", out)
	}
	if code := d.end(t); code != exitOK {
		t.Errorf("the first signal ended it with %d:\n%s", code, d.err.String())
	}
	if strings.Contains(d.err.String(), "CANARY") || d.out.String() != "" {
		t.Errorf("the log holds a payload, or something was printed:\n%s", d.err.String())
	}
}

// A schema that was never made ends run with 2 and the command; with
// migrate.auto it is made.
func TestRunChecksTheSchema(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	d := start(t, nil, "-c", s.file)
	if code := <-d.code; code != exitUsage || !strings.Contains(d.err.String(), "outbox-relay migrate up") {
		t.Errorf("ended with %d:\n%s", code, d.err.String())
	}
	auto := start(t, []string{"OUTBOX_RELAY_MIGRATE__AUTO=true"}, "-c", s.file)
	if code := <-auto.code; code != exitUsage && code != exitPublication && code != exitFindings {
		t.Errorf("without a table it ended with %d:\n%s", code, auto.err.String())
	}
	if n := s.Query1(t, "select count(*) from outbox_relay.goose_db_version where version_id = 1"); n != "1" {
		t.Error("migrate.auto did not migrate")
	}
}

// While Postgres is away run waits: it lives, is not ready, says why, and a
// signal ends it with 0.
func TestRunWaitsForPostgres(t *testing.T) {
	t.Parallel()
	dead := writeConfig(t, "postgres: {replication: \"host=127.0.0.1 port=1 user=u dbname=d\"}\nkafka: {brokers: [localhost:1]}\n")
	d := start(t, nil, "-c", dead)
	env := []string{"OUTBOX_RELAY_LISTEN__PROBES=" + d.listening(t)}
	d.until(t, "the first try", func() bool { return strings.Contains(d.err.String(), "cannot look at the schema yet") })
	if r := call(t.Context(), env, "healthcheck"); r.code != exitOK || r.out != "ok\n" {
		t.Errorf("it does not live: %+v", r)
	}
	if r := call(t.Context(), env, "healthcheck", "--ready"); r.code != exitRuntime || !strings.Contains(r.err, "Postgres cannot be reached") {
		t.Errorf("it does not say why: %+v", r)
	}
	if code := d.end(t); code != exitOK {
		t.Errorf("ended with %d", code)
	}
}
