package broker

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// bootstrap stands in front of a broker and lets its answers name another
// address than its own: one of the same length, so that nothing moves.
type bootstrap struct {
	address   string
	broker    string                 // where the real one listens, on 127.0.0.1
	advertise atomic.Pointer[string] // nil = the broker's own
	changed   atomic.Int64           // addresses that were replaced

	mu   sync.Mutex
	open map[net.Conn]bool // connections of clients
}

// inFront starts one; it ends with the test.
func inFront(t *testing.T, broker string) *bootstrap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &bootstrap{address: l.Addr().String(), broker: broker, open: map[net.Conn]bool{}}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c) // ends when the relay's end of c does, with the relay
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepted
	})
	return b
}

// serve passes requests on as they are and answers frame by frame.
func (b *bootstrap) serve(c net.Conn) {
	b.set(c, true)
	defer func() {
		b.set(c, false)
		_ = c.Close()
	}()
	up, err := net.Dial("tcp", b.broker)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	}()
	var size [4]byte
	for {
		if _, err := io.ReadFull(up, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(up, frame); err != nil {
			return
		}
		if _, err := c.Write(append(size[:], b.change(frame)...)); err != nil {
			return
		}
	}
}

func (b *bootstrap) set(c net.Conn, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[c] = open
	if !open {
		delete(b.open, c)
	}
}

// drop cuts every connection and says how many there were.
func (b *bootstrap) drop() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		_ = c.Close()
		n++
	}
	return n
}

// change replaces the broker's address, a text and four bytes of port.
func (b *bootstrap) change(frame []byte) []byte {
	to := b.advertise.Load()
	if to == nil {
		return frame
	}
	old := wireAddress(b.broker)
	b.changed.Add(int64(bytes.Count(frame, old)))
	return bytes.ReplaceAll(frame, old, wireAddress(*to))
}

func wireAddress(address string) []byte {
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseUint(port, 10, 16)
	return binary.BigEndian.AppendUint32([]byte(host), uint32(n))
}

// TestAdvertisedAddressDoesNotWork proves that a cluster whose bootstrap address
// works and whose brokers name an address that does not is told apart from one
// that is away: the relay is not ready, names the address that it cannot reach,
// and keeps every row READY; when the brokers name a good one it goes on.
// Case F46 of docs/guarantees.md.
func TestAdvertisedAddressDoesNotWork(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	b, closed := inFront(t, k.Brokers()[0]), rig.FreeAddress(t)
	b.advertise.Store(&closed)
	s.Set("kafka", "brokers", []string{b.address})
	tr := s.Truth(t)
	const rows = 100
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload) select 'k' || i % 10, 'v' from generate_series(1, $1) i`, rows)
	p := s.start(t)
	t.Logf("named: %s", p.blocked(closed, "connection refused"))
	since := time.Now()
	p.State("blocked")
	longer(t, since, 10*time.Second)
	if state := p.StateNow(); state != "blocked" || b.changed.Load() == 0 {
		t.Fatalf("state %q after %d answers with the closed address", state, b.changed.Load())
	}
	if ready, sent := s.rows(t, "status = 0"), len(k.Dump(t, s.Topic)); ready != rows || sent != 0 {
		t.Fatalf("%d rows READY and %d records, want all %d and none", ready, sent, rows)
	}
	b.advertise.Store(nil)
	p.publishes(s.Topic, rows)
	p.healthy()
	p.Ready()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, nil, judge.Rules{NoLines: true}))
}

// TestLocalhostIsNotOnlyIPv6 proves that a name whose first address is ::1,
// where no broker listens, is reached by its second, both as kafka.brokers and
// as what the brokers name. The relay runs with a hosts file of its own.
// Case F46 of docs/guarantees.md.
func TestLocalhostIsNotOnlyIPv6(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	b := inFront(t, k.Brokers()[0])
	_, port, err := net.SplitHostPort(k.Brokers()[0])
	must(t, err)
	_, front, err := net.SplitHostPort(b.address)
	must(t, err)
	for _, p := range []string{port, front} {
		if c, err := net.Dial("tcp6", net.JoinHostPort("::1", p)); err == nil {
			_ = c.Close()
			t.Fatal("somebody listens on ::1: the test would prove nothing")
		}
	}
	local := "localhost:" + port
	b.advertise.Store(&local)
	s.Set("kafka", "brokers", []string{"localhost:" + front})
	s.Prefix = ipv6First(t)
	tr := s.Truth(t)
	p := s.streaming(t)
	s.Insert(t, "a", "b")
	s.drained(t)
	if b.changed.Load() == 0 || p.trouble() != "" {
		t.Errorf("%d answers named localhost; trouble %q", b.changed.Load(), p.trouble())
	}
	exactly(t, s.verdict(t, tr, nil, judge.Rules{NoLines: true}))
}

// ipv6First is a command that becomes the one behind it, for which localhost is
// ::1 first and 127.0.0.1 second.
func ipv6First(t *testing.T) []string {
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "hosts")
	must(t, os.WriteFile(hosts, []byte("::1 localhost\n127.0.0.1 localhost\n"), 0o644))
	words := []string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, hosts}
	out, err := exec.Command(words[0], append(words[1:], "getent", "ahosts", "localhost")...).CombinedOutput()
	if err != nil {
		t.Skipf("this machine gives nobody a hosts file of their own: %v\n%s", err, out)
	}
	if !strings.HasPrefix(string(out), "::1 ") || !strings.Contains(string(out), "127.0.0.1") {
		t.Fatalf("the hosts file has not bitten: %s", out)
	}
	return words
}
