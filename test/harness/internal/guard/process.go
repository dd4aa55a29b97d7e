package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Process is a child process that ends at the latest with this one.
// Its methods are safe for concurrent use.
type Process struct {
	cmd     *exec.Cmd
	pidFile string
	done    chan struct{}

	mu  sync.Mutex
	err error // written once, before done is closed
}

// Start runs cmd as a child in its own process group and records it in dir,
// which Dir made. stop is the name of the signal that ends it for good when
// this process dies first ("QUIT", "KILL"). Standard output and error must be
// files, or go test would wait for the child.
func Start(cmd *exec.Cmd, dir, stop string) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &Process{cmd: cmd, pidFile: filepath.Join(dir, "pid"), done: make(chan struct{})}
	line := fmt.Sprintf("%d %s\n", cmd.Process.Pid, stop)
	if err := os.WriteFile(p.pidFile, []byte(line), 0o600); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go p.wait()
	return p, nil
}

// wait ends with the child; the guard makes the child end.
func (p *Process) wait() {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	_ = os.Remove(p.pidFile)
	close(p.done)
}

// Pid is the process id; it may be gone.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the child has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err says how the child ended. It is nil while it runs and after exit code 0.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Signal sends sig. A child that has ended is no error.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to pid %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// Stop sends sig and waits for the end of the child. When ctx ends first, the
// child is killed and waited for, and ctx's error is returned.
func (p *Process) Stop(ctx context.Context, sig os.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return fmt.Errorf("waiting for pid %d after %v: %w", p.Pid(), sig, ctx.Err())
}
