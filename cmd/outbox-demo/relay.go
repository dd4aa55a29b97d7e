package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	restartPause = time.Second      // between the end of a relay and the next one
	stopLimit    = 15 * time.Second // for SIGTERM to be obeyed
	maxDeaths    = 5                // ends that nobody asked for
)

// relay runs the real binary as a process, and starts it again when it ends, as
// a service manager would. Its methods are safe for concurrent use.
type relay struct {
	binary  string
	config  string // path
	probes  string // host:port
	log     *os.File
	scratch *scratch
	pause   time.Duration // restartPause; tests wait less

	mu     sync.Mutex        // guards what follows
	say    func(text string) // hears of ends that nobody asked for; nil: nobody does
	child  *child            // nil before the first start
	counts relayCounts
}

// relayCounts say how often the relay was started again.
type relayCounts struct {
	Restarts int // after the first start
	Deaths   int // ends that nobody asked for
}

// child is one process.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed after cmd was waited for
	meant bool          // somebody asked for its end; guarded by relay.mu
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) running() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// killed says whether the process ended by SIGKILL.
func (c *child) killed() bool {
	<-c.ended
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// newRelay writes the configuration and opens the log, both in the scratch
// directory. Nothing is started.
func newRelay(s *scratch, binary string, db *database, brokers []string) (*relay, error) {
	probes, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(s.dir, "outbox-relay.yaml")
	if err := os.WriteFile(config, configFile(db, brokers, probes), 0o600); err != nil {
		return nil, fmt.Errorf("writing the relay's configuration: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "outbox-relay.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the relay's log: %w", err)
	}
	return &relay{binary: binary, config: config, probes: probes, log: log, scratch: s, pause: restartPause}, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// configFile is everything that differs from the defaults.
func configFile(db *database, brokers []string, probes string) []byte {
	text := func(v any) string {
		b, err := json.Marshal(v) // JSON is YAML
		if err != nil {
			panic(fmt.Sprintf("outbox-demo: encoding %v: %v", v, err))
		}
		return strings.ReplaceAll(string(b), "$", "$$")
	}
	return fmt.Appendf(nil, `relay: {name: demo}
postgres: {replication: %s}
slot: {name: %s}
kafka: {brokers: %s}
listen: {probes: %s}
log: {format: json}
`, text(db.dsn), text(db.name), text(brokers), text(probes))
}

// command makes one command of the relay, free of what this shell's
// environment would tell it.
func (r *relay) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.binary, append(args, "--config", r.config)...)
	cmd.Dir = r.scratch.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OUTBOX_") && !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "DATABASE_URL=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo alone
	return cmd
}

// Do runs a command that ends by itself.
func (r *relay) Do(ctx context.Context, args ...string) error {
	out, err := r.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running outbox-relay %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts the process. ctx does not end it: Run does, with a signal.
func (r *relay) start() (*child, error) {
	cmd := r.command(context.Background(), "run")
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting outbox-relay: %w", err)
	}
	c := &child{cmd: cmd, ended: make(chan struct{})}
	r.scratch.hold(c.pid())
	go func() { // Run waits for its end
		_ = cmd.Wait() // ProcessState keeps how it ended
		r.scratch.hold(0)
		close(c.ended)
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.child = c
	return c, nil
}

// Run keeps the relay running until ctx ends, then stops it with SIGTERM and
// returns how it obeyed. It gives up when the relay ends too often by itself.
func (r *relay) Run(ctx context.Context) error {
	for {
		c, err := r.start()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return r.stop(c)
		case <-c.ended:
		}
		if err := r.bury(c); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.pause):
		}
		r.mu.Lock()
		r.counts.Restarts++
		r.mu.Unlock()
	}
}

// bury counts an end that nobody asked for.
func (r *relay) bury(c *child) error {
	r.mu.Lock()
	meant := c.meant
	if !meant {
		r.counts.Deaths++
	}
	deaths, say := r.counts.Deaths, r.say
	r.mu.Unlock()
	if meant {
		return nil
	}
	if deaths >= maxDeaths {
		return fmt.Errorf("outbox-relay ended by itself %d times, the last time with %v", deaths, c.cmd.ProcessState)
	}
	if say != nil {
		say(fmt.Sprintf("the relay ended by itself (%v); it is started again", c.cmd.ProcessState))
	}
	return nil
}

// hear sets who is told of an end that nobody asked for.
func (r *relay) hear(say func(text string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say = say
}

func (r *relay) stop(c *child) error {
	r.mean(c)
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is waited for below
	select {
	case <-c.ended:
	case <-time.After(stopLimit):
		_ = c.cmd.Process.Kill()
		<-c.ended
		return fmt.Errorf("stopping outbox-relay: it did not end within %v of SIGTERM and was killed", stopLimit)
	}
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("stopping outbox-relay: %v after SIGTERM", c.cmd.ProcessState)
	}
	return nil
}

func (r *relay) mean(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.meant = true
}

// Kill sends SIGKILL to the running process and waits for its end. It gives the
// pid; Run starts the next one after a pause.
func (r *relay) Kill() (pid int, err error) {
	c := r.current()
	if c == nil || !c.running() {
		return 0, errors.New("killing the relay: it does not run")
	}
	r.mean(c)
	if err := c.cmd.Process.Kill(); err != nil {
		return c.pid(), fmt.Errorf("killing the relay: %w", err)
	}
	if !c.killed() {
		return c.pid(), fmt.Errorf("killing the relay: it ended otherwise: %v", c.cmd.ProcessState)
	}
	return c.pid(), nil
}

func (r *relay) current() *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.child
}

// Pid is the running process, 0 when none runs.
func (r *relay) Pid() int {
	if c := r.current(); c != nil && c.running() {
		return c.pid()
	}
	return 0
}

// Counts says how often it was started again.
func (r *relay) Counts() relayCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Tail is the end of its log.
func (r *relay) Tail() string {
	const most = 4 << 10
	size, err := r.log.Seek(0, 2)
	if err != nil {
		return ""
	}
	buf := make([]byte, min(size, most))
	n, _ := r.log.ReadAt(buf, max(0, size-most))
	lines := strings.Split(strings.TrimRight(string(buf[:n]), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
