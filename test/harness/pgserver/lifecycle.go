package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/certs"
	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// makeDirs makes the directories of data and socket for the server's user.
func (s *Server) makeDirs() error {
	for _, dir := range []string{s.DataDir(), s.SocketDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.Chmod(s.SocketDir(), 0o755); err != nil {
		return err
	}
	if err := s.owner.give(s.dir); err != nil {
		return fmt.Errorf("handing the directory to the server's user: %w", err)
	}
	return nil
}

// initdb fills the data directory as the server's user.
func (s *Server) initdb(ctx context.Context) error {
	if err := s.makeDirs(); err != nil {
		return err
	}
	args := []string{
		"-D", s.DataDir(), "-U", User, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync",
		"--no-instructions",
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), append(args, s.options.InitArgs...)...)
	cmd.SysProcAttr, cmd.Dir, cmd.Env = s.owner.attr(), s.dir, environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running initdb: %w\n%s", err, out)
	}
	return nil
}

// environment is this process's without what libpq and the server read from it.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return append(env, "LC_ALL=C")
}

// configure writes certificates, pg_hba.conf and the settings; the port comes
// at each boot on the command line.
func (s *Server) configure() error {
	settings := s.options.defaults()
	settings["unix_socket_directories"] = s.SocketDir()
	if s.options.TLS {
		if err := s.writeCertificates(); err != nil {
			return fmt.Errorf("writing certificates: %w", err)
		}
		settings["ssl"] = "on"
		settings["ssl_ca_file"] = s.CAFile()
		settings["ssl_cert_file"] = filepath.Join(s.dir, "tls", "server.crt")
		settings["ssl_key_file"] = filepath.Join(s.dir, "tls", "server.key")
	}
	text := conf(settings) + conf(s.options.Settings)
	if err := s.owner.writeFile(filepath.Join(s.DataDir(), "postgresql.conf"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing postgresql.conf: %w", err)
	}
	if err := s.owner.writeFile(filepath.Join(s.DataDir(), "pg_hba.conf"), []byte(hba(s.options.HBA)), 0o600); err != nil {
		return fmt.Errorf("writing pg_hba.conf: %w", err)
	}
	return nil
}

func (s *Server) writeCertificates() error {
	ca, err := certs.New()
	if err != nil {
		return err
	}
	pair, err := ca.Issue("localhost")
	if err != nil {
		return err
	}
	s.ca = ca
	dir := filepath.Join(s.dir, "tls")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		s.owner.writeFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o644),
		s.owner.writeFile(filepath.Join(dir, "server.crt"), pair.Cert, 0o644),
		s.owner.writeFile(filepath.Join(dir, "server.key"), pair.Key, 0o600),
	)
}

// boot starts the first time: it tries other ports when one is taken between
// choosing and binding.
func (s *Server) boot(ctx context.Context) error {
	var err error
	for range 5 {
		port, errPort := guard.Port()
		if errPort != nil {
			return errPort
		}
		s.mu.Lock()
		s.port = port
		s.mu.Unlock()
		if err = s.Start(ctx); err == nil || !strings.Contains(s.Log(), "Address already in use") {
			return err
		}
	}
	return err
}

// Start starts the server again, on the same port, and returns when it takes
// connections. A running server is an error.
func (s *Server) Start(ctx context.Context) error {
	if s.remote != nil {
		return errAttached
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && s.proc.Running() {
		return errors.New("starting the server: it runs already")
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// Not CommandContext: the server outlives the context of its start.
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.DataDir(), "-p", strconv.Itoa(s.port))
	cmd.SysProcAttr, cmd.Dir, cmd.Env = s.owner.attr(), s.dir, environment()
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := guard.Start(cmd, s.dir, "QUIT")
	if err != nil {
		return err
	}
	s.proc = proc
	err = guard.Poll(ctx, "PostgreSQL to take connections", proc.Done(), s.ready)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.LogTail())
	}
	return nil
}

// ready reads the postmaster's own word, the eighth line of postmaster.pid,
// and compares the pid, for the file of a crashed predecessor may lie there.
func (s *Server) ready() (bool, error) {
	text, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		return false, nil // not written yet
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(s.proc.Pid()) && strings.TrimSpace(lines[7]) == "ready", nil
}

// Stop stops the server and waits for its end. A server that does not run is
// no error. When ctx ends first, the postmaster is killed.
func (s *Server) Stop(ctx context.Context, mode Mode) error {
	if s.remote != nil {
		return errAttached
	}
	signals := map[Mode]syscall.Signal{Smart: syscall.SIGTERM, Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT, Kill: syscall.SIGKILL}
	sig, ok := signals[mode]
	if !ok {
		return fmt.Errorf("stopping the server: no mode %q", mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	if err := s.proc.Stop(ctx, sig); err != nil {
		return fmt.Errorf("stopping the server (%s): %w", mode, err)
	}
	return nil
}

// Signal sends a signal to the postmaster, for faults that Stop does not know.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("signalling the server: it was never started")
	}
	return s.proc.Signal(sig)
}
