package chaos

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outboxrelay/outbox-relay/test/rig"
)

// pooler stands in front of a server as a connection pooler does: it passes on
// ordinary connections, and knows nothing of replication.
type pooler struct {
	server string
	// drops has it leave out the start parameter that it does not know, and
	// the server then refuses the first command of the protocol; otherwise it
	// refuses the connection itself.
	drops  bool
	asked  atomic.Int64 // connections that wanted replication
	passed atomic.Int64 // connections that the server got as they were
}

// inFrontOf starts one and gives its address; it ends with the test.
func (p *pooler) inFrontOf(t *testing.T, server string) string {
	t.Helper()
	p.server = server
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c) // ends when the relay closes its end
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepted
	})
	return l.Addr().String()
}

func (p *pooler) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	client := pgproto3.NewBackend(c, c)
	start, err := client.ReceiveStartupMessage()
	if _, wantsTLS := start.(*pgproto3.SSLRequest); wantsTLS && err == nil {
		_, _ = c.Write([]byte("N"))
		start, err = client.ReceiveStartupMessage()
	}
	m, ok := start.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return
	}
	if m.Parameters["replication"] != "" {
		p.asked.Add(1)
		if !p.drops {
			client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"})
			_ = client.Flush()
			return
		}
		delete(m.Parameters, "replication")
	} else {
		p.passed.Add(1)
	}
	up, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	hello, err := m.Encode(nil)
	if err != nil {
		return
	}
	if _, err := up.Write(hello); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	}()
	_, _ = io.Copy(c, up)
}

// TestPoolerInFront proves that a connection pooler in the way of the stream
// ends the start with code 2 and the words that say what to do, whether it
// refuses the connection or passes it on as an ordinary one; and that the
// queries alone may lead through it.
// Case F58 of docs/guarantees.md.
func TestPoolerInFront(t *testing.T) {
	t.Parallel()
	for name, drops := range map[string]bool{"refuses": false, "passes on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kfakeSite(t, 0)
			direct, err := pgx.ParseConfig(s.DB.DSN())
			if err != nil {
				t.Fatal(err)
			}
			front := &pooler{drops: drops}
			address := front.inFrontOf(t, fmt.Sprintf("%s:%d", direct.Host, direct.Port))
			through := fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", direct.User, address, direct.Database)
			s.Insert(t, "a")

			s.Set("postgres", "replication", through)
			p := s.Start(t)
			code := p.ExitCode()
			for _, want := range []string{"Connect directly", "pooler", "postgres.query"} {
				if !strings.Contains(p.Log.String(), want) {
					t.Errorf("the log does not say %s", want)
				}
			}
			if code != 2 || front.asked.Load() == 0 {
				t.Errorf("exit code %d, want 2, after %d connections for the stream:\n%s", code, front.asked.Load(), rig.Tail(p.Log.String(), 2000))
			}
			if n, ready := len(s.Kafka.Dump(t, s.Topic)), s.Count(t, "status = 0"); n != 0 || ready != "1" {
				t.Errorf("%d records, %s rows READY", n, ready)
			}

			front.passed.Store(0)
			s.Set("postgres", "replication", s.DB.DSN())
			s.Set("postgres", "query", through)
			p = s.Start(t)
			s.Settled(t)
			p.Ready()
			p.Stop()
			if n := len(s.Kafka.Dump(t, s.Topic)); n != 1 || front.passed.Load() == 0 {
				t.Errorf("%d records, want one; %d connections through the pooler", n, front.passed.Load())
			}
		})
	}
}
