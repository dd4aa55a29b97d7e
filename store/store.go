package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// WriteBack says how the outbox shows a success.
type WriteBack string

// The ways of write-back. Async differs from Status in when the caller
// settles, not in what is written.
const (
	WriteStatus WriteBack = "status" // READY becomes SENT
	WriteAsync  WriteBack = "async"  // the same, behind
	WriteDelete WriteBack = "delete" // the row is deleted
	WriteOff    WriteBack = "off"    // the outbox is never written
)

const (
	defaultStatementTimeout = 30 * time.Second
	defaultLockTimeout      = 2 * time.Second
	// Shorter than the lease of a line (60 s): a transaction of ours that
	// hangs is ended by the server before its claims can be taken.
	idleInTransactionTimeout = 20 * time.Second
	// shortLockTimeout bounds how long a batch waits for rows of the outbox
	// that somebody else holds, and, while the outbox is locked as a whole
	// (CREATE INDEX), for the table. It is well below deadlock_timeout: whoever
	// holds those rows and waits for ours gets them.
	shortLockTimeout = 50 * time.Millisecond
	// aroundFor is how long batches go the long way after a quick one failed.
	aroundFor    = 10 * time.Second
	abortTimeout = 5 * time.Second
	warnEvery    = 30 * time.Second
)

// Config says which relay, which outbox, and over which connection.
type Config struct {
	Conn  *pgx.ConnConfig // copied; its run-time parameters are pinned
	Relay string          // name of the position row
	Slot  string
	Table Table
	Mode  WriteBack

	Logger           zerolog.Logger
	StatementTimeout time.Duration // default 30 s
	LockTimeout      time.Duration // default 2 s
}

// Store is one connection to the database and, after TakeOver, the session
// that owns the position row. Its methods may be called from any goroutine;
// they work one after another. After an error other than ErrFenced the
// connection may be dead: every later call fails, and the caller opens a new
// Store (see Usable).
type Store struct {
	cfg Config

	// busy holds one token; who has it owns everything below.
	busy     chan struct{}
	conn     *pgx.Conn
	table    Table
	sql      map[string]string   // statements against the outbox, by name
	prepared map[string]struct{} // those that the server knows
	encoding string              // of the database

	session  string // nonce; "" before TakeOver
	timeline uint32

	committing bool      // a COMMIT is on its way
	warned     bool      // the server warned during it
	blocked    bool      // the outbox was locked as a whole when last tried
	waitAgain  time.Time // until then every batch goes the long way
	cursor     []byte    // row_hash where the next drain goes on
	trouble    trouble
}

// Open connects, pins the session's settings and reads the outbox's columns.
// The caller closes the Store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, busy: make(chan struct{}, 1), prepared: map[string]struct{}{}}
	s.busy <- struct{}{}
	conn, err := pgx.ConnectConfig(ctx, s.connConfig())
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", judge(err))
	}
	s.conn = conn
	if err := s.prepareSession(ctx); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("opening the store: %w", judge(err))
	}
	return s, nil
}

func (c *Config) check() error {
	switch c.Mode {
	case WriteStatus, WriteAsync, WriteDelete, WriteOff:
	default:
		return fmt.Errorf("opening the store: unknown write-back %q", c.Mode)
	}
	if c.Conn == nil || c.Relay == "" || c.Slot == "" || c.Table.Name == "" || len(c.Table.Key) == 0 {
		return errors.New("opening the store: connection, relay, slot, table and its key columns must be given")
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = defaultStatementTimeout
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = defaultLockTimeout
	}
	return nil
}

func (s *Store) connConfig() *pgx.ConnConfig {
	c := s.cfg.Conn.Copy()
	maps.Copy(c.RuntimeParams, outbox.PinnedSettings())
	c.RuntimeParams["statement_timeout"] = milliseconds(s.cfg.StatementTimeout)
	c.RuntimeParams["lock_timeout"] = milliseconds(s.cfg.LockTimeout)
	c.RuntimeParams["idle_in_transaction_session_timeout"] = milliseconds(idleInTransactionTimeout)
	c.RuntimeParams["application_name"] = "outbox-relay store"
	maps.Copy(c.RuntimeParams, planSettings())
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	c.OnNotice = s.notice
	return c
}

// planSettings keep the few statements of this connection on their indexes.
// A plan made for the values, or for a table that grew since it was analysed,
// walked through 50,000 rows to find 500; one walk of a large outbox would
// take longer than the batch may. Compiling such statements never pays.
func planSettings() map[string]string {
	return map[string]string{
		"plan_cache_mode":  "force_generic_plan",
		"enable_seqscan":   "off",
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
		"jit":              "off",
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// prepareSession does what the start packet cannot.
func (s *Store) prepareSession(ctx context.Context) error {
	if err := pinLate(ctx, s.conn); err != nil {
		return err
	}
	s.encoding = s.conn.PgConn().ParameterStatus("server_encoding")
	table, err := s.cfg.Table.resolve(ctx, s.conn)
	if err != nil {
		return err
	}
	s.table, s.sql = table, table.statements()
	return nil
}

// pinLate pins the settings that the start packet could not.
func pinLate(ctx context.Context, conn *pgx.Conn) error {
	c := conn.PgConn()
	return outbox.PinLate(c.ParameterStatus("server_version"), func(sql string) error { return c.Exec(ctx, sql).Close() })
}

// notice hears the server's warnings. Their texts may hold values of the
// application, so only the code is logged.
func (s *Store) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	if s.committing && n.SeverityUnlocalized == "WARNING" {
		s.warned = true
	}
	s.cfg.Logger.Debug().Str("severity", n.SeverityUnlocalized).Str("sqlstate", n.Code).Msg("server notice")
}

// Usable says whether the connection is still open.
func (s *Store) Usable() bool { return !s.conn.IsClosed() }

// Ping asks the server for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return s.exclusive(ctx, "pinging the database", func() error { return s.conn.Ping(ctx) })
}

// Close ends the connection. It waits for a call that is under way, or for
// ctx.
func (s *Store) Close(ctx context.Context) error {
	return s.exclusive(ctx, "closing the store", func() error { return s.conn.Close(ctx) })
}

// exclusive runs f as the connection's only user. When f fails inside a
// transaction, that is rolled back.
func (s *Store) exclusive(ctx context.Context, what string, f func() error) error {
	select {
	case <-s.busy:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	defer func() { s.busy <- struct{}{} }()
	err := f()
	s.abort(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, judge(err))
	}
	return nil
}

// abort leaves no transaction open. A failure closes the connection, which
// rolls back too.
func (s *Store) abort(ctx context.Context) {
	const idle = 'I'
	if s.conn.IsClosed() || s.conn.PgConn().TxStatus() == idle {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if _, err := s.conn.Exec(ctx, "rollback"); err != nil {
		_ = s.conn.Close(ctx)
	}
}

// send runs a batch in one round trip and returns its first error.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	return s.conn.SendBatch(ctx, b).Close()
}

// commit ends the transaction and tells an upper bound of where the log holds
// its commit; 0 when that could not be read.
//
// A commit waits for a synchronous standby without a limit: the server turns
// the statement time-out off for it. Whoever cancels the wait makes the server
// answer with a success that no standby has; it says so by a warning, and
// any warning makes the outcome unknown.
func (s *Store) commit(ctx context.Context) (outbox.LSN, error) {
	var b pgx.Batch
	verdict := s.queueCommit(&b)
	s.committing, s.warned = true, false
	err := s.send(ctx, &b)
	s.committing = false
	return verdict(err)
}

// queueCommit adds the commit to a batch. verdict reads the batch's error, nil
// or not: nil from it means committed.
func (s *Store) queueCommit(b *pgx.Batch) (verdict func(error) (outbox.LSN, error)) {
	var committed bool
	var lsn string
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		committed = tag.String() == "COMMIT" // a failed transaction answers ROLLBACK
		return nil
	})
	b.Queue("select pg_current_wal_insert_lsn()::text").QueryRow(func(r pgx.Row) error { return r.Scan(&lsn) })
	return func(err error) (outbox.LSN, error) {
		switch {
		case committed && s.warned:
			return 0, fmt.Errorf("%w: the server warned while it committed", ErrCommitUnknown)
		case committed:
			at, _ := outbox.ParseLSN(lsn) // unread after a lost connection: 0
			return at, nil
		case err == nil:
			return 0, errors.New("committing: the server rolled back")
		case pgconn.SafeToRetry(err) || refusedCommit(err):
			return 0, fmt.Errorf("committing: %w", err)
		}
		return 0, fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
}

// refusedCommit says that the server itself reported an error and lives: the
// transaction was rolled back.
func refusedCommit(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}
