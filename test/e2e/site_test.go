package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// binary is built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outbox-relay-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "outbox-relay")
	build := exec.Command("go", "build", "-o", binary, "github.com/outboxrelay/outbox-relay/cmd/outbox-relay")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the relay: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// kafka is what both kinds of broker offer.
type kafka interface {
	Brokers() []string
	CreateTopic(t testing.TB, name string, partitions int, settings map[string]string)
	Dump(t testing.TB, topic string) []harness.Record
}

// site is one database with an outbox, one broker, and the settings of the
// relays that serve them.
type site struct {
	db     *harness.Database
	kafka  kafka
	topic  string
	kind   string // aggregate_type, from which the topic comes
	config map[string]any
}

// newSite prepares database, schema, publication, slot and topic with the
// product's own commands.
func newSite(t *testing.T, pg *harness.Postgres, k kafka) *site {
	t.Helper()
	s := &site{db: pg.CreateDatabase(t), kafka: k}
	s.kind = fmt.Sprintf("%s_%d", s.db.Name(), pg.Port()) // unique among all tests that share a broker
	s.topic = "outbox.event." + s.kind
	k.CreateTopic(t, s.topic, 4, nil)
	s.config = map[string]any{
		"postgres": map[string]any{"replication": s.db.DSN()},
		"slot":     map[string]any{"name": "s_" + s.db.Name(), "wal_sender_timeout": "10s"},
		"kafka":    map[string]any{"brokers": k.Brokers()},
		"log":      map[string]any{"format": "json"},
	}
	if out, err := s.command(t, "setup", "--apply", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	s.db.Exec(t, fmt.Sprintf(`alter table public.outbox alter aggregate_type set default '%s', alter event_type set default 'placed'`, s.kind))
	return s
}

// set changes one key of the configuration, for relays started from now on.
func (s *site) set(section, key string, value any) {
	m, ok := s.config[section].(map[string]any)
	if !ok {
		m = map[string]any{}
		s.config[section] = m
	}
	m[key] = value
}

// command makes one command of the product, with a configuration file of its
// own and a clean environment.
func (s *site) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(s.config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outbox-relay.yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("$"), []byte("$$")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, append(args, "--config", file)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	return cmd
}

// process is one running relay.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	probe string
	log   *bytes.Buffer // read only after the end
	done  chan struct{}
	err   error // of Wait; read after done
}

// start runs a relay and ends it with the test at the latest.
func (s *site) start(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, probe: freeAddress(t), log: &bytes.Buffer{}, done: make(chan struct{})}
	s.set("listen", "probes", p.probe)
	p.cmd = s.command(t, "run")
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of relay %d:\n%s", p.cmd.Process.Pid, tail(p.log.String(), 6000))
		}
	})
	return p
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v: %v", sig, err)
	}
}

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill() {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// stop ends the process with SIGTERM and wants exit code 0.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		p.t.Fatal("the relay did not obey SIGTERM within 40 s")
	}
	if p.err != nil {
		p.t.Fatalf("the relay ended with %v", p.err)
	}
}

func (p *process) exitCode() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		p.t.Fatal("the relay did not end within 40 s")
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// ready waits until the readiness probe says that the relay streams.
func (p *process) ready() {
	p.t.Helper()
	p.state("streaming", "catching_up")
}

// state waits for one of the states, as /readyz?verbose gives it.
func (p *process) state(want ...string) {
	p.t.Helper()
	last := ""
	eventually(p.t, 60*time.Second, "state "+strings.Join(want, " or "), func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("the relay ended: %v\n%s", p.err, tail(p.log.String(), 3000))
		default:
		}
		last = p.get("/readyz?verbose")
		var doc struct{ State string }
		if json.Unmarshal([]byte(last), &doc) != nil {
			return false
		}
		for _, w := range want {
			if doc.State == w {
				return true
			}
		}
		return false
	})
}

func (p *process) get(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.probe+path, nil)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// rssMB is the resident memory of the process in MiB.
func (p *process) rssMB() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	var kb int
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(rest, &kb)
		}
	}
	return kb >> 10
}

// eventually polls until ok holds.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// insert commits one row for each key.
func (s *site) insert(t *testing.T, keys ...string) {
	t.Helper()
	for _, k := range keys {
		s.db.Exec(t, `insert into public.outbox (aggregate_id, payload) values ($1, 'hi')`, k)
	}
}

func (s *site) count(t *testing.T, where string) string {
	t.Helper()
	return s.db.Query1(t, "select count(*) from public.outbox where "+where)
}

// settled waits until no row says READY and nothing is owed a status.
func (s *site) settled(t *testing.T) {
	t.Helper()
	eventually(t, 90*time.Second, "no row READY", func() bool {
		return s.count(t, "status = 0") == "0" && s.db.Query1(t, `select count(*) from outbox_relay.pending_status`) == "0"
	})
}

// workload writes as many applications would.
func (s *site) workload(t *testing.T, w judge.Workload) judge.Journal {
	t.Helper()
	w.Connect, w.Topics = judge.Dial(s.db.DSN()), []string{s.topic}
	j, err := w.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (s *site) truth(t *testing.T) *judge.Truth {
	t.Helper()
	tr, err := judge.OpenTruth(t.Context(), judge.Dial(s.db.DSN()), judge.TruthOptions{Slot: "truth_" + s.db.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func (s *site) judge(t *testing.T, tr *judge.Truth, j *judge.Journal, rules judge.Rules) judge.Report {
	t.Helper()
	lines, err := judge.ReadLines(t.Context(), s.db.Conn(t), "default", "public.outbox")
	if err != nil {
		t.Fatal(err)
	}
	rep := judge.Verdict(t, tr, [][]kafkaserver.Record{s.kafka.Dump(t, s.topic)}, lines, j, rules)
	t.Logf("%v", rep)
	return rep
}
