package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// child is a process that this one started. Its log goes to a file; what it
// prints is read as JSON, one value after the other.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	said  *json.Decoder
	log   string
	obeys int           // the exit code after stop; not 0 for a Java
	ended chan struct{} // closed after the process was waited for
}

// stopLimit is how long a child may take to obey.
const stopLimit = 20 * time.Second

// start starts cmd; name names its log file in dir.
func start(dir, name string, cmd *exec.Cmd) (*child, error) {
	c := &child{name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close() // the child has its own
	bind(cmd)
	cmd.Stderr = log
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	// A pipe of our own: Wait would close one of cmd's before it is read.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer in.Close() // the child has its own
	cmd.Stdout, c.said = in, json.NewDecoder(out)
	if !c.own() {
		cmd.Stdout = log // nobody would read the pipe
	}
	if err := cmd.Start(); err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { // stop and kill wait for its end
		_ = cmd.Wait() // ProcessState keeps how it ended
		close(c.ended)
	}()
	return c, nil
}

// startSelf starts this program in one of its hidden modes; spec is handed
// over as JSON. Such a child ends when its standard input does.
func startSelf(dir, mode string, spec any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("describing %s: %w", mode, err)
	}
	return start(dir, mode, exec.Command(self, childArgument, mode, string(text)))
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// hear reads the next value that the child prints.
func (c *child) hear(v any) error {
	if err := c.said.Decode(v); err != nil {
		return fmt.Errorf("listening to %s: %w\n%s", c.name, err, c.tail())
	}
	return nil
}

// while gives a context that ends with the child. stop frees it and must be
// called.
func (c *child) while(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.ended:
			cancel(fmt.Errorf("%s ended by itself (%v)\n%s", c.name, c.cmd.ProcessState, c.tail()))
		case <-over:
		}
	}()
	return ctx, func() {
		close(over)
		<-done
		cancel(nil)
	}
}

// stop asks the child to end and waits. An end with another exit code than
// it should have is an error.
func (c *child) stop() error {
	_ = c.stdin.Close()
	if !c.own() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is waited for below
	}
	select {
	case <-c.ended:
	case <-time.After(stopLimit):
		c.kill()
		return fmt.Errorf("stopping %s: it did not end within %v and was killed\n%s", c.name, stopLimit, c.tail())
	}
	if c.cmd.ProcessState.ExitCode() != c.obeys {
		return fmt.Errorf("stopping %s: %v\n%s", c.name, c.cmd.ProcessState, c.tail())
	}
	return nil
}

// own says whether the child is this program.
func (c *child) own() bool { return len(c.cmd.Args) > 1 && c.cmd.Args[1] == childArgument }

// kill ends the child at once and waits. One that has ended is no error.
func (c *child) kill() {
	_ = c.stdin.Close()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return // it cannot be waited for either
	}
	<-c.ended
}

// tail is the end of its log.
func (c *child) tail() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
