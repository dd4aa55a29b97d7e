package cdc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/rs/zerolog"
)

// Defaults of Config.
const (
	DefaultWALSenderTimeout = 30 * time.Second
	// DefaultGulp was the best of nine values measured for transactions of
	// one row on loopback TCP: 129,000 events/s against 50,000 without.
	DefaultGulp = 20 * time.Millisecond

	// applicationName is what pg_stat_replication shows and what
	// synchronous_standby_names would match.
	applicationName = "outbox_relay"
	// openTimeout bounds each exchange of Open when the caller's context has
	// no deadline of its own.
	openTimeout = 30 * time.Second
)

// Config says how to reach the server. It is not changed by Open.
type Config struct {
	// Conn must come from pgconn.ParseConfig. Open works
	// on a copy: it adds replication=database, the pinned settings,
	// wal_sender_timeout and, when none is set, application_name.
	Conn *pgconn.Config
	// WALSenderTimeout is after how long the server gives up on a silent
	// relay, and so how long a dead relay keeps the slot. 0 = the default;
	// it is never off, since the slot of a dead relay would stay busy.
	WALSenderTimeout time.Duration
	// Gulp is how long Next lets the kernel gather before a read while
	// SetFarBehind(true) is in force, on TCP only. 0 = off.
	Gulp time.Duration
	// Dial replaces the dialer; nil = TCP keepalive and TCP_USER_TIMEOUT
	// derived from WALSenderTimeout.
	Dial   pgconn.DialFunc
	Logger zerolog.Logger
}

// Identity is what the server said about itself when the stream was opened.
type Identity struct {
	SystemID      string // of the cluster; survives failover, not a logical restore
	Timeline      uint32
	WALEnd        outbox.LSN // flushed, at the moment of Open
	Database      string
	ServerVersion int // server_version_num, for example 150018
	BackendPID    uint32
}

// Open connects, identifies the system and returns a stream that is not
// started. ctx bounds Open alone. The caller must Close what it gets. Errors
// name host, port, user and database, and nothing else of the configuration.
func Open(ctx context.Context, cfg Config) (*Stream, error) {
	if cfg.WALSenderTimeout <= 0 {
		cfg.WALSenderTimeout = DefaultWALSenderTimeout
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	var source io.Reader
	conn := streamConfig(cfg, &source)
	pg, err := pgconn.ConnectConfig(ctx, conn)
	if err != nil {
		return nil, connectError(conn, err)
	}
	if err := pinLate(ctx, pg); err != nil {
		_ = pg.Close(ctx)
		return nil, err
	}
	id, err := identify(ctx, pg)
	if err != nil {
		_ = pg.Close(ctx)
		return nil, fmt.Errorf("identifying the server at %s: %w", endpoint(conn), err)
	}
	s, err := adopt(pg, source, cfg)
	if err != nil {
		return nil, err
	}
	id.BackendPID = s.identity.BackendPID
	s.identity = id
	return s, nil
}

// pinLate pins the settings that the start packet could not.
func pinLate(ctx context.Context, c *pgconn.PgConn) error {
	return outbox.PinLate(c.ParameterStatus("server_version"), func(sql string) error { return c.Exec(ctx, sql).Close() })
}

// streamConfig completes a copy of cfg.Conn. source receives the reader from
// which the connection's bytes come.
func streamConfig(cfg Config, source *io.Reader) *pgconn.Config {
	conn := cfg.Conn.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = map[string]string{}
	}
	maps.Copy(conn.RuntimeParams, outbox.PinnedSettings())
	conn.RuntimeParams["replication"] = "database"
	conn.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(cfg.WALSenderTimeout.Milliseconds(), 10)
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = applicationName
	}
	dial := cfg.Dial
	if dial == nil {
		dial = dialer(cfg.WALSenderTimeout).DialContext
	}
	conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newLink(c, network, cfg.Gulp), nil
	}
	conn.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		*source = r
		return pgproto3.NewFrontend(r, w)
	}
	return conn
}

// dialer detects a dead peer within about the given time, in both
// directions: keepalive while nothing is unacknowledged, TCP_USER_TIMEOUT
// while something is.
func dialer(dead time.Duration) *net.Dialer {
	probe := max(dead/6, time.Second)
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probe * 2, Interval: probe, Count: 4},
		Control:         userTimeout(dead),
	}
}

// adopt takes the connection out of pgconn's hands. From here on nobody but
// the Stream reads, writes or closes it.
func adopt(pg *pgconn.PgConn, source io.Reader, cfg Config) (*Stream, error) {
	h, err := pg.Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over the connection: %w", err)
	}
	// A late ParameterStatus may sit in the frontend's buffer; our reader
	// must begin at a message.
	for h.Frontend.ReadBufferLen() > 0 {
		if _, err := h.Frontend.Receive(); err != nil {
			return nil, errors.Join(fmt.Errorf("taking over the connection: %w", err), h.Conn.Close())
		}
	}
	s := &Stream{cfg: cfg, conn: h.Conn, link: linkOf(h.Conn), wire: newWire(source)}
	s.identity.BackendPID = h.PID
	s.notices = notices{log: cfg.Logger}
	return s, nil
}

// withDefaultTimeout gives ctx a deadline if it has none.
func withDefaultTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, openTimeout)
}
