package harness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// startTimeout bounds a start with its download, on a machine where several
// test processes share two cores.
const startTimeout = 3 * time.Minute

// callTimeout bounds every other step.
const callTimeout = time.Minute

// PostgresOptions says which server a test wants. The zero value is a good one.
type PostgresOptions struct {
	Major    int               // 14 to 18; 0 = the newest on the machine, else a download
	Settings map[string]string // win over the harness's own
	TLS      bool              // see CAFile and TLSDSN
	HBA      []string          // lines before the ones that trust loopback
	InitArgs []string          // for initdb
	Durable  bool              // fsync on; needed only where the machine itself would crash
}

// Postgres is a server with the testing.TB of each call for failures. The
// embedded *pgserver.Server has what is not wrapped here.
type Postgres struct {
	*pgserver.Server
	shared bool
	next   atomic.Int64
}

// container is set with the build tag containers only, which keeps the Docker
// client out of every other test binary.
var container func(testing.TB, PostgresOptions) (*Postgres, bool)

// StartPostgres starts a server of the test's own, which is stopped and
// removed when the test ends. It takes about a second.
func StartPostgres(t testing.TB, o PostgresOptions) *Postgres {
	t.Helper()
	if container != nil {
		if p, ok := container(t, o); ok {
			return p
		}
	}
	Need(t, PostgresMajor(pgserver.Choose(o.Major)))
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := pgserver.New(ctx, o.server(t))
	if err != nil {
		startFailed(t, "postgres", err)
	}
	return own(t, s)
}

func (o PostgresOptions) server(t testing.TB) pgserver.Options {
	return pgserver.Options{
		Major: o.Major, Settings: o.Settings, TLS: o.TLS, HBA: o.HBA,
		InitArgs: o.InitArgs, Durable: o.Durable, Progress: t.Output(),
	}
}

// own ties the life of a server to the test.
func own(t testing.TB, s *pgserver.Server) *Postgres {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of PostgreSQL %d on port %d:\n%s", s.Major(), s.Port(), s.LogTail())
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
	})
	return &Postgres{Server: s}
}

// shared holds one server per major and process.
var shared struct {
	sync.Mutex
	servers map[int]*Postgres
}

// SharedPostgres gives the one server of this major that all tests of this
// process share (0 as in PostgresOptions). It ends with the process. Tests use
// it through CreateDatabase and must not stop it.
func SharedPostgres(t testing.TB, major int) *Postgres {
	t.Helper()
	major = pgserver.Choose(major)
	Need(t, PostgresMajor(major))
	shared.Lock()
	defer shared.Unlock()
	if p, ok := shared.servers[major]; ok {
		return p
	}
	// Not t.Context(): the server outlives the test that came first.
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := pgserver.New(ctx, PostgresOptions{Major: major}.server(t))
	if err != nil {
		startFailed(t, fmt.Sprintf("shared postgres %d", major), err)
	}
	if shared.servers == nil {
		shared.servers = map[int]*Postgres{}
	}
	p := &Postgres{Server: s, shared: true}
	shared.servers[major] = p
	return p
}

// Stop stops the server: mode is fast, immediate, smart or kill.
func (p *Postgres) Stop(t testing.TB, mode string) {
	t.Helper()
	if p.shared {
		t.Fatal("stopping a shared server: use StartPostgres")
	}
	p.try(t, func(ctx context.Context) error { return p.Server.Stop(ctx, pgserver.Mode(mode)) })
}

// Start starts a stopped server on the same port.
func (p *Postgres) Start(t testing.TB) {
	t.Helper()
	p.try(t, p.Server.Start)
}

// Crash stops the server without a checkpoint; the next start recovers.
func (p *Postgres) Crash(t testing.TB) {
	t.Helper()
	p.Stop(t, string(pgserver.Immediate))
}

// Restart is a fast stop and a start.
func (p *Postgres) Restart(t testing.TB) {
	t.Helper()
	p.Stop(t, string(pgserver.Fast))
	p.Start(t)
}

// CreateRole makes a role that can log in; attributes are for example
// "REPLICATION". Roles of a shared server outlive the test, so give them
// names of their own there.
func (p *Postgres) CreateRole(t testing.TB, name, password string, attributes ...string) {
	t.Helper()
	p.try(t, func(ctx context.Context) error {
		return p.Server.CreateRole(ctx, pgserver.Role{Name: name, Password: password, Attributes: attributes})
	})
}

// StandbyOptions says which standby a test wants.
type StandbyOptions = pgserver.StandbyOptions

// Standby makes a streaming standby of p, which ends with the test.
func (p *Postgres) Standby(t testing.TB, o StandbyOptions) *Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := p.Server.Standby(ctx, o)
	if err != nil {
		startFailed(t, "standby", err)
	}
	return own(t, s)
}

// Promote makes a standby a primary of a new timeline and waits for it.
func (p *Postgres) Promote(t testing.TB) {
	t.Helper()
	p.try(t, p.Server.Promote)
}

// WaitFor returns when this standby has replayed what primary has written by
// now.
func (p *Postgres) WaitFor(t testing.TB, primary *Postgres) {
	t.Helper()
	p.try(t, func(ctx context.Context) error { return p.Server.WaitFor(ctx, primary.Server) })
}

// try runs one bounded step and fails the test on an error.
func (p *Postgres) try(t testing.TB, step func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
	defer cancel()
	if err := step(ctx); err != nil {
		t.Fatalf("%v\nend of the server's log:\n%s", err, p.LogTail())
	}
}
