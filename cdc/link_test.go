package cdc

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// pieces is a connection that always has one more small piece.
type pieces struct {
	net.Conn
	size  int
	reads int
}

func (p *pieces) Read(b []byte) (int, error) {
	p.reads++
	return min(p.size, len(b)), nil
}

// Law: reads are held back only while far behind, only on TCP, only when the
// last one was short, and only when a gulp is set.
func TestGulpOnlyWhenItHelps(t *testing.T) {
	t.Parallel()
	const gulp = 20 * time.Millisecond
	for name, c := range map[string]struct {
		network   string
		farBehind bool
		gulp      time.Duration
		size      int
		want      time.Duration // for three reads
	}{
		"far behind on TCP": {"tcp", true, gulp, 100, 3 * gulp},
		"IPv6":              {"tcp6", true, gulp, 100, 3 * gulp},
		"caught up":         {"tcp", false, gulp, 100, 0},
		"unix socket":       {"unix", true, gulp, 100, 0},
		"off":               {"tcp", true, 0, 100, 0},
		"full reads":        {"tcp", true, gulp, shortReadBytes, gulp},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLink(&pieces{size: c.size}, c.network, c.gulp)
			l.farBehind = c.farBehind
			start := time.Now()
			for range 3 {
				if _, err := l.Read(make([]byte, readBufferBytes)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); took != c.want {
				t.Errorf("%s: three reads took %v, want %v", name, took, c.want)
			}
		})
	}
}

// Law: a held-back read ends at once on a Wake, and at until.
func TestGulpEndsOnWakeAndDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _ = client.Close(); _ = server.Close() }()
		s := startedOn(client, "tcp", time.Second)
		s.SetFarBehind(true)
		start := time.Now()
		if f, err := s.Next(start.Add(300 * time.Millisecond)); err != nil || f.Kind != FrameNone || time.Since(start) != 300*time.Millisecond {
			t.Errorf("at the deadline: %+v, %v after %v", f, err, time.Since(start))
		}
		start = time.Now()
		go func() {
			time.Sleep(100 * time.Millisecond)
			s.Wake()
		}()
		if f, err := s.Next(start.Add(time.Hour)); err != nil || f.Kind != FrameNone || time.Since(start) != 100*time.Millisecond {
			t.Errorf("on a Wake: %+v, %v after %v", f, err, time.Since(start))
		}
	})
}

// Law: a held-back read never passes its deadline unread, so a caller whose
// deadline is always nearer than the gulp still gets what the server sends.
func TestGulpLeavesTimeToRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _ = client.Close(); _ = server.Close() }()
		s := startedOn(client, "tcp", 20*time.Millisecond)
		s.SetFarBehind(true)
		go func() { mustWrite(t, server, keepaliveFrame(7, false)) }()
		f, err := s.Next(time.Now().Add(5 * time.Millisecond))
		if err != nil || f.Kind != FrameKeepalive || f.WALEnd != 7 {
			t.Errorf("got %+v, %v, want the keepalive that lay there", f, err)
		}
	})
}

// Law: a hold ends when the kernel gathers no more, or has enough.
func TestGulpEndsWhenNothingGathers(t *testing.T) {
	t.Parallel()
	const gulp, step = 20 * time.Millisecond, 4 * time.Millisecond
	for name, c := range map[string]struct {
		queued []int // at each look
		want   time.Duration
	}{
		"nothing comes":     {[]int{0}, step},
		"the sender waits":  {[]int{70_000, 130_000, 130_000}, 3 * step},
		"enough":            {[]int{enoughBytes}, step},
		"it grows all time": {[]int{1, 2, 3, 4, 5}, gulp},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLink(&pieces{size: 100}, "tcp", gulp)
			l.farBehind = true
			looks := 0
			l.queued = func() (int, bool) {
				if looks == len(c.queued) {
					t.Fatalf("%s: asked once more after %d looks", name, looks)
				}
				looks++
				return c.queued[looks-1], true
			}
			start := time.Now()
			if _, err := l.Read(make([]byte, readBufferBytes)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != c.want || looks != len(c.queued) {
				t.Errorf("%s: held for %v with %d looks, want %v with %d", name, took, looks, c.want, len(c.queued))
			}
		})
	}
}

// Law: the kernel's count of waiting bytes is the one we get.
func TestQueuedBytesOfASocket(t *testing.T) {
	t.Parallel()
	if _, known := queuedBytes(&pieces{}); known {
		t.Error("what is not a socket has a count")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	if n, known := queuedBytes(client); n != 0 || known != (runtime.GOOS == "linux") {
		t.Errorf("before anything was sent: %d, %t", n, known)
	}
	mustWrite(t, server, make([]byte, 1000))
	if _, err := client.Read(make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
	if n, known := queuedBytes(client); known && n != 600 {
		t.Errorf("%d bytes wait, want 600", n)
	}
}

// Law: a reader that asks for little, as TLS does, still costs one large read
// from the kernel, and every byte is counted once.
func TestLinkReadsInLargePieces(t *testing.T) {
	t.Parallel()
	p := &pieces{size: 100_000}
	l := newLink(p, "tcp", 0)
	small, total := make([]byte, 5_000), 0
	for range 20 {
		n, err := l.Read(small)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if p.reads != 1 || total != 100_000 || l.received.Load() != 100_000 {
		t.Errorf("%d reads for %d bytes, counted %d", p.reads, total, l.received.Load())
	}
}
