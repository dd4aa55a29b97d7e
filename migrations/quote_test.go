package migrations

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: the server reads a quoted name and a quoted literal back as what they
// were, whatever characters they have.
func TestQuotingRoundTrips(t *testing.T) {
	t.Parallel()
	conn := harness.SharedPostgres(t, 0).CreateDatabase(t).Conn(t)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`["'\\;\-/* .a-zé$%\n]{1,20}`).Draw(rt, "name")
		other := rapid.StringMatching(`["a.]{1,8}`).Draw(rt, "other")
		var read []string
		if err := conn.QueryRow(t.Context(), `select parse_ident($1)`, quote(name, other)).Scan(&read); err != nil {
			rt.Fatalf("%s: %v", quote(name, other), err)
		}
		if len(read) != 2 || read[0] != name || read[1] != other {
			rt.Fatalf("%s reads as %q", quote(name, other), read)
		}
		var text string
		sql := "select " + literal(name) + " as " + quote(other)
		if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil || text != name {
			rt.Fatalf("%s gives %q, %v", sql, text, err)
		}
	})
}

// Law: a partition whose name the server would cut is refused.
func TestPartitionNamesAreNotCut(t *testing.T) {
	t.Parallel()
	if _, err := PartitionDDL(OutboxOptions{Table: strings.Repeat("x", 55)}, time.Now()); err == nil {
		t.Error("a name of 64 bytes was given")
	}
	if _, err := PartitionDDL(OutboxOptions{Table: strings.Repeat("x", 54)}, time.Now()); err != nil {
		t.Error(err)
	}
}
