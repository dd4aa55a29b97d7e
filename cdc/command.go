package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// StartOptions says what to stream and from where.
type StartOptions struct {
	Slot        string
	Publication string
	// LSN is where to start; 0 = where the slot stands. The server moves a
	// lower one up to the slot's own position and accepts any higher one,
	// skipping what lies between without a word: compare before you ask.
	LSN outbox.LSN
	// Binary asks for binary column values.
	Binary bool
}

// Start begins the stream: protocol version 1 (whole committed transactions,
// spooled by the server), logical messages on, no origin filter. After an
// error the stream must be closed.
func (s *Stream) Start(ctx context.Context, o StartOptions) error {
	sql, err := startCommand(o)
	if err != nil {
		return err
	}
	if _, err := s.query(ctx, sql); err != nil {
		s.ended = fmt.Errorf("starting replication from slot %q at %v: %w", o.Slot, o.LSN, err)
		return s.ended
	}
	if !s.streaming {
		s.ended = fmt.Errorf("starting replication from slot %q: %w", o.Slot, ErrServerEnded)
		return s.ended
	}
	s.notices.publication = o.Publication
	s.received, s.lastReceived = o.LSN, time.Now()
	return nil
}

// startCommand writes START_REPLICATION. Replication commands take no
// parameters, so everything that is configured is quoted here.
func startCommand(o StartOptions) (string, error) {
	if err := CheckSlotName(o.Slot); err != nil {
		return "", err
	}
	if err := checkIdentifier("publication", o.Publication); err != nil {
		return "", err
	}
	options := "proto_version '1', publication_names " + quoteLiteral(QuoteIdentifier(o.Publication)) + ", messages 'true'"
	if o.Binary {
		options += ", binary 'true'"
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %v (%s)", QuoteIdentifier(o.Slot), o.LSN, options), nil
}

// identify asks who the server is.
func identify(ctx context.Context, pg *pgconn.PgConn) (Identity, error) {
	sys, err := pglogrepl.IdentifySystem(ctx, pg)
	if err != nil {
		return Identity{}, err
	}
	version, err := pg.Exec(ctx, "SHOW server_version_num").ReadAll()
	if err != nil {
		return Identity{}, fmt.Errorf("reading its version: %w", err)
	}
	if len(version) != 1 || len(version[0].Rows) != 1 || len(version[0].Rows[0]) != 1 {
		return Identity{}, errors.New("reading its version: unexpected answer")
	}
	number, err := strconv.Atoi(string(version[0].Rows[0][0]))
	if err != nil {
		return Identity{}, fmt.Errorf("reading its version: %w", err)
	}
	return Identity{SystemID: sys.SystemID, Timeline: uint32(sys.Timeline), WALEnd: outbox.LSN(sys.XLogPos),
		Database: sys.DBName, ServerVersion: number}, nil
}

// Fork is where a timeline ended: WAL at and above SwitchLSN belongs to the
// next one.
type Fork struct {
	Timeline  uint32
	SwitchLSN outbox.LSN
}

// TimelineHistory lists the timelines that led to timeline tl, oldest first;
// none for timeline 1. It must be called before Start.
func (s *Stream) TimelineHistory(ctx context.Context, tl uint32) ([]Fork, error) {
	if tl <= 1 {
		return nil, nil
	}
	rows, err := s.query(ctx, fmt.Sprintf("TIMELINE_HISTORY %d", tl))
	if err != nil {
		return nil, fmt.Errorf("reading the history of timeline %d: %w", tl, err)
	}
	if len(rows) != 1 || len(rows[0]) != 2 {
		return nil, fmt.Errorf("reading the history of timeline %d: unexpected answer of %d rows", tl, len(rows))
	}
	return parseHistory(rows[0][1])
}

// parseHistory reads a timeline history file: parent timeline, switch
// position and a remark, separated by blanks, one fork a line.
func parseHistory(text string) ([]Fork, error) {
	var forks []Fork
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("reading a timeline history: line %q", line)
		}
		tl, errTimeline := strconv.ParseUint(fields[0], 10, 32)
		lsn, errLSN := outbox.ParseLSN(fields[1])
		if err := errors.Join(errTimeline, errLSN); err != nil {
			return nil, fmt.Errorf("reading a timeline history: line %q: %w", line, err)
		}
		forks = append(forks, Fork{Timeline: uint32(tl), SwitchLSN: lsn})
	}
	return forks, nil
}

// query runs one command by the simple protocol, the only one that a
// replication connection speaks, and returns its rows as text. A command that
// starts the stream returns as soon as it has.
func (s *Stream) query(ctx context.Context, sql string) ([][]string, error) {
	switch {
	case s.ended != nil:
		return nil, s.ended
	case s.streaming:
		return nil, errors.New("a command on a stream that is started")
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	stop := s.bind(ctx)
	defer stop()
	rows, err := s.exchange(sql)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return rows, err
}

func (s *Stream) exchange(sql string) ([][]string, error) {
	b, err := appendQuery(nil, sql)
	if err != nil {
		return nil, err
	}
	if _, err := s.conn.Write(b); err != nil {
		return nil, err
	}
	return s.answer()
}

// answer reads until the command is over or the stream has begun.
func (s *Stream) answer() (rows [][]string, failed error) {
	for {
		kind, body, err := s.wire.receive()
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		switch kind {
		case 'D':
			r, err := row(body)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		case 'E':
			failed = serverError(body)
		case 'N':
			if err := s.notices.take(body, 0); err != nil {
				return nil, err
			}
		case 'W': // CopyBothResponse
			s.streaming = true
			return rows, nil
		case 'Z':
			return rows, failed
		}
	}
}
