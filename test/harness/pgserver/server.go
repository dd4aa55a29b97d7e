package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/certs"
	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// User is the superuser of every server, trusted on the socket and 127.0.0.1.
const User = "postgres"

// Server is one PostgreSQL server. It lives until Close, at the latest until
// this process ends. Its methods are safe for concurrent use, but Start, Stop
// and Close exclude each other.
type Server struct {
	options Options
	major   int
	version int // server_version_num
	bin     string
	dir     string // holds data, socket, log and certificates
	owner   owner
	ca      *certs.Authority // nil without TLS
	remote  *Remote          // set by Attach; then dir and proc are not used

	mu   sync.Mutex     // guards what follows
	port int            // written by boot only
	proc *guard.Process // nil before the first start
}

// New makes a data directory and starts a server on it. It returns when the
// server takes connections. Errors that wrap ErrMissing mean that the binaries
// cannot be had on this machine.
func New(ctx context.Context, o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("creating a PostgreSQL %d server: %w", s.major, err), s.Close())
	}
	return s, nil
}

// prepare finds the binaries and makes the directory.
func prepare(ctx context.Context, o Options) (*Server, error) {
	major := Choose(o.Major)
	bin, err := Fetch(ctx, major, o.Progress)
	if err != nil {
		return nil, err
	}
	own, err := serverOwner()
	if err != nil {
		return nil, err
	}
	dir, err := guard.Dir("pg" + strconv.Itoa(major))
	if err != nil {
		return nil, err
	}
	return &Server{options: o, major: major, bin: bin, dir: dir, owner: own}, nil
}

func (s *Server) create(ctx context.Context) error {
	if err := s.initdb(ctx); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	if err := s.boot(ctx); err != nil {
		return err
	}
	return s.readVersion(ctx)
}

func (s *Server) readVersion(ctx context.Context) error {
	conn, err := s.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&s.version)
	if err != nil {
		return fmt.Errorf("reading the server's version: %w", err)
	}
	return nil
}

// Close stops the server the quick way and removes everything it had. A second
// call does nothing. A server that Attach gave goes on.
func (s *Server) Close() error {
	if s.remote != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(s.Stop(ctx, Immediate), os.RemoveAll(s.dir))
}

// Major is 14 to 18.
func (s *Server) Major() int { return s.major }

// Version is server_version_num, for example 170005.
func (s *Server) Version() int { return s.version }

// Port is the TCP port on 127.0.0.1, the same after every restart.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// SocketDir is the directory of the unix socket.
func (s *Server) SocketDir() string { return filepath.Join(s.dir, "socket") }

// DataDir is the server's data directory.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

// BinDir holds initdb and postgres; other client programs may be missing.
func (s *Server) BinDir() string { return s.bin }

// CAFile is the authority of the server's certificate, "" without TLS.
func (s *Server) CAFile() string {
	if s.ca == nil {
		return ""
	}
	return filepath.Join(s.dir, "tls", "ca.pem")
}

// Pid is the postmaster's process id, 0 when it does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.Running() {
		return 0
	}
	return s.proc.Pid()
}

// Running says whether the postmaster runs.
func (s *Server) Running() bool { return s.remote != nil || s.Pid() != 0 }

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// Log is the server's whole log, "" when there is none.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return ""
	}
	return string(text)
}

// LogTail is the end of the log, for messages.
func (s *Server) LogTail() string {
	lines := strings.Split(strings.TrimSpace(s.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// DSN connects to a database over 127.0.0.1, without TLS.
func (s *Server) DSN(database string) string {
	if s.remote != nil {
		return s.DSNAs(database, User, s.remote.Password)
	}
	return s.dsn(database, url.User(User), "sslmode=disable")
}

// DSNAs is DSN for another role, with its password ("" sends none).
func (s *Server) DSNAs(database, role, password string) string {
	return s.dsn(database, userInfo(role, password), "sslmode=disable")
}

// TLSDSN connects over TLS and verifies the server's certificate. It may only
// be used when Options.TLS was set.
func (s *Server) TLSDSN(database, role, password string) string {
	return s.dsn(database, userInfo(role, password), "sslmode=verify-full&sslrootcert="+url.QueryEscape(s.CAFile()))
}

// SocketDSN connects over the unix socket; over TCP where Attach gave the server.
func (s *Server) SocketDSN(database string) string {
	if s.remote != nil {
		return s.DSN(database)
	}
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", s.SocketDir(), s.Port(), User, database)
}

func userInfo(role, password string) *url.Userinfo {
	if password == "" {
		return url.User(role)
	}
	return url.UserPassword(role, password)
}

func (s *Server) dsn(database string, user *url.Userinfo, query string) string {
	host := "127.0.0.1"
	if s.remote != nil {
		host = s.remote.Host
	}
	u := url.URL{Scheme: "postgres", User: user, Host: net.JoinHostPort(host, strconv.Itoa(s.Port())), Path: "/" + database, RawQuery: query}
	return u.String()
}

// Connect opens a connection as superuser over the unix socket. The caller
// closes it.
func (s *Server) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, s.SocketDSN(database))
	if err != nil {
		return nil, fmt.Errorf("connecting to database %s: %w", database, err)
	}
	return conn, nil
}
