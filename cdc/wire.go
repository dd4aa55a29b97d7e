package cdc

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// maxBodyBytes is the largest message that a PostgreSQL server can build
// (MaxAllocSize). More is not a message but a lost framing.
const maxBodyBytes = 1<<30 - 1

// headBytes is the type byte and the length word of a backend message.
const headBytes = 5

// wire cuts the connection's bytes into messages, in place.
type wire struct {
	src  io.Reader
	buf  []byte // buf[r:w] is received and not yet handed out
	r, w int
}

func newWire(src io.Reader) wire {
	return wire{src: src, buf: make([]byte, readBufferBytes)}
}

// whole says whether a whole message is in the buffer, and its body's length
// if its head is.
func (w *wire) whole() (body int, ok bool) {
	if w.w-w.r < headBytes {
		return 0, false
	}
	body = int(binary.BigEndian.Uint32(w.buf[w.r+1:])) - 4
	return body, body >= 0 && w.w-w.r >= headBytes+body
}

// message returns the next message if it is in the buffer as a whole. body
// aliases the buffer until the next fill.
func (w *wire) message() (kind byte, body []byte, ok bool, err error) {
	n, ok := w.whole()
	if !ok {
		if n < 0 || n > maxBodyBytes {
			return 0, nil, false, fmt.Errorf("message %q claims %d bytes: the stream is out of step", w.buf[w.r], n)
		}
		return 0, nil, false, nil
	}
	kind = w.buf[w.r]
	start := w.r + headBytes
	body = w.buf[start : start+n : start+n]
	w.r = start + n
	return kind, body, true, nil
}

// fill reads once. It must only be called when message found none, since it
// moves the bytes that message handed out.
func (w *wire) fill() (int, error) {
	w.makeRoom()
	n, err := w.src.Read(w.buf[w.w:])
	w.w += max(n, 0)
	if n > 0 {
		return n, nil // an error repeats itself at the next read
	}
	return 0, err
}

// makeRoom moves the rest of a message to the front, and grows the buffer
// only as its bytes really come, so that a false length costs no memory.
func (w *wire) makeRoom() {
	rest := w.w - w.r
	buf := w.buf
	switch {
	case rest == len(w.buf):
		buf = make([]byte, 2*len(w.buf))
	case len(w.buf) > readBufferBytes && rest < readBufferBytes/2 && w.r > 0:
		buf = make([]byte, readBufferBytes) // a huge message is over
	}
	if w.r > 0 || len(buf) != len(w.buf) {
		copy(buf, w.buf[w.r:w.w])
	}
	w.buf, w.r, w.w = buf, 0, rest
}

// receive returns the next message, waiting for it as long as the reader's
// deadline allows.
func (w *wire) receive() (kind byte, body []byte, err error) {
	for {
		kind, body, ok, err := w.message()
		if ok || err != nil {
			return kind, body, err
		}
		if _, err := w.fill(); err != nil {
			return 0, nil, err
		}
	}
}

// appendQuery appends a simple query message.
func appendQuery(b []byte, sql string) ([]byte, error) {
	return (&pgproto3.Query{String: sql}).Encode(b)
}

// serverError decodes an ErrorResponse into the error that pgconn would
// return.
func serverError(body []byte) error {
	var msg pgproto3.ErrorResponse
	if err := msg.Decode(body); err != nil {
		return fmt.Errorf("decoding the server's error: %w", err)
	}
	return pgconn.ErrorResponseToPgError(&msg)
}

// row copies the values of a DataRow.
func row(body []byte) ([]string, error) {
	var msg pgproto3.DataRow
	if err := msg.Decode(body); err != nil {
		return nil, fmt.Errorf("decoding a row: %w", err)
	}
	values := make([]string, len(msg.Values))
	for i, v := range msg.Values {
		values[i] = string(v)
	}
	return values, nil
}
