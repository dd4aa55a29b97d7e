package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endLimit bounds the wait for the end of a process: more than shutdown.grace.
const endLimit = 40 * time.Second

// Process is one running relay.
type Process struct {
	Log *Log

	t     testing.TB
	cmd   *exec.Cmd
	probe string
	done  chan struct{}
	err   error // of Wait; read after done
}

// Start runs a relay, with more environment variables as name=value, and ends
// it with the test at the latest.
func (s *Site) Start(t testing.TB, env ...string) *Process {
	t.Helper()
	p := &Process{t: t, probe: FreeAddress(t), Log: &Log{}, done: make(chan struct{})}
	s.Set("listen", "probes", p.probe)
	p.cmd = s.Command(t, "run")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr, p.cmd.Stdout = p.Log, p.Log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of relay %d:\n%s", p.Pid(), Tail(p.Log.String(), 6000))
		}
	})
	return p
}

// FreeAddress is a loopback address that nobody listened on a moment ago.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Pid is the process's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process, which must run.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v: %v", sig, err)
	}
}

// Kill ends the process with SIGKILL and waits for its end. One that has
// ended is left alone.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process with SIGTERM and wants exit code 0.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.wait("the relay did not obey SIGTERM")
	if p.err != nil {
		p.t.Fatalf("the relay ended with %v", p.err)
	}
}

// ExitCode waits for the end that the process comes to by itself.
func (p *Process) ExitCode() int {
	p.t.Helper()
	p.wait("the relay did not end")
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// KilledBy waits for the end and says which signal brought it; 0 when none
// did.
func (p *Process) KilledBy() syscall.Signal {
	p.t.Helper()
	p.wait("the relay did not end")
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

func (p *Process) wait(otherwise string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(endLimit):
		p.t.Fatalf("%s within %v", otherwise, endLimit)
	}
}

// Frozen waits until the kernel calls the process stopped, as SIGSTOP leaves
// it.
func (p *Process) Frozen() {
	p.t.Helper()
	Eventually(p.t, time.Minute, "the relay to stand still", func() bool {
		if !p.Running() {
			p.t.Fatalf("the relay ended: %v\n%s", p.err, Tail(p.Log.String(), 3000))
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		_, rest, _ := strings.Cut(string(text), ") ")
		return strings.HasPrefix(rest, "T")
	})
}

// Running says that the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Ready waits until the readiness probe says that the relay streams.
func (p *Process) Ready() {
	p.t.Helper()
	p.State("streaming", "catching_up")
}

// State waits for one of the states, as /readyz?verbose gives it, and says
// which it was.
func (p *Process) State(want ...string) (state string) {
	p.t.Helper()
	Eventually(p.t, time.Minute, "state "+strings.Join(want, " or "), func() bool {
		if !p.Running() {
			p.t.Fatalf("the relay ended: %v\n%s", p.err, Tail(p.Log.String(), 3000))
		}
		state = p.StateNow()
		for _, w := range want {
			if state == w {
				return true
			}
		}
		return false
	})
	return state
}

// StateNow is what the readiness probe says; "" when it does not answer.
func (p *Process) StateNow() string {
	var doc struct{ State string }
	if json.Unmarshal([]byte(p.Get("/readyz?verbose")), &doc) != nil {
		return ""
	}
	return doc.State
}

// Get gives the body of one of the process's pages; "" when there is no
// answer.
func (p *Process) Get(path string) string {
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

// ResidentMiB is the memory of the process.
func (p *Process) ResidentMiB() int {
	p.t.Helper()
	return p.memoryMiB("VmRSS:")
}

// PeakMiB is the most memory that the process ever had.
func (p *Process) PeakMiB() int {
	p.t.Helper()
	return p.memoryMiB("VmHWM:")
}

func (p *Process) memoryMiB(field string) int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	var kb int
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			_, _ = fmt.Sscan(rest, &kb)
		}
	}
	return kb >> 10
}
