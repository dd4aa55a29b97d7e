package cdc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// Law: Confirm panics, with the values, above what this connection received
// (I2), and accepts exactly that.
func TestConfirmPanicsAboveReceived(t *testing.T) {
	t.Parallel()
	s := startedOn(&replay{bytes: append(dataFrame(0x100, "I"), keepaliveFrame(0x200, false)...)}, "tcp", 0)
	confirm := func(p outbox.LSN) (panicked string) {
		defer func() {
			if r := recover(); r != nil {
				panicked = fmt.Sprint(r)
			}
		}()
		if err := s.Confirm(p, false); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	if got := confirm(1); !strings.Contains(got, "0/1") || !strings.Contains(got, "0/0") {
		t.Fatalf("confirming 0/1 before anything came: panic %q, want one with both positions", got)
	}
	for _, received := range []outbox.LSN{0x100, 0x200} {
		if _, err := s.Next(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if got := confirm(received); got != "" {
			t.Fatalf("confirming %v, which was received: panic %q", received, got)
		}
		if got := confirm(received + 1); got == "" {
			t.Fatalf("confirming %v, one above what was received, did not panic", received+1)
		}
	}
}

// Law: the status names the position three times, never goes below the last
// one, and carries the clock and the wish for a reply.
func TestConfirmWritesAllPositionsAndNeverLess(t *testing.T) {
	t.Parallel()
	s, server := piped(t)
	s.received = 0x500
	read := func() []byte {
		b := make([]byte, statusBytes)
		if _, err := io.ReadFull(server, b); err != nil {
			t.Error(err)
		}
		return b
	}
	for _, step := range []struct {
		give, want outbox.LSN
		ask        bool
	}{{0x300, 0x300, false}, {0x200, 0x300, true}, {0x500, 0x500, true}} {
		got := make(chan []byte, 1)
		go func() { got <- read() }()
		before := time.Now()
		if err := s.Confirm(step.give, step.ask); err != nil {
			t.Fatal(err)
		}
		b := <-got
		want := appendStatus(nil, step.want, before, step.ask)
		if string(b[:30]) != string(want[:30]) || b[38] != want[38] {
			t.Errorf("Confirm(%v, %v) wrote %x, want %x with another clock", step.give, step.ask, b, want)
		}
		if at := serverTime(b[30:]); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("the clock field says %v, want about %v", at, before)
		}
	}
}

// Law: whatever is not data, a keepalive or harmless ends the stream with a
// typed error, which repeats itself.
func TestAnythingElseEndsTheStream(t *testing.T) {
	t.Parallel()
	serverError, err := (&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "XX000", Message: "m"}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bytes  []byte
		reason string
	}{
		"ErrorResponse":        {serverError, "error"},
		"ReadyForQuery":        {message('Z', []byte{'I'}), "closed"},
		"CopyDone":             {message('c', nil), "closed"},
		"CommandComplete":      {message('C', []byte("COPY 0\x00")), "closed"},
		"unknown message":      {message('?', nil), "protocol"},
		"row":                  {message('D', []byte{0, 0}), "protocol"},
		"unknown copy byte":    {message('d', make([]byte, 30)), "protocol"},
		"empty copy":           {message('d', nil), "protocol"},
		"short data":           {message('d', append([]byte{'w'}, make([]byte, 23)...)), "protocol"},
		"long keepalive":       {message('d', append([]byte{'k'}, make([]byte, 18)...)), "protocol"},
		"length below four":    {[]byte{'d', 0, 0, 0, 3}, "protocol"},
		"length of a gigabyte": {[]byte{'d', 0x40, 0, 0, 4}, "protocol"},
		"negative length":      {[]byte{'d', 0xFF, 0xFF, 0xFF, 0xFF}, "protocol"},
		"broken notice":        {message('N', []byte("Sx")), "protocol"},
	} {
		s := startedOn(&replay{bytes: c.bytes}, "tcp", 0)
		_, err := s.Next(time.Time{})
		var end *EndError
		if !errors.As(err, &end) || end.Reason != c.reason {
			t.Errorf("%s: %v, want an EndError of reason %q", name, err, c.reason)
		}
		if _, again := s.Next(time.Time{}); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: the second Next gives %v, want the same error", name, again)
		}
		if err := s.Confirm(0, false); err == nil {
			t.Errorf("%s: Confirm on an ended stream succeeded", name)
		}
	}
	s := startedOn(&replay{bytes: serverError}, "tcp", 0)
	_, err = s.Next(time.Time{})
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "XX000" {
		t.Errorf("the server's error is not in the chain: %v", err)
	}
}

// Law: settings and notifications that the server reports are passed over.
func TestHarmlessMessagesArePassedOver(t *testing.T) {
	t.Parallel()
	bytes := append(message('S', []byte("a\x00b\x00")), message('A', []byte("\x00\x00\x00\x01a\x00b\x00"))...)
	s := startedOn(&replay{bytes: append(bytes, keepaliveFrame(7, true)...)}, "tcp", 0)
	f, err := s.Next(time.Time{})
	if err != nil || f.Kind != FrameKeepalive || f.WALEnd != 7 || !f.ReplyRequested {
		t.Fatalf("got %+v, %v; want the keepalive", f, err)
	}
	if want := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC); !f.ServerTime.Equal(want) {
		t.Errorf("server time %v, want %v", f.ServerTime, want)
	}
}

// Law: a time-out, also in the middle of a message, loses nothing: fed byte by
// byte with a time-out after each, the frames come out whole.
func TestTimeoutLeavesTheStreamUsable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, server := piped(t)
		bytes := append(dataFrame(1, "first"), dataFrame(2, "second")...)
		go func() {
			for i := range bytes {
				mustWrite(t, server, bytes[i:i+1])
				time.Sleep(3 * time.Second)
			}
		}()
		var got []string
		for nones := 0; len(got) < 2; {
			f, err := s.Next(time.Now().Add(2 * time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind == FrameNone {
				if nones++; nones > 2*len(bytes) {
					t.Fatal("no end of time-outs")
				}
				continue
			}
			got = append(got, string(f.Data))
		}
		if strings.Join(got, ",") != "first,second" {
			t.Errorf("got %q", got)
		}
		time.Sleep(time.Minute) // the writer ends
	})
}

// Law: FrameNone comes at until, neither before nor much later, also when
// until moves back and forth between calls.
func TestNextKeepsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, server := piped(t)
		for _, d := range []time.Duration{time.Second, 10 * time.Second, time.Second, 0, -time.Hour, time.Minute, 50 * time.Millisecond} {
			// A frame leaves a later deadline in force than the next one.
			go mustWrite(t, server, dataFrame(1, "x"))
			if f, err := s.Next(time.Now().Add(2 * time.Hour)); err != nil || f.Kind != FrameData {
				t.Fatalf("got %+v, %v", f, err)
			}
			start := time.Now()
			f, err := s.Next(start.Add(d))
			if err != nil || f.Kind != FrameNone {
				t.Fatalf("got %+v, %v", f, err)
			}
			if took := time.Since(start); took != max(d, 0) {
				t.Errorf("Next with %v to go took %v", d, took)
			}
		}
	})
}

// Law: no Wake is lost, whenever it comes: each one is followed by a FrameNone
// although nothing else ever happens. The writer goes on only after it, so a
// lost Wake is a hang. Run with -race.
func TestWakeIsNeverLost(t *testing.T) {
	t.Parallel()
	client, server := tcpPair(t)
	s := startedOn(client, "tcp", 0)
	const rounds = 20_000
	returned := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			if i%7 == 0 { // data at the same time must not swallow it
				mustWrite(t, server, keepaliveFrame(outbox.LSN(i+1), false))
			}
			if i%3 == 0 {
				runtime.Gosched() // now before, now after Next blocks
			}
			s.Wake()
			select {
			case <-returned:
			case <-time.After(20 * time.Second):
				t.Errorf("Wake %d was lost", i)
				_ = client.Close()
				return
			}
		}
	})
	for i := 0; i < rounds; {
		f, err := s.Next(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind == FrameNone {
			i++
			returned <- struct{}{}
		}
	}
	wg.Wait()
}

// Law: many wakers and a reader with short times disturb neither each other
// nor the data: every frame arrives, in order.
func TestWakeDisturbsNothing(t *testing.T) {
	t.Parallel()
	client, server := tcpPair(t)
	s := startedOn(client, "tcp", time.Millisecond)
	s.SetFarBehind(true)
	const frames = 5_000
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.Wake()
					runtime.Gosched()
				}
			}
		})
	}
	wg.Go(func() {
		for i := range frames {
			mustWrite(t, server, dataFrame(outbox.LSN(i+1), "x"))
		}
	})
	for want := outbox.LSN(1); want <= frames; {
		f, err := s.Next(time.Now().Add(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind == FrameData {
			if f.WALStart != want {
				t.Fatalf("frame %v, want %v", f.WALStart, want)
			}
			want++
		}
	}
	close(stop)
	wg.Wait()
}

// Law: Wake costs a busy stream nothing but a flag: data in the buffer is
// returned first, and the flag is answered at the next read.
func TestWakeIsAnsweredBeforeTheNextRead(t *testing.T) {
	t.Parallel()
	s, server := piped(t)
	go mustWrite(t, server, append(dataFrame(1, "a"), dataFrame(2, "b")...))
	kinds := ""
	for i := range 3 {
		f, err := s.Next(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		kinds += fmt.Sprint(f.Kind)
		if i == 0 {
			s.Wake()
			if !s.Buffered() {
				t.Error("Buffered is false with a whole frame at hand")
			}
		}
	}
	if kinds != "110" {
		t.Errorf("kinds %s, want data, data, none", kinds)
	}
	if s.Buffered() {
		t.Error("Buffered is true with an empty buffer")
	}
}

// Law: a frame costs no allocation.
func TestNextAllocatesNothing(t *testing.T) {
	bytes := append(dataFrame(1, strings.Repeat("x", 700)), keepaliveFrame(2, false)...)
	s := startedOn(&replay{bytes: bytes}, "tcp", 0)
	until := time.Now().Add(time.Hour)
	n := testing.AllocsPerRun(10_000, func() {
		if _, err := s.Next(until); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// Law: a frame larger than the buffer comes out whole, and the memory for it
// is given back afterwards; a length that is only claimed costs none.
func TestLargeFrames(t *testing.T) {
	t.Parallel()
	s, server := piped(t)
	large := strings.Repeat("0123456789", 400_000)
	go func() {
		mustWrite(t, server, dataFrame(1, large))
		for range 4 {
			mustWrite(t, server, dataFrame(2, strings.Repeat("y", 100_000)))
		}
		mustWrite(t, server, []byte{'d', 0x3F, 0xFF, 0xFF, 0xFF, 'w'})
	}()
	f, err := s.Next(time.Time{})
	if err != nil || string(f.Data) != large {
		t.Fatalf("got %d bytes, %v; want %d", len(f.Data), err, len(large))
	}
	for range 4 {
		if f, err = s.Next(time.Time{}); err != nil || len(f.Data) != 100_000 {
			t.Fatalf("got %d bytes, %v", len(f.Data), err)
		}
	}
	if f, err = s.Next(time.Now().Add(50 * time.Millisecond)); err != nil || f.Kind != FrameNone {
		t.Fatalf("got %+v, %v", f, err)
	}
	if len(s.wire.buf) != readBufferBytes {
		t.Errorf("the buffer holds %d bytes after a large frame, want %d", len(s.wire.buf), readBufferBytes)
	}
}

// Law: when the connection breaks, Next says so, once and for all.
func TestBrokenConnectionEndsTheStream(t *testing.T) {
	t.Parallel()
	s, server := piped(t)
	go func() {
		mustWrite(t, server, append(dataFrame(1, "a"), dataFrame(2, "b")[:10]...))
		_ = server.Close()
	}()
	if f, err := s.Next(time.Time{}); err != nil || f.Kind != FrameData {
		t.Fatalf("got %+v, %v", f, err)
	}
	_, err := s.Next(time.Time{})
	if !errors.Is(err, io.EOF) || Classify(err).Class != ClassRetry {
		t.Errorf("got %v of class %v, want EOF, retry", err, Classify(err).Class)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a broken connection looks like a time-out")
	}
}

// tcpPair is a real connection over loopback.
func tcpPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

// once is a connection that brings its bytes in pieces and then ends.
type once struct {
	replay
	piece int
}

func (o *once) Read(p []byte) (int, error) {
	if o.at == len(o.bytes) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), o.piece)], o.bytes[o.at:])
	o.at += n
	return n, nil
}

// Law: no bytes of a server, in whatever pieces, make Next panic, loop or take
// memory beyond what really came; and the pieces make no difference.
func FuzzStream(f *testing.F) {
	for _, b := range [][]byte{
		dataFrame(1, "I"), keepaliveFrame(2, true), message('N', []byte("SWARNING\x00C55000\x00Mskipped loading publication \"p\"\x00\x00")),
		message('E', []byte("SERROR\x00CXX000\x00Mm\x00\x00")), message('Z', []byte{'I'}), {'d', 0x3F, 0xFF, 0xFF, 0xFF}, {'d', 0, 0, 0, 3}, {'N'},
	} {
		f.Add(b, 1)
		f.Add(append(keepaliveFrame(9, false), b...), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		read := func(piece int) string {
			s := startedOn(&once{replay: replay{bytes: b}, piece: piece}, "tcp", 0)
			var out strings.Builder
			for range len(b) + 1 {
				frame, err := s.Next(time.Time{})
				if err != nil {
					if len(s.wire.buf) > 2*max(len(b), readBufferBytes) {
						t.Errorf("a buffer of %d bytes for %d", len(s.wire.buf), len(b))
					}
					return out.String() + err.Error()
				}
				fmt.Fprintf(&out, "%+v\n", frame)
			}
			t.Fatal("more frames than bytes")
			return ""
		}
		if small, large := read(1+(piece&0xFF)), read(len(b)+1); small != large {
			t.Errorf("in pieces: %s\nat once: %s", small, large)
		}
	})
}
