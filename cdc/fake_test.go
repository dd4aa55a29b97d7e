package cdc

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/rs/zerolog"
)

// message frames a backend message.
func message(kind byte, body []byte) []byte {
	b := []byte{kind}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	return append(b, body...)
}

// dataFrame is an XLogData message.
func dataFrame(lsn outbox.LSN, data string) []byte {
	b := []byte{'w'}
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, 0)
	return message('d', append(b, data...))
}

// keepaliveFrame is a primary keepalive message.
func keepaliveFrame(lsn outbox.LSN, reply bool) []byte {
	b := []byte{'k'}
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, 1_000_000)
	if reply {
		return message('d', append(b, 1))
	}
	return message('d', append(b, 0))
}

// notice is a NoticeResponse as a server sends it.
func notice(t testing.TB, n pgproto3.NoticeResponse) []byte {
	t.Helper()
	b, err := n.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startedOn is a stream that reads from c as if it had been started.
func startedOn(c net.Conn, network string, gulp time.Duration) *Stream {
	l := newLink(c, network, gulp)
	s := &Stream{conn: l, link: l, wire: newWire(l), streaming: true}
	s.notices = notices{log: zerolog.Nop(), publication: "pub"}
	return s
}

// piped is a started stream and the server's end of its connection.
func piped(t testing.TB) (*Stream, net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return startedOn(client, "tcp", 0), server
}

// replay is a connection that brings the same bytes for ever.
type replay struct {
	net.Conn
	bytes []byte
	at    int
}

func (r *replay) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c := copy(p[n:], r.bytes[r.at:])
		n += c
		r.at = (r.at + c) % len(r.bytes)
	}
	return n, nil
}

func (r *replay) Write(p []byte) (int, error)      { return len(p), nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
func (r *replay) Close() error                     { return nil }
func mustWrite(t testing.TB, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Error(err)
	}
}
