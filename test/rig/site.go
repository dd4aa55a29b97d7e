package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// Kafka is what both kinds of broker offer.
type Kafka interface {
	Brokers() []string
	CreateTopic(t testing.TB, name string, partitions int, settings map[string]string)
	Dump(t testing.TB, topic string) []harness.Record
}

// Options say what a site is made of. Postgres and Kafka must be given.
type Options struct {
	Postgres *harness.Postgres
	Kafka    Kafka
	// Failpoints has the site's relays built so that Process.Env may name a
	// point at which one kills itself.
	Failpoints bool
	// Prepare is called before the product's own set-up, which leaves alone
	// what is there; nil = nothing is there.
	Prepare func(db *harness.Database)
}

// Site is one database with an outbox, one broker, and the settings of the
// relays that serve them. Its methods are for the goroutine of the test, but
// those that only read tables or topics may be called from any.
type Site struct {
	DB     *harness.Database
	Kafka  Kafka
	Topic  string
	Kind   string         // aggregate_type, from which the topic comes
	Config map[string]any // as in the file, for commands and relays started from now on

	// Prefix are words before the program's name, such as those of a command
	// that changes what it sees of the machine and becomes it; none = it runs
	// as it is.
	Prefix []string

	program *program
}

// New prepares database, schema, publication, slot and topic with the
// product's own commands.
func New(t testing.TB, o Options) *Site {
	t.Helper()
	s := &Site{DB: o.Postgres.CreateDatabase(t), Kafka: o.Kafka, program: &ordinary}
	if o.Failpoints {
		s.program = &withFailpoints
	}
	s.Kind = fmt.Sprintf("%s_%d", s.DB.Name(), o.Postgres.Port()) // unique among all tests that share a broker
	s.Topic = "outbox.event." + s.Kind
	s.Kafka.CreateTopic(t, s.Topic, 4, nil)
	s.Config = map[string]any{
		"postgres": map[string]any{"replication": s.DB.DSN()},
		"slot":     map[string]any{"name": s.Slot(), "wal_sender_timeout": "10s"},
		"kafka":    map[string]any{"brokers": s.Kafka.Brokers()},
		"log":      map[string]any{"format": "json"},
	}
	if o.Prepare != nil {
		o.Prepare(s.DB)
	}
	if out, err := s.Command(t, "setup", "--apply", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	s.DB.Exec(t, fmt.Sprintf(`alter table public.outbox alter aggregate_type set default '%s', alter event_type set default 'placed'`, s.Kind))
	return s
}

// Slot is the name of the site's slot, unique in its server.
func (s *Site) Slot() string { return "s_" + s.DB.Name() }

// Set changes one key of the configuration.
func (s *Site) Set(section, key string, value any) {
	m, ok := s.Config[section].(map[string]any)
	if !ok {
		m = map[string]any{}
		s.Config[section] = m
	}
	m[key] = value
}

// Command makes one command of the product, with a configuration file of its
// own and a clean environment.
func (s *Site) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(s.Config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outbox-relay.yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("$"), []byte("$$")), 0o600); err != nil {
		t.Fatal(err)
	}
	words := append(slices.Clone(s.Prefix), s.program.built(t))
	words = append(append(words, args...), "--config", file)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	return cmd
}

// Insert commits one row for each key.
func (s *Site) Insert(t testing.TB, keys ...string) {
	t.Helper()
	for _, k := range keys {
		s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload) values ($1, 'hi')`, k)
	}
}

// Count is the number of rows of the outbox where a condition holds.
func (s *Site) Count(t testing.TB, where string) string {
	t.Helper()
	return s.DB.Query1(t, "select count(*) from public.outbox where "+where)
}

// Settled waits until no row says READY and nothing is owed a status.
func (s *Site) Settled(t testing.TB) {
	t.Helper()
	Eventually(t, 90*time.Second, "no row READY", func() bool {
		return s.DB.Query1(t, `select not exists (select from public.outbox where status = 0)
			and not exists (select from outbox_relay.pending_status)`) == "t"
	})
}

// Drained waits until everything that is committed now is settled, and the
// log behind it confirmed. It inserts a row with the key drained for it, since
// a quiet relay confirms seldom.
func (s *Site) Drained(t testing.TB) {
	t.Helper()
	here := s.DB.Query1(t, `select pg_current_wal_insert_lsn()`)
	s.Insert(t, "drained")
	Eventually(t, 90*time.Second, "the slot passes "+here, func() bool {
		return s.DB.Query1(t, `select confirmed_flush_lsn > $2::text::pg_lsn from pg_replication_slots where slot_name = $1`, s.Slot(), here) == "t"
	})
	s.Settled(t)
}

// Released waits until the server has let go of every relay: what a killed
// one had sent may still commit a moment after its death.
func (s *Site) Released(t testing.TB) {
	t.Helper()
	Eventually(t, 90*time.Second, "no connection of a relay", func() bool {
		return s.DB.Query1(t, `select count(*) from pg_stat_activity where datname = current_database() and application_name ~ '^outbox.relay'`) == "0"
	})
}

// SentIDs are the event ids of the rows that say SENT now.
func (s *Site) SentIDs(t testing.TB) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	text := s.DB.Query1(t, `select coalesce(string_agg(event_id::text, ','), '') from public.outbox where status = 2`)
	for id := range strings.SplitSeq(text, ",") {
		if id != "" {
			ids[id] = true
		}
	}
	return ids
}

// Workload writes as many applications would, to the site's topic.
func (s *Site) Workload(t testing.TB, w judge.Workload) judge.Journal {
	t.Helper()
	w.Connect, w.Topics = judge.Dial(s.DB.DSN()), []string{s.Topic}
	j, err := w.Run(t.Context())
	if err != nil {
		t.Error(err)
	}
	return j
}

// Truth opens the judge's own slot; rows committed from now on count. Tables
// are as in judge.TruthOptions.
func (s *Site) Truth(t testing.TB, tables ...string) *judge.Truth {
	t.Helper()
	tr, err := judge.OpenTruth(t.Context(), judge.Dial(s.DB.DSN()), judge.TruthOptions{Slot: "truth_" + s.DB.Name(), Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// Judge gives the verdict over the whole run; journal may be nil.
func (s *Site) Judge(t testing.TB, tr *judge.Truth, journal *judge.Journal, rules judge.Rules) judge.Report {
	t.Helper()
	lines, err := judge.ReadLines(t.Context(), s.DB.Conn(t), "default", "public.outbox")
	if err != nil {
		t.Fatal(err)
	}
	return judge.Verdict(t, tr, [][]kafkaserver.Record{s.Kafka.Dump(t, s.Topic)}, lines, journal, rules)
}

// Eventually polls until ok holds.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
