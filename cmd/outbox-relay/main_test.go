package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/outboxrelay/outbox-relay/config"
)

// asProgram makes the test binary behave as the program, for tests that need
// a process of their own.
const asProgram = "TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	// The shared server ends with the process, and so does its watcher.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outboxrelay/outbox-relay/test/harness/internal/guard.(*Process).wait"))
}

// buffer may be written by the program's goroutines while a test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// result is one call of the program.
type result struct {
	code     int
	out, err string
}

// call runs the program in this process, with an environment of its own.
func call(ctx context.Context, env []string, args ...string) result {
	var out, err buffer
	code := newApp(strings.NewReader(""), &out, &err, env).execute(ctx, args)
	return result{code, out.String(), err.String()}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outbox-relay.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The exit codes are a contract with scripts: their numbers never change.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	got := []int{exitOK, exitRuntime, exitUsage, exitFindings, exitWarnings, exitNothing, exitSlot, exitBusy, exitPostgres, exitKafka,
		exitPermission, exitPublication, exitFenced, exitTimeout, exitForced}
	want := []int{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 124, 130}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Errors find their code: what the server said, what the configuration
// lacks, what ended the context.
func TestErrorsFindTheirCode(t *testing.T) {
	t.Parallel()
	timedOut, cancel := context.WithTimeoutCause(t.Context(), 0, errTimeout)
	defer cancel()
	<-timedOut.Done()
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errSignal)
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"mistakes": {t.Context(), config.Mistakes{{Text: "x"}}, exitUsage},
		"timeout":  {timedOut, errors.New("x"), exitTimeout},
		"signal":   {stopped, errors.New("x"), exitForced},
		"unknown":  {t.Context(), errors.New("x"), exitRuntime},
		"away":     {t.Context(), context.DeadlineExceeded, exitPostgres},
		"known":    {t.Context(), &failure{code: exitNothing, err: errors.New("x")}, exitNothing},
	} {
		if got := explain(c.ctx, c.err).code; got != c.want {
			t.Errorf("%s: code %d, want %d", name, got, c.want)
		}
	}
}

// Without a command the program prints help and starts nothing; a mistyped
// command is told its neighbour and ends with 2.
func TestHelpAndMistypedCommands(t *testing.T) {
	t.Parallel()
	if r := call(t.Context(), nil); r.code != exitOK || !strings.Contains(r.out, "A first start, step by step") || r.err != "" {
		t.Errorf("bare call: %+v", r)
	}
	for _, c := range []struct {
		args []string
		hint string
	}{
		{[]string{"rum"}, "did you mean outbox-relay run?"},
		{[]string{"slot", "lst"}, "did you mean outbox-relay slot list?"},
		{[]string{"run", "now"}, "next: outbox-relay run --help"},
		{[]string{"status", "--jsno"}, "next: outbox-relay status --help"},
		{[]string{"version", "-o", "xml"}, "want table or json"},
		{[]string{"setup"}, "either --print or --apply"},
		{[]string{"setup", "--print", "--apply"}, "either --print or --apply"},
		{[]string{"migrate", "print", "--format", "x"}, "unknown format"},
		{[]string{"slot", "drop", "a", "b"}, "takes one name"},
	} {
		if r := call(t.Context(), nil, c.args...); r.code != exitUsage || r.out != "" || !strings.Contains(r.err, c.hint) {
			t.Errorf("%v gave %+v, want %q", c.args, r, c.hint)
		}
	}
}

// Every command explains itself and shows an example.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	commands := newApp(nil, nil, nil, nil).root().Commands()
	for i := 0; i < len(commands); i++ {
		c := commands[i]
		commands = append(commands, c.Commands()...)
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Short == "" || (!c.HasSubCommands() && c.Example == "") {
			t.Errorf("%s lacks help or an example", c.CommandPath())
		}
		for _, word := range []string{"password", "secret", "token"} {
			if f := c.Flags().Lookup(word); f != nil {
				t.Errorf("%s has a flag for a secret: it would show in the list of processes", c.CommandPath())
			}
		}
	}
}

// Commands that connect to nothing work without a configuration.
func TestOfflineCommands(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"config", "example"}, {"config", "print"}, {"migrate", "print"}, {"migrate", "print", "--format", "flyway"}, {"setup", "--print"}} {
		if r := call(t.Context(), nil, args...); r.code != exitOK || r.out == "" || r.err != "" {
			t.Errorf("%v gave %+v", args, r)
		}
	}
	for _, args := range [][]string{{"version"}, {"config", "print"}, {"setup", "--print"}} {
		r := call(t.Context(), nil, append(args, "-o", "json")...)
		checkDocument(t, args, r.out)
	}
}

// checkDocument says whether out is one JSON document with its version.
func checkDocument(t *testing.T, args []string, out string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc["schema_version"] != float64(documentVersion) {
		t.Errorf("%v gave no document of version %d: %v %s", args, documentVersion, err, out)
	}
	return doc
}

// validate reports every mistake at once, to people and to programs, and
// reads the files that are named.
func TestConfigValidate(t *testing.T) {
	t.Parallel()
	bad := writeConfig(t, "kafka: {broker: a}\nslot: {name: A-B}\n")
	r := call(t.Context(), nil, "config", "validate", "-c", bad)
	for _, want := range []string{bad + ":1:9: unknown key", "did you mean kafka.brokers?", bad + ":2:14: slot.name", "postgres.replication: not set", "kafka.brokers: not set"} {
		if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
	r = call(t.Context(), nil, "config", "validate", "-c", bad, "-o", "json")
	doc := checkDocument(t, []string{"validate"}, r.out)
	if r.code != exitUsage || doc["valid"] != false || len(doc["mistakes"].([]any)) != 4 {
		t.Errorf("got %+v", r)
	}
	missing := writeConfig(t, "postgres: {replication: \"host=localhost\", password_file: /nonexistent/pw}\nkafka: {brokers: [localhost]}\n")
	if r = call(t.Context(), nil, "config", "validate", "-c", missing); r.code != exitUsage || !strings.Contains(r.err, "postgres.password_file: /nonexistent/pw: no such file") {
		t.Errorf("a missing password file gave %+v", r)
	}
	good := writeConfig(t, "postgres: {replication: \"host=db sslmode=disable\", insecure: true}\nkafka: {brokers: [localhost]}\n")
	if r = call(t.Context(), nil, "config", "validate", "-c", good); r.code != exitOK || r.out != "the configuration is valid\n" || r.err != "warning: postgres.replication: plain text to db:5432\n" {
		t.Errorf("got %+v", r)
	}
}

// Setup prints statements in an order that works: the publication before the
// slot, the tables before the grants.
func TestSetupPrintOrder(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, "postgres: {replication: \"host=localhost user=relay_user dbname=app\"}\nslot: {failover: true}\n")
	r := call(t.Context(), nil, "setup", "--print", "-c", file)
	at := -1
	for _, want := range []string{`create role "relay_user" login replication`, `create table "public"."outbox"`, `create publication "outbox_relay_pub"`, "create table if not exists outbox_relay.position", "commit;", `to "relay_user"`,
		"select pg_create_logical_replication_slot('outbox_relay', 'pgoutput', false, false, true)"} {
		i := strings.Index(r.out, want)
		if i <= at {
			t.Errorf("%q is missing or too early (%d after %d) in:\n%s", want, i, at, r.out)
		}
		at = i
	}
}
