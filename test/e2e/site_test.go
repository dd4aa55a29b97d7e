package e2e

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// site is a rig.Site with the short words of these tests.
type site struct {
	db     *harness.Database
	kafka  rig.Kafka
	topic  string
	config map[string]any // shared with the rig's
	rig    *rig.Site
}

func newSite(t *testing.T, pg *harness.Postgres, k rig.Kafka) *site {
	t.Helper()
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: k})
	return &site{db: s.DB, kafka: s.Kafka, topic: s.Topic, config: s.Config, rig: s}
}

func (s *site) set(section, key string, value any) { s.rig.Set(section, key, value) }

func (s *site) insert(t *testing.T, keys ...string) {
	t.Helper()
	s.rig.Insert(t, keys...)
}

func (s *site) count(t *testing.T, where string) string {
	t.Helper()
	return s.rig.Count(t, where)
}

func (s *site) settled(t *testing.T) {
	t.Helper()
	s.rig.Settled(t)
}

func (s *site) workload(t *testing.T, w judge.Workload) judge.Journal {
	t.Helper()
	return s.rig.Workload(t, w)
}

func (s *site) truth(t *testing.T) *judge.Truth {
	t.Helper()
	return s.rig.Truth(t)
}

func (s *site) judge(t *testing.T, tr *judge.Truth, j *judge.Journal, rules judge.Rules) judge.Report {
	t.Helper()
	return s.rig.Judge(t, tr, j, rules)
}

// process is one running relay.
type process struct {
	*rig.Process
	log *rig.Log
}

func (s *site) start(t *testing.T) *process {
	t.Helper()
	p := s.rig.Start(t)
	return &process{Process: p, log: p.Log}
}

func (p *process) signal(sig syscall.Signal) { p.Signal(sig) }
func (p *process) kill()                     { p.Kill() }
func (p *process) stop()                     { p.Stop() }
func (p *process) exitCode() int             { return p.ExitCode() }
func (p *process) ready()                    { p.Ready() }
func (p *process) state(want ...string)      { p.State(want...) }
func (p *process) get(path string) string    { return p.Get(path) }
func (p *process) rssMB() int                { return p.ResidentMiB() }

func tail(s string, n int) string { return rig.Tail(s, n) }

func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	rig.Eventually(t, limit, what, ok)
}
