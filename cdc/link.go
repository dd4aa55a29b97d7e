package cdc

import (
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// readBufferBytes is the size of one read from the kernel.
	readBufferBytes = 256 << 10
	// shortReadBytes: a read that brought less was not worth its wake-up;
	// the server's walsender pays for each of them.
	shortReadBytes = 64 << 10
	// enoughBytes waiting in the kernel end a hold.
	enoughBytes = 1 << 20
	// holdSteps is how often during a gulp the kernel is asked what waits.
	holdSteps = 5
)

// link is the raw connection, below TLS. It counts bytes, reads in large
// pieces also for TLS (which asks for one record at a time), and can hold
// back a read so that the kernel gathers a large one: a walsender that must
// wake its reader for each message spends most of its core on that.
//
// Its fields belong to the goroutine that reads, except as noted.
type link struct {
	net.Conn
	tcp    bool
	gulp   time.Duration
	queued func() (bytes int, known bool) // received, and waiting in the kernel

	farBehind bool
	until     time.Time // a held-back read ends here at the latest; zero = no limit
	last      int       // bytes of the last read from the kernel
	timer     *time.Timer
	nudge     chan struct{} // any goroutine: ends a held-back read; holds one

	buf  []byte // for readers that ask for little; made when first needed
	r, w int

	received atomic.Uint64 // any goroutine reads
}

func newLink(c net.Conn, network string, gulp time.Duration) *link {
	return &link{
		Conn: c, tcp: strings.HasPrefix(network, "tcp"), gulp: gulp, nudge: make(chan struct{}, 1),
		queued: func() (int, bool) { return queuedBytes(c) },
	}
}

// linkOf finds the link under c; nil when a caller's hook wrapped it.
func linkOf(c net.Conn) *link {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	l, _ := c.(*link)
	return l
}

// Read reads once from the kernel, or hands out what an earlier read left.
func (l *link) Read(p []byte) (int, error) {
	if l.r == l.w {
		l.hold()
		if len(p) >= shortReadBytes {
			return l.fetch(p)
		}
		if l.buf == nil {
			l.buf = make([]byte, readBufferBytes)
		}
		n, err := l.fetch(l.buf)
		if n == 0 {
			return 0, err
		}
		l.r, l.w = 0, n
	}
	n := copy(p, l.buf[l.r:l.w])
	l.r += n
	return n, nil
}

func (l *link) fetch(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.last = n
	l.received.Add(uint64(max(n, 0)))
	return n, err
}

// hold lets the kernel gather: up to one gulp, and not beyond a nudge or half
// of the time until the read's deadline. The other half is for the read: past
// its deadline it would bring nothing, and a caller whose deadline is always
// near would starve. It ends early when more holding gathers no more, because
// the sender waits for us or has nothing to send.
func (l *link) hold() {
	if !l.farBehind || !l.tcp || l.gulp <= 0 || l.last >= shortReadBytes {
		return
	}
	left := l.gulp
	if !l.until.IsZero() {
		left = min(left, time.Until(l.until)/2)
	}
	step := max(l.gulp/holdSteps, time.Millisecond)
	for had := 0; left > 0; left -= step {
		if !l.pause(min(step, left)) {
			return
		}
		n, known := l.queued()
		if known && (n == had || n >= enoughBytes) {
			return
		}
		had = n
	}
}

// pause waits for d, or until a nudge: then it reports false.
func (l *link) pause(d time.Duration) bool {
	if l.timer == nil {
		l.timer = time.NewTimer(d)
	} else {
		l.timer.Reset(d)
	}
	select {
	case <-l.timer.C:
		return true
	case <-l.nudge: // a stale nudge only shortens this one hold
		l.timer.Stop()
		return false
	}
}

// wakeUp ends a hold, now or (once) at the next.
func (l *link) wakeUp() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}
