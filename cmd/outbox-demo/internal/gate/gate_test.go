package gate_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line on every connection until its listener is closed.
func echo(t *testing.T, l net.Listener) {
	t.Helper()
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
}

func open(t *testing.T) *gate.Gate {
	t.Helper()
	g, err := gate.Listen()
	if err != nil {
		t.Fatal(err)
	}
	behind, err := g.ListenBehind("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := behind.Addr().String(); got != g.Addr() {
		t.Fatalf("the listener behind says %s, want the gate's own %s", got, g.Addr())
	}
	echo(t, behind)
	var served sync.WaitGroup
	served.Go(g.Serve)
	t.Cleanup(func() {
		g.Close()
		served.Wait()
	})
	return g
}

// ask sends one line and gives what comes back.
func ask(conn net.Conn, line string) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func dial(t *testing.T, g *gate.Gate) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Law: an open gate carries bytes both ways; a shut one cuts what is there and
// refuses what comes, and counts both; opened again it carries again.
func TestShutCutsAndRefuses(t *testing.T) {
	t.Parallel()
	g := open(t)
	before := dial(t, g)
	if got, err := ask(before, "one"); err != nil || got != "one\n" {
		t.Fatalf("through the open gate: %q, %v", got, err)
	}
	if cut := g.Shut(); cut != 1 {
		t.Errorf("Shut cut %d connections, want 1", cut)
	}
	if got, err := ask(before, "two"); err == nil {
		t.Errorf("a cut connection answered %q", got)
	}
	// The reset may come as early as the dialling.
	if conn, err := net.Dial("tcp", g.Addr()); err == nil {
		if got, err := ask(conn, "three"); err == nil {
			t.Errorf("a shut gate answered %q", got)
		}
		_ = conn.Close()
	}
	if cut, refused := g.Counts(); cut != 1 || refused != 1 {
		t.Errorf("counted %d cut and %d refused, want 1 and 1", cut, refused)
	}
	g.Open()
	if got, err := ask(dial(t, g), "four"); err != nil || got != "four\n" {
		t.Errorf("through the gate opened again: %q, %v", got, err)
	}
}

// Law: nothing is counted that nothing met: a gate that was shut while nobody
// used it has cut and refused nothing.
func TestCountsOnlyWhatWasThere(t *testing.T) {
	t.Parallel()
	g := open(t)
	if cut := g.Shut(); cut != 0 {
		t.Errorf("Shut cut %d connections of an unused gate", cut)
	}
	g.Open()
	if cut, refused := g.Counts(); cut != 0 || refused != 0 {
		t.Errorf("counted %d cut and %d refused", cut, refused)
	}
}

// Law: a gate has one place behind it.
func TestSecondListenerIsRefused(t *testing.T) {
	t.Parallel()
	g := open(t)
	if _, err := g.ListenBehind("tcp", ""); err == nil {
		t.Error("a second listener behind the gate was accepted")
	}
}
