package gate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Gate is one listening address before one other address. Its methods are
// safe for concurrent use. It lives until Close.
type Gate struct {
	front net.Listener
	work  sync.WaitGroup // one for each connection that is carried

	mu      sync.Mutex // guards what follows; never held across I/O that can block
	behind  string     // where connections are carried to; "" before ListenBehind
	shut    bool
	closed  bool
	open    map[net.Conn]struct{} // both ends of each carried connection
	cut     int
	refused int
}

// Listen takes a free port on 127.0.0.1. Nothing is accepted before Serve.
func Listen() (*Gate, error) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the gate: %w", err)
	}
	return &Gate{front: front, open: map[net.Conn]struct{}{}}, nil
}

// Addr is the address in front of the gate.
func (g *Gate) Addr() string { return g.front.Addr().String() }

// hidden is a listener that says the gate's address in place of its own, so
// that a broker on it advertises the gate.
type hidden struct {
	net.Listener
	front net.Addr
}

func (h hidden) Addr() net.Addr { return h.front }

// ListenBehind opens the listener that connections are carried to. Its shape
// is that of net.Listen, for servers that take such a function; the address
// asked for is ignored in favour of a free port. One call per gate.
func (g *Gate) ListenBehind(network, _ string) (net.Listener, error) {
	behind, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening behind the gate: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.behind != "" {
		return nil, errors.Join(errors.New("listening behind the gate: it carries to one listener only"), behind.Close())
	}
	g.behind = behind.Addr().String()
	return hidden{behind, g.front.Addr()}, nil
}

// Serve accepts until Close, and returns when the last connection has ended.
func (g *Gate) Serve() {
	defer g.work.Wait()
	for {
		conn, err := g.front.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a connection that ended before it was accepted
		}
		if behind, ok := g.admit(conn); ok {
			g.work.Go(func() { g.carry(conn, behind) })
		}
	}
}

// admit counts and resets the connection where the gate is shut.
func (g *Gate) admit(conn net.Conn) (behind string, ok bool) {
	g.mu.Lock()
	behind, ok = g.behind, !g.shut && !g.closed && g.behind != ""
	if ok {
		g.open[conn] = struct{}{}
	} else if g.shut {
		g.refused++
	}
	g.mu.Unlock()
	if !ok {
		reset(conn)
	}
	return behind, ok
}

// carry copies both ways until one side ends or the gate shuts.
func (g *Gate) carry(front net.Conn, address string) {
	defer g.drop(front)
	back, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer g.drop(back)
	if !g.keep(back) {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(front, back)
		_ = front.Close()
	})
	_, _ = io.Copy(back, front)
	_ = back.Close()
	answers.Wait()
}

// keep records the far end, unless the gate shut in the meantime.
func (g *Gate) keep(back net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut || g.closed {
		return false
	}
	g.open[back] = struct{}{}
	return true
}

func (g *Gate) drop(conn net.Conn) {
	_ = conn.Close()
	g.mu.Lock()
	delete(g.open, conn)
	g.mu.Unlock()
}

// Shut cuts every connection and refuses new ones until Open. It gives the
// number of connections that it cut.
func (g *Gate) Shut() int {
	g.mu.Lock()
	g.shut = true
	conns := g.take()
	g.cut += len(conns) / 2
	g.mu.Unlock()
	for _, c := range conns {
		reset(c)
	}
	return len(conns) / 2
}

// take gives all open ends; the goroutines that carry them forget them.
// Called with mu held.
func (g *Gate) take() []net.Conn {
	conns := make([]net.Conn, 0, len(g.open))
	for c := range g.open {
		conns = append(conns, c)
	}
	return conns
}

// Open lets connections pass again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// Counts says how many connections were cut and how many refused so far.
func (g *Gate) Counts() (cut, refused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cut, g.refused
}

// Close ends the gate and all its connections. A second call does nothing.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	conns := g.take()
	g.mu.Unlock()
	_ = g.front.Close()
	for _, c := range conns {
		_ = c.Close()
	}
}

// reset ends a connection with RST in place of FIN, as the kernel does for a
// process that is gone.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
