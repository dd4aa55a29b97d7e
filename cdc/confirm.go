package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

const (
	statusBytes = 39
	// closeTimeout bounds the farewell when the caller's context has no
	// deadline.
	closeTimeout = 2 * time.Second
)

// Confirm tells the server that everything up to p is safe: written, flushed
// and applied alike, each said explicitly. A p below an earlier one repeats
// the earlier one, so that a beat with an old value is harmless. askReply
// makes the server answer with a keepalive at once.
//
// It panics when p is above Received (I2): the server would accept it in
// silence and never send what lies between. It does not wait for anything but
// the write, at most 10 s. An error ends the stream.
func (s *Stream) Confirm(p outbox.LSN, askReply bool) error {
	if p > s.received {
		panic(fmt.Sprintf("cdc: confirming %v, but this connection received only %v (last confirmed %v, backend %d)",
			p, s.received, s.confirmed, s.identity.BackendPID))
	}
	if s.ended != nil {
		return s.ended
	}
	if !s.streaming {
		return errors.New("confirming on a stream that is not started")
	}
	p = max(p, s.confirmed)
	now := time.Now()
	b := appendStatus(make([]byte, 0, statusBytes), p, now, askReply)
	err := s.conn.SetWriteDeadline(now.Add(confirmTimeout))
	if err == nil {
		_, err = s.conn.Write(b)
	}
	if err != nil {
		s.ended = fmt.Errorf("confirming %v: %w", p, err)
		return s.ended
	}
	s.confirmed = p
	return nil
}

// appendStatus appends a CopyData message with a standby status update. All
// three positions are p: a zero flush or apply position would be filled by
// some servers and libraries from the written one.
func appendStatus(b []byte, p outbox.LSN, now time.Time, askReply bool) []byte {
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint32(b, statusBytes-1)
	b = append(b, 'r')
	for range 3 { // written, flushed, applied
		b = binary.BigEndian.AppendUint64(b, uint64(p))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()-postgresEpoch))
	if askReply {
		return append(b, 1)
	}
	return append(b, 0)
}

// Close ends the session. On a living stream it says so and waits, within ctx
// and at most 2 s, until the server has answered, so that the last Confirm is
// processed before the connection goes. What still comes in is dropped. The
// error is the farewell's; the connection is closed in any case.
func (s *Stream) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var err error
	if s.ended == nil {
		err = s.farewell(ctx)
		s.ended = errors.New("the stream is closed")
	}
	_ = s.conn.Close() // nothing to add: all that mattered is said
	return err
}

func (s *Stream) farewell(ctx context.Context) error {
	stop := s.bind(ctx)
	defer stop()
	s.SetFarBehind(false)
	if s.streaming {
		if _, err := s.conn.Write([]byte{'c', 0, 0, 0, 4}); err != nil {
			return fmt.Errorf("ending the stream: %w", err)
		}
		if err := s.drain(); err != nil {
			return fmt.Errorf("waiting for the server to end the stream: %w", err)
		}
	}
	if _, err := s.conn.Write([]byte{'X', 0, 0, 0, 4}); err != nil {
		return fmt.Errorf("leaving the server: %w", err)
	}
	return nil
}

// drain drops what comes until the server is ready for another command.
func (s *Stream) drain() error {
	for {
		kind, body, err := s.wire.receive()
		switch {
		case err != nil:
			return err
		case kind == 'E':
			return serverError(body)
		case kind == 'Z':
			return nil
		}
	}
}

// bind puts the connection under ctx: its deadline, and an interruption when
// it is cancelled. The returned function ends that and must be called.
func (s *Stream) bind(ctx context.Context) (stop func()) {
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetDeadline(deadline) // an error shows at the first use
	interrupted := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		_ = s.conn.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	return func() {
		if !release() {
			<-interrupted // or it would strike the next user of the connection
		}
		_ = s.conn.SetDeadline(time.Time{})
		s.isArmed = false
	}
}
