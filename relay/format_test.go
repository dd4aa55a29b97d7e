package relay_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// logged is a log that a test may read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(part))
}

// Law: values come in the binary format where that pays, in text where a mapped
// column cannot be read in it, and a column that becomes such a one while rows
// are under way costs a session, never a row.
func TestFormatFollowsTheColumns(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.SharedPostgres(t, 0))
	log := &logged{}
	s.log = log
	r := s.start(t, func(c *relay.Config) { c.WriteBack = relay.WriteBackStatus })
	streaming(t, r)
	s.insert(t, "a", "b")
	s.waitStatus(t, 2, 2)
	if log.count(`"binary":true`) != 1 || log.count(`"binary":false`) != 0 {
		t.Fatal("the first session did not ask for the binary format")
	}
	s.db.Exec(t, "create type kind as enum ('placed', 'paid')")
	s.db.Exec(t, "alter table public.outbox alter column event_type type kind using event_type::kind")
	s.insert(t, "c", "d")
	s.waitStatus(t, 2, 4)
	if log.count(`"binary":false`) != 1 {
		t.Error("no session asked for text after a column had become an enum")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// Now the table looks as if binary paid, and the rows under way are of
	// the shape that does not.
	s.insert(t, "e", "f")
	s.db.Exec(t, "alter table public.outbox alter column event_type type text")
	s.insert(t, "g")
	r = s.start(t, nil)
	s.waitStatus(t, 2, 7)
	if b, x := log.count(`"binary":true`), log.count(`"binary":false`); b < 2 || x < 2 {
		t.Errorf("%d sessions in binary and %d in text, want one more of each", b, x)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, rec := range s.kafka.Dump(t, topic) {
		if string(rec.Value) != "hi" {
			t.Errorf("the payload %q came out as %q", "hi", rec.Value)
		}
	}
	if n := len(s.kafka.Dump(t, topic)); n != 7 {
		t.Errorf("%d records, want 7", n)
	}
}
