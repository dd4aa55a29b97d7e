package cdc

import (
	"net"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"golang.org/x/sys/unix"
)

// Law: the kernel watches the connection in both directions: keepalive probes
// and TCP_USER_TIMEOUT, both within wal_sender_timeout.
func TestDeadPeerIsFoundByTheKernel(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	cfg := streamConfigOf(t, b.DSN())
	cfg.WALSenderTimeout = 24 * time.Second
	s := open(t, cfg)
	raw, err := s.link.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		if err := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); err != nil {
			t.Fatal(err)
		}
		return value
	}
	got := [...]int{
		option(unix.SOL_SOCKET, unix.SO_KEEPALIVE), option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL),
		option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT), option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT),
	}
	if want := [...]int{1, 8, 4, 4, 24_000}; got != want {
		t.Errorf("keepalive, idle, interval, count, user time-out: %v, want %v", got, want)
	}
	for name, want := range map[string]string{"wal_sender_timeout": "24s", "application_name": "outbox_relay", "synchronous_commit": "on", "client_encoding": "UTF8"} {
		rows, err := s.query(t.Context(), "SHOW "+name)
		if err != nil || rows[0][0] != want {
			t.Errorf("%s: %v, %v; want %s", name, rows, err, want)
		}
	}
}
