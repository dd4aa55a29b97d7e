package decode

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// reader walks one message. After its first failure every further read gives
// zero values, so that a parser reads straight on and checks once at the end;
// a count is the one thing that must be checked where it is read.
type reader struct {
	data   []byte
	at     int    // 0 <= at <= len(data)
	failed string // why; "" while all is well
}

func (r *reader) ok() bool { return r.failed == "" }

func (r *reader) left() int { return len(r.data) - r.at }

// fail keeps the first reason.
func (r *reader) fail(reason string) {
	if r.failed == "" {
		r.failed = reason
	}
}

// take gives the next n bytes, or nil after a failure.
func (r *reader) take(n int) []byte {
	if r.failed != "" {
		return nil
	}
	if n < 0 || n > r.left() {
		r.fail("the message ends too early")
		return nil
	}
	b := r.data[r.at : r.at+n : r.at+n]
	r.at += n
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) lsn() outbox.LSN { return outbox.LSN(r.uint64()) }

func (r *reader) time() time.Time { return timeOf(int64(r.uint64())) }

// string reads up to a zero byte and allocates.
func (r *reader) string() string {
	if r.failed != "" {
		return ""
	}
	n := bytes.IndexByte(r.data[r.at:], 0)
	if n < 0 {
		r.fail("a name has no end")
		return ""
	}
	s := string(r.data[r.at : r.at+n])
	r.at += n + 1
	return s
}

// count checks a number of things against the bytes that are left, each of
// them taking at least size bytes, so that no made-up number costs memory.
func (r *reader) count(n, size int) int {
	if r.failed != "" {
		return 0
	}
	if n < 0 || n > r.left()/size {
		r.fail("a count is larger than the message")
		return 0
	}
	return n
}

// postgresEpoch is 2000-01-01 00:00:00 UTC in Unix seconds, the zero of the
// server's timestamps.
const postgresEpoch = 946684800

// timeOf converts microseconds since 2000-01-01 UTC. Every value converts.
func timeOf(micros int64) time.Time {
	seconds, rest := micros/1_000_000, micros%1_000_000
	return time.Unix(postgresEpoch+seconds, rest*1000).UTC()
}
