package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outbox-relay.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Flags win over the environment, the environment over files, a later file
// over an earlier, files over defaults; and each origin says so.
func TestWhoWins(t *testing.T) {
	t.Parallel()
	first := writeFile(t, "slot: {name: first}\nkafka: {client_id: first}\nlog: {level: warn}\n")
	second := writeFile(t, "kafka: {client_id: second}\nlog:\n  level: error\n")
	l, err := Load(LoadOptions{
		Files: []string{first, second}, Incomplete: true,
		Env:   Env{"OUTBOX_RELAY_LOG__LEVEL=info", "OUTBOX_RELAY_LOG__FORMAT=json"},
		Flags: []FlagValue{{"log-format", "log.format", "console"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"slot.name":        first + ":1:14",
		"kafka.client_id":  second + ":1:20",
		"log.level":        "environment OUTBOX_RELAY_LOG__LEVEL",
		"log.format":       "flag --log-format",
		"publication.name": "default",
	} {
		if got := l.Origin(path).String(); got != want {
			t.Errorf("%s comes from %q, want %q", path, got, want)
		}
	}
	c := l.Config
	if c.Slot.Name != "first" || c.Kafka.ClientID != "second" || c.Observe.LogLevel != "info" || c.Observe.LogFormat != "console" {
		t.Errorf("got %+v", c)
	}
}

// Every key can be set by its environment variable, and the variable's name
// follows from the path alone.
func TestEveryKeyHasItsVariable(t *testing.T) {
	t.Parallel()
	defaults := Default()
	for _, k := range reference() {
		if k.env() != strings.ToUpper("OUTBOX_RELAY_"+strings.ReplaceAll(k.path, ".", "__")) {
			t.Errorf("%s has the variable %s", k.path, k.env())
		}
		text := strings.Trim(render(k.at(&defaults)), `"`)
		settings, bad := fromEnv(Env{k.env() + "=" + text}, reference())
		if len(bad) > 0 || len(settings) != 1 {
			t.Fatalf("%s=%s gave %v", k.env(), text, bad)
		}
		cfg := Default()
		if bad := settings[0].assign(&cfg); len(bad) > 0 {
			t.Errorf("%s=%s: %v", k.env(), text, bad)
		}
		if diff := cmp.Diff(defaults, cfg); diff != "" {
			t.Errorf("%s=%s is not the default:\n%s", k.env(), text, diff)
		}
	}
}

// Lists and mappings come from the environment too.
func TestEnvironmentHoldsListsAndMaps(t *testing.T) {
	t.Parallel()
	l, err := Load(LoadOptions{SearchPath: []string{}, Incomplete: true, Env: Env{
		"OUTBOX_RELAY_KAFKA__BROKERS=localhost:1, localhost:2",
		"OUTBOX_RELAY_ROUTE__ALLOW=[a, b.*]",
		`OUTBOX_RELAY_ROUTE__TOPICS={order: orders}`,
		`OUTBOX_RELAY_POLICY__TOPICS={orders: {too_large: skip}}`,
		"OUTBOX_RELAY_TABLE__COLUMNS__STATUS=null",
		"OUTBOX_RELAY_SLOT__GULP=0",
		"OUTBOX_RELAY_LIMITS__SPAN_BYTES=1GiB",
		"OUTBOX_RELAY_KAFKA__CLIENT_ID=a${B}$$c", // taken as it is: the environment is not expanded again
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	want := Default()
	want.Kafka.Brokers, want.Kafka.ClientID = []string{"localhost:1", "localhost:2"}, "a${B}$$c"
	want.Route.Allow, want.Route.Topics = []string{"a", "b.*"}, map[string]string{"order": "orders"}
	want.Policy.Topics = map[string]map[string]string{"orders": {"too_large": "skip"}}
	want.Table.Columns.Status, want.Slot.Gulp, want.Limits.SpanBytes = "", 0, 1<<30
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.EffectiveWriteBack() != "off" {
		t.Errorf("without a status column write-back is %q", c.EffectiveWriteBack())
	}
}

// The search order is: the flag, $OUTBOX_RELAY_CONFIG, the usual places.
func TestWhereTheFileIsLookedFor(t *testing.T) {
	t.Parallel()
	flag, env, place := writeFile(t, "slot: {name: a}\n"), writeFile(t, "slot: {name: b}\n"), writeFile(t, "slot: {name: c}\n")
	for _, c := range []struct {
		o    LoadOptions
		want []string
	}{
		{LoadOptions{Files: []string{flag}, Env: Env{"OUTBOX_RELAY_CONFIG=" + env}, SearchPath: []string{place}}, []string{flag}},
		{LoadOptions{Env: Env{"OUTBOX_RELAY_CONFIG=" + env}, SearchPath: []string{place}}, []string{env}},
		{LoadOptions{SearchPath: []string{"/nonexistent/x", place, flag}}, []string{place}},
		{LoadOptions{SearchPath: []string{"/nonexistent/x"}}, nil},
	} {
		c.o.Incomplete = true
		l, err := Load(c.o)
		if err != nil || !reflect.DeepEqual(l.Files, c.want) {
			t.Errorf("read %v (%v), want %v", l.Files, err, c.want)
		}
	}
	_, err := Load(LoadOptions{Files: []string{"/nonexistent/x.yaml"}, Incomplete: true})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/x.yaml: no such file") || !strings.Contains(err.Error(), "config example") {
		t.Errorf("a missing file gave %v", err)
	}
}

// DATABASE_URL serves where nothing of ours says where the database is.
func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	env := Env{"DATABASE_URL=postgres://u@localhost/app", "OUTBOX_RELAY_KAFKA__BROKERS=localhost"}
	l, err := Load(LoadOptions{SearchPath: []string{}, Env: env})
	if err != nil || l.Config.Postgres.Replication != "postgres://u@localhost/app" || l.Origin("postgres.replication").String() != "environment DATABASE_URL" {
		t.Errorf("got %q from %v (%v)", l.Config.Postgres.Replication, l.Origin("postgres.replication"), err)
	}
	env = append(env, "OUTBOX_RELAY_POSTGRES__REPLICATION=host=localhost dbname=other")
	if l, err = Load(LoadOptions{SearchPath: []string{}, Env: env}); err != nil || !strings.Contains(l.Config.Postgres.Replication, "other") {
		t.Errorf("DATABASE_URL won: %q (%v)", l.Config.Postgres.Replication, err)
	}
}

// The place of a mistake is the line and column of the value, or of the key
// where the key is the mistake.
func TestPlacesAreExact(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "# comment\nrelay:\n  nme: a\nslot:\n  wal_sender_timeout:   30\nkafka:\n  brokers:\n    - a:1\n    - b:x\n")
	_, err := Load(LoadOptions{Files: []string{file}, Incomplete: true})
	for _, want := range []string{file + ":3:3: unknown key", file + ":5:25: slot.wal_sender_timeout", file + ":9:7: kafka.brokers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

// Sizes and durations print as they are read.
func TestUnitsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, n := range []Size{0, 1, 1023, 1024, 1536, 1 << 20, 3 << 30, 1 << 40, 1<<40 + 1, 1<<63 - 1} {
		if got, err := ParseSize(n.String()); err != nil || got != n {
			t.Errorf("%d prints as %s and reads as %d (%v)", int64(n), n, int64(got), err)
		}
	}
	for _, d := range []time.Duration{0, time.Millisecond, time.Second, 90 * time.Second, time.Minute, time.Hour, 168 * time.Hour, 61 * time.Minute, time.Hour + time.Second} {
		if got, err := parseDuration(formatDuration(d)); err != nil || got != d {
			t.Errorf("%v prints as %s and reads as %v (%v)", d, formatDuration(d), got, err)
		}
	}
}

// Table names are read as SQL reads them.
func TestSplitTable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"outbox": {"public", "outbox"}, "App.Outbox": {"app", "outbox"}, `"App"."Out.box"`: {"App", "Out.box"},
		`"we""ird"."t;drop"`: {`we"ird`, "t;drop"}, "ünï.töst": {"ünï", "töst"},
	} {
		schema, table, err := SplitTable(text)
		if err != nil || [2]string{schema, table} != want {
			t.Errorf("%s reads as %q %q (%v)", text, schema, table, err)
		}
	}
}
