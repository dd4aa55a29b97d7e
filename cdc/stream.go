package cdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Stream is one replication connection. A session makes one and throws it
// away; after any error there is nothing left to do with it but Close.
//
// All methods belong to one goroutine, except Wake and Bytes, which any
// goroutine may call at any time.
type Stream struct {
	cfg      Config
	conn     net.Conn // TLS or plain
	link     *link    // below conn; nil if a hook of the caller's wrapped it
	wire     wire
	wake     waker
	notices  notices
	identity Identity

	armed   time.Time // the read deadline in force, zero = none; only if isArmed
	isArmed bool

	streaming    bool
	received     outbox.LSN // highest position that this connection brought, or was started at
	confirmed    outbox.LSN // last sent. Invariant: confirmed <= received
	lastReceived time.Time
	ended        error // why the stream is over; nil while it lives
}

// FrameKind says what a Frame holds.
type FrameKind uint8

// The kinds of frame.
const (
	FrameNone      FrameKind = iota // nothing: the time is over, or Wake was called
	FrameData                       // a logical decoding message in Data
	FrameKeepalive                  // the server lives; WALEnd, ReplyRequested
)

// Frame is one message of the stream.
type Frame struct {
	Kind           FrameKind
	ReplyRequested bool       // keepalive: answer with Confirm at once, or be cut off
	WALStart       outbox.LSN // data: the record's position; 0 for Relation and Type messages
	WALEnd         outbox.LSN // keepalive: how far the server has decoded and sent
	ServerTime     time.Time  // when the server sent it, by its clock, in microseconds
	Data           []byte     // aliases the buffer; valid until the next call of Next
}

const (
	// armSlack is how much too late Next may return rather than change the
	// read deadline once more.
	armSlack = time.Millisecond
	// confirmTimeout bounds the write of 39 bytes. It can only be reached
	// when the server has read nothing for the whole send buffer's worth.
	confirmTimeout = 10 * time.Second
)

// postgresEpoch is 2000-01-01 UTC in microseconds of Unix time.
const postgresEpoch = 946_684_800_000_000

// Next returns the next frame, or FrameNone at until (zero: no limit) and
// after a Wake. It allocates nothing, and makes a system call only when the
// buffer holds no whole message. Frames that are already in the buffer are
// returned whatever the time, and a Wake is noticed only before the next
// read: a caller that is kept busy has its own occasions to look around.
//
// An error ends the stream and repeats itself: *EndError when the server
// ended it or broke the protocol, *PublicationError when the server passes
// over the publication, else what the connection said.
func (s *Stream) Next(until time.Time) (Frame, error) {
	if s.ended != nil {
		return Frame{}, s.ended
	}
	for {
		kind, body, ok, err := s.wire.message()
		switch {
		case err != nil:
			return s.end(&EndError{Reason: "protocol", Err: err})
		case !ok:
			more, err := s.read(until)
			if err != nil {
				return s.end(fmt.Errorf("reading from the replication connection: %w", err))
			}
			if !more {
				return Frame{}, nil
			}
		case kind == 'd':
			return s.copyData(body)
		default:
			if err := s.aside(kind, body); err != nil {
				return s.end(err)
			}
		}
	}
}

func (s *Stream) end(err error) (Frame, error) {
	s.ended = err
	return Frame{}, err
}

// copyData reads the envelope of a CopyData message (PostgreSQL
// documentation, "Streaming Replication Protocol").
func (s *Stream) copyData(b []byte) (Frame, error) {
	switch {
	case len(b) >= 25 && b[0] == 'w':
		f := Frame{
			Kind:       FrameData,
			WALStart:   outbox.LSN(binary.BigEndian.Uint64(b[1:])),
			WALEnd:     outbox.LSN(binary.BigEndian.Uint64(b[9:])),
			ServerTime: serverTime(b[17:]),
			Data:       b[25:],
		}
		s.received = max(s.received, f.WALStart)
		s.notices.progress(f.WALStart)
		return f, nil
	case len(b) == 18 && b[0] == 'k':
		f := Frame{
			Kind:           FrameKeepalive,
			WALEnd:         outbox.LSN(binary.BigEndian.Uint64(b[1:])),
			ServerTime:     serverTime(b[9:]),
			ReplyRequested: b[17] != 0,
		}
		s.notices.progress(f.WALEnd)
		s.received = max(s.received, f.WALEnd)
		return f, nil
	default:
		return s.end(&EndError{Reason: "protocol", Err: fmt.Errorf("a copy message of %d bytes that is neither data nor keepalive", len(b))})
	}
}

func serverTime(b []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b)) + postgresEpoch)
}

// aside deals with what is not CopyData. Nil means: harmless.
func (s *Stream) aside(kind byte, body []byte) error {
	switch kind {
	case 'N':
		return s.notices.take(body, s.received)
	case 'S', 'A': // a reported setting, a notification: not for us
		return nil
	case 'E':
		return &EndError{Reason: "error", Err: serverError(body)}
	case 'c', 'C', 'Z': // copy done, command complete, ready for query
		return &EndError{Reason: "closed", Err: ErrServerEnded}
	default:
		return &EndError{Reason: "protocol", Err: fmt.Errorf("unexpected message %q", kind)}
	}
}

// read waits for more bytes. It reports false at until and after a Wake.
func (s *Stream) read(until time.Time) (more bool, err error) {
	for {
		if err := s.arm(until); err != nil {
			return false, err
		}
		if !s.wake.enter() {
			return false, nil
		}
		n, err := s.wire.fill()
		s.wake.leave()
		switch {
		case n > 0:
			s.lastReceived = time.Now()
			return true, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			// Ours, or the past one of a Wake that is already dealt with:
			// enter tells which Wake is still due.
			s.isArmed = false
			if !until.IsZero() && !time.Now().Before(until) {
				return false, nil
			}
		default:
			return false, err
		}
	}
}

// arm sets the read deadline if the one in force would let Next return too
// late. One that fires too early only costs a turn of read's loop.
func (s *Stream) arm(until time.Time) error {
	if s.link != nil {
		s.link.until = until
	}
	if s.isArmed && (until.IsZero() || (!s.armed.IsZero() && until.Sub(s.armed) > -armSlack)) {
		return nil
	}
	s.armed, s.isArmed = until, true
	return s.conn.SetReadDeadline(until)
}

// Wake makes a blocked Next return FrameNone soon, or else the next Next that
// would block return it at once. It is never lost, and costs one atomic
// operation when Next is not blocked.
func (s *Stream) Wake() {
	if !s.wake.call() {
		return
	}
	// An error means that the connection is gone, which Next finds itself.
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	if s.link != nil {
		s.link.wakeUp()
	}
}

// waker is the meeting point of Wake and Next. The deadline is only changed
// by Next while idle and only by Wake while blocked, so that neither undoes
// the other's; a past deadline that arrives late is harmless.
type waker struct{ state atomic.Uint32 }

const (
	wakeIdle    = iota // nobody waits
	wakeBlocked        // Next is in, or about to enter, a read
	wakePending        // Wake was called and Next has not yet returned for it
)

// enter says whether Next may block; if not, the pending Wake is consumed.
func (w *waker) enter() bool {
	if w.state.CompareAndSwap(wakeIdle, wakeBlocked) {
		return true
	}
	w.state.Swap(wakeIdle)
	return false
}

// leave ends the blocking. A Wake that came meanwhile stays pending.
func (w *waker) leave() { w.state.CompareAndSwap(wakeBlocked, wakeIdle) }

// call leaves the wish to wake, and says whether a blocked Next must be
// interrupted for it.
func (w *waker) call() bool { return w.state.Swap(wakePending) == wakeBlocked }

// Buffered says whether Next has a whole message at hand and so returns
// without a system call. It may be one that Next deals with itself.
func (s *Stream) Buffered() bool {
	_, ok := s.wire.whole()
	return ok
}

// SetFarBehind says whether the relay is far behind the server. While it is,
// reads from TCP are held back up to Config.Gulp. Never leave it on when
// caught up: it adds as much latency.
func (s *Stream) SetFarBehind(farBehind bool) {
	if s.link != nil {
		s.link.farBehind = farBehind
	}
}

// Gulps says whether SetFarBehind has an effect: on TCP, with a gulp that is
// not 0.
func (s *Stream) Gulps() bool { return s.link != nil && s.link.tcp && s.link.gulp > 0 }

// Bytes is how many bytes came from the server, below TLS.
func (s *Stream) Bytes() uint64 {
	if s.link == nil {
		return 0
	}
	return s.link.received.Load()
}

// LastReceived is when bytes last came in, by our clock; the time of Start
// before that.
func (s *Stream) LastReceived() time.Time { return s.lastReceived }

// Received is the highest position that Confirm accepts: what this connection
// brought, or the position it was started at.
func (s *Stream) Received() outbox.LSN { return s.received }

// Confirmed is the highest position that Confirm has sent.
func (s *Stream) Confirmed() outbox.LSN { return s.confirmed }

// Identity is what the server said at Open.
func (s *Stream) Identity() Identity { return s.identity }

// Blocked says whether the server holds the stream back for a standby.
func (s *Stream) Blocked() (Blockage, bool) { return s.notices.blocked, s.notices.isBlocked }
