package chaos

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// patience bounds every wait for the product: the machine may be busy.
const patience = 90 * time.Second

// kfakeSite is a site on the shared server of a major (0: any) with an
// in-process broker of its own.
func kfakeSite(t *testing.T, major int) *rig.Site {
	t.Helper()
	return rig.New(t, rig.Options{Postgres: harness.SharedPostgres(t, major), Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
}

// column reads the first column of all rows.
func column(t *testing.T, db *harness.Database, sql string, args ...any) []string {
	t.Helper()
	rows, err := db.Conn(t).Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// header is a header of a record; "" when it has none of that name.
func header(r harness.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// copies counts the records of each event id.
func copies(records []harness.Record) map[string]int {
	n := make(map[string]int, len(records))
	for _, r := range records {
		n[header(r, "outbox-id")]++
	}
	return n
}

// walsender is the process that serves the site's slot; "" when none does.
func walsender(t *testing.T, s *rig.Site) string {
	t.Helper()
	return s.DB.Query1(t, `select coalesce(active_pid::text, '') from pg_replication_slots where slot_name = $1`, s.Slot())
}

// says waits for words in a relay's log.
func says(t *testing.T, p *rig.Process, words string) {
	t.Helper()
	rig.Eventually(t, patience, "the log says "+words, func() bool { return strings.Contains(p.Log.String(), words) })
}

// exec runs statements on a connection that the test keeps open.
func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
