package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// Law: the command line is read as documented, and everything wrong with it is
// named at once.
func TestParse(t *testing.T) {
	t.Setenv(dsnEnv, "postgres:///given")
	var help bytes.Buffer
	o, err := parse([]string{"--for", "20s", "--output", "json", "--no-faults", "--rate=9", "--relay", "x"}, &help)
	want := options{duration: 20 * time.Second, rate: 9, output: asJSON, faults: withoutFaults, relay: "x", dsn: "postgres:///given"}
	if err != nil || o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-no-faults") {
		t.Errorf("help: %v\n%s", err, help.String())
	}
	_, err = parse([]string{"--for", "1s", "--rate", "0", "--output", "xml", "more"}, &help)
	for _, word := range []string{"--for 1s", "--rate 0", `--output "xml"`, `"more"`} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
}

// Law: the broker's outage follows the length of the run, between one and
// eight seconds, and ends before the relay is killed.
func TestOutageFitsTheRun(t *testing.T) {
	t.Parallel()
	for run, want := range map[time.Duration]time.Duration{
		3 * time.Second: time.Second, 45 * time.Second: 5 * time.Second, time.Hour: 8 * time.Second,
	} {
		if got := outage(run); got != want || got >= run/3+time.Millisecond {
			t.Errorf("a run of %v: outage %v, want %v", run, got, want)
		}
	}
}

// Law: the relay's file holds every value whole, whatever stands in it: what
// YAML or the variables of the file would take apart is written so that it
// is not.
func TestConfigFileKeepsValues(t *testing.T) {
	t.Parallel()
	db := &database{name: "outbox_demo_1", dsn: `host=x password='a$b "c" # d: ${E}' dbname=y`}
	text := configFile(db, []string{"127.0.0.1:1"}, "127.0.0.1:2")
	var got struct {
		Postgres struct{ Replication string }
		Slot     struct{ Name string }
		Kafka    struct{ Brokers []string }
		Listen   struct{ Probes string }
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if dsn := strings.ReplaceAll(got.Postgres.Replication, "$$", "$"); dsn != db.dsn || strings.Contains(strings.ReplaceAll(got.Postgres.Replication, "$$", ""), "$") {
		t.Errorf("connection string %q", got.Postgres.Replication)
	}
	if got.Slot.Name != db.name || !cmp.Equal(got.Kafka.Brokers, []string{"127.0.0.1:1"}) || got.Listen.Probes != "127.0.0.1:2" {
		t.Errorf("%+v", got)
	}
}

// Law: whatever form a connection string has, only its database changes.
func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:p%40w@127.0.0.1:5433/old?sslmode=disable&application_name=x",
		"postgres://u:p%40w@127.0.0.1:5433/old?dbname=older&sslmode=disable",
		"host=127.0.0.1 port=5433 user=u password=p@w dbname=old sslmode=disable",
	} {
		changed, err := withDatabase(dsn, "fresh")
		if err != nil {
			t.Fatal(err)
		}
		before, errBefore := pgx.ParseConfig(dsn)
		after, errAfter := pgx.ParseConfig(changed)
		if err := errors.Join(errBefore, errAfter); err != nil {
			t.Fatal(err)
		}
		if after.Database != "fresh" || after.Host != before.Host || after.Port != before.Port || after.User != before.User || after.Password != before.Password {
			t.Errorf("%q became %q", dsn, changed)
		}
	}
	if _, err := withDatabase("postgres://u:secret@[::1/x", "fresh"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken URL: %v", err)
	}
}

// Law: passed needs a known last commit, strictly below the confirmed
// position, for a commit record ends beyond where it stands.
func TestPassed(t *testing.T) {
	t.Parallel()
	if passed(9, 0) || passed(9, 9) || passed(8, 9) || !passed(10, 9) {
		t.Error("passed does not hold its law")
	}
}

func sample() *report {
	return &report{
		SchemaVersion: schemaVersion, OK: true, Postgres: "15.18", Problems: []string{},
		counted: counted{RowsCommitted: 22441, RecordsPublished: 22712, Duplicates: 271, Restarts: 1, RolledBack: 1190, BrokerStops: 1, RelayKills: 1},
		timed:   timed{P50MS: 3.2, P99MS: 4870, MaxMS: 5200.5, CalmP50MS: 3.1, CalmP99MS: 9, CalmRows: 18200, FirstRecordMS: 3210, WroteS: 45},
		Faults: []fault{
			{Name: faultBroker, AtS: 15, LastedS: 5, Bitten: true, Detail: "2 connections cut, 31 refused"},
			{Name: faultRelay, AtS: 30, LastedS: 1.02, Bitten: true, Detail: "pid 4242 ended by SIGKILL"},
		},
		Slot: slotReport{Confirmed: "0/1F4B168", LastCommit: "0/1F4B100", Passed: true, LagBytes: 22952},
	}
}

// Law: the table fits 80 columns, good or bad, and says what is wrong in words.
func TestTableFits(t *testing.T) {
	t.Parallel()
	bad := sample()
	bad.OK, bad.Lost, bad.Problems = false, 3, []string{"3 committed rows are in no topic"}
	bad.Faults[0].Bitten = false
	for name, r := range map[string]*report{"GOOD": sample(), "BAD": bad} {
		text := r.table()
		if !strings.Contains(text, "VERDICT: "+name) {
			t.Errorf("the table does not say %s:\n%s", name, text)
		}
		for l := range strings.Lines(text) {
			if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > 80 && !strings.Contains(l, "did not bite") {
				t.Errorf("%d columns: %s", n, l)
			}
		}
	}
	if text := bad.table(); !strings.Contains(text, "WRONG  3 committed rows are in no topic") || !strings.Contains(text, "did not bite") {
		t.Errorf("the bad table keeps silent:\n%s", text)
	}
}

// Law: the JSON form is one line with every promised field under its name, and
// lists are never null.
func TestJSONLine(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var out bytes.Buffer
	if err := sample().print(asJSON, &out, view.NewScreen(file, func() { t.Error("the file was lost") })); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.HasSuffix(out.String(), "}\n") {
		t.Errorf("not one line: %q", out.String())
	}
	fields := promised(t, out.Bytes())
	if fields["rows_committed"] != 22441.0 || fields["p99_ms"] != 4870.0 || fields["schema_version"] != 1.0 {
		t.Errorf("%v", fields)
	}
}

// promised decodes a verdict and fails unless it has what is promised.
func promised(t *testing.T, line []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	for _, name := range []string{
		"schema_version", "ok", "rows_committed", "records_published", "lost", "out_of_order", "duplicates", "restarts",
		"p50_ms", "p99_ms", "not_sent", "faults", "slot", "problems",
	} {
		if fields[name] == nil {
			t.Errorf("the verdict has no %s", name)
		}
	}
	return fields
}

// Law: the scratch directory goes, with everything in it.
func TestScratchGoes(t *testing.T) {
	t.Parallel()
	s, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", s.dir, err)
	}
}
