package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// scratch is where the programs are built; Main removes it.
var scratch struct {
	sync.Mutex
	dir string
}

// Main runs the tests of a package and removes what was built for them. The
// package's TestMain exits with the code that it returns.
func Main(m *testing.M) int {
	defer func() {
		scratch.Lock()
		defer scratch.Unlock()
		if scratch.dir != "" {
			_ = os.RemoveAll(scratch.dir)
		}
	}()
	return m.Run()
}

func scratchDir() (string, error) {
	scratch.Lock()
	defer scratch.Unlock()
	if scratch.dir != "" {
		return scratch.dir, nil
	}
	dir, err := os.MkdirTemp("", "outbox-relay-rig-")
	if err != nil {
		return "", fmt.Errorf("making a place for the program: %w", err)
	}
	scratch.dir = dir
	return dir, nil
}

// program is one way to build the relay.
type program struct {
	name string
	args []string

	once sync.Once
	path string
	err  error
}

var (
	ordinary       = program{name: "outbox-relay"}
	withFailpoints = program{name: "outbox-relay-failpoints", args: []string{"-tags", "failpoints"}}
)

// built gives the program's path. The first call builds it, which may take a
// minute on a cold cache.
func (p *program) built(t testing.TB) string {
	t.Helper()
	p.once.Do(func() { p.path, p.err = p.build() })
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

func (p *program) build() (string, error) {
	dir, err := scratchDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, p.name)
	args := append([]string{"build", "-o", path}, p.args...)
	out, err := exec.Command("go", append(args, "github.com/outboxrelay/outbox-relay/cmd/outbox-relay")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the relay: %w\n%s", err, out)
	}
	return path, nil
}
