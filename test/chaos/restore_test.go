package chaos

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// copied copies the data directory of a stopped server, with owners and modes.
func copied(t *testing.T, from, to string) {
	t.Helper()
	if out, err := osexec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copying the data directory: %v\n%s", err, out)
	}
}

// putBack replaces the data directory of a stopped server by a copy.
func putBack(t *testing.T, pg *harness.Postgres, backup string) {
	t.Helper()
	if err := os.RemoveAll(pg.DataDir()); err != nil {
		t.Fatal(err)
	}
	copied(t, backup, pg.DataDir())
}

// backedUp is a site whose server is as it was 100 rows ago.
type backedUp struct {
	*rig.Site
	pg     *harness.Postgres
	lsn    string // of the position row before that
	record int    // records in the topic then
}

func newBackedUp(t *testing.T) *backedUp {
	t.Helper()
	pg := harness.StartPostgres(t, harness.PostgresOptions{})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "old")
	s.Settled(t)
	p.Stop()
	backup := filepath.Join(t.TempDir(), "backup")
	pg.Stop(t, "fast")
	copied(t, pg.DataDir(), backup)
	pg.Start(t)
	p = s.Start(t)
	p.Ready()
	for i := range 100 {
		s.Insert(t, fmt.Sprint("lost ", i))
	}
	s.Drained(t)
	p.Stop()
	b := &backedUp{Site: s, pg: pg, lsn: s.DB.Query1(t, `select lsn from outbox_relay.position`), record: len(s.Kafka.Dump(t, s.Topic))}
	pg.Stop(t, "fast")
	putBack(t, pg, backup)
	pg.Start(t)
	if got := s.DB.Query1(t, `select pg_current_wal_insert_lsn() < $1::text::pg_lsn`, b.lsn); got != "t" {
		t.Fatalf("the server's log does not end before %s: the restore has not bitten", b.lsn)
	}
	return b
}

// TestRestoredServer proves what a whole server put back to an earlier state
// means: its position row went back with it, so the relay goes on where that
// stands and loses nothing that this server commits. What was published and
// is in it no more stays in the topic.
// Case F30 of docs/guarantees.md.
func TestRestoredServer(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	tr := b.Truth(t)
	p := b.Start(t)
	p.Ready()
	b.Insert(t, "new", "old", "new")
	b.Settled(t)
	p.Stop()
	if err := tr.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := b.Kafka.Dump(t, b.Topic)
	fresh := records[:0:0]
	known := map[string]bool{}
	for _, r := range tr.Rows() {
		known[r.EventID] = true
	}
	for _, r := range records {
		if known[header(r, judge.HeaderID)] {
			fresh = append(fresh, r)
		}
	}
	rep := judge.Check(judge.Evidence{Rows: tr.Rows(), Records: fresh}, judge.Rules{NoLines: true})
	t.Log(rep)
	if err := rep.Err(); err != nil {
		t.Error(err)
	}
	if rep.Rows != 3 || rep.Published != 3 || len(records) != b.record+3 {
		t.Errorf("%d rows, %d published, %d records more; want 3 each", rep.Rows, rep.Published, len(records)-b.record)
	}
}

// resetLog has the log of a fresh server begin in a segment.
func resetLog(t *testing.T, pg *harness.Postgres, segment string) {
	t.Helper()
	program := filepath.Join(pg.BinDir(), "pg_resetwal")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("these binaries are without pg_resetwal: %v", err)
	}
	pg.Stop(t, "fast")
	info, err := os.Stat(pg.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(program, "-D", pg.DataDir(), "-l", segment)
	cmd.Dir = pg.DataDir()
	if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Geteuid() { // it refuses to run as root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid, NoSetGroups: true}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_resetwal: %v\n%s", err, out)
	}
	pg.Start(t)
}

// TestPositionsCrossTheHalfWord proves that nothing treats the halves of a
// position on their own: a live relay crosses from F/FFFFFFFF to 10/0 under
// load, its slot is seen on both sides, and nothing is lost, repeated or out of
// order.
// Case F31 of docs/guarantees.md.
func TestPositionsCrossTheHalfWord(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{Major: 15})
	resetLog(t, pg, "000000010000000F000000FE")
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	f := s.Flow(t, judge.Workload{Seed: 16, BigRows: 300, Rate: 100})
	confirmed := func() string {
		return s.DB.Query1(t, `select confirmed_flush_lsn from pg_replication_slots where slot_name = $1`, s.Slot())
	}
	s.DB.Exec(t, `create table public.filler (text text)`)
	f.More(100)
	sides := map[string]bool{}
	rig.Eventually(t, patience, "the slot is beyond 10/0", func() bool {
		half, _, _ := strings.Cut(confirmed(), "/")
		sides[half] = true
		if s.DB.Query1(t, `select pg_current_wal_insert_lsn() < '10/0'`) == "t" {
			s.DB.Exec(t, `insert into public.filler select repeat('x', 1000) from generate_series(1, 500)`)
		}
		return half == "10"
	})
	f.More(100)
	j := f.Stop()
	s.Settled(t)
	p.Stop()
	if !sides["F"] || !sides["10"] || len(sides) != 2 {
		t.Fatalf("the slot was seen in %v, want F and 10", sides)
	}
	halves := map[string]int{}
	for _, r := range s.Kafka.Dump(t, s.Topic) {
		_, at, _ := strings.Cut(header(r, "outbox-position"), ":")
		half, _, _ := strings.Cut(at, "/")
		halves[half]++
	}
	if halves["F"] == 0 || halves["10"] == 0 || len(halves) != 2 {
		t.Errorf("records by the upper half of their position: %v, want some of F and of 10", halves)
	}
	rep := s.Judge(t, tr, j, judge.Rules{NoLines: true})
	whole(t, rep)
	if rep.Duplicates != 0 || streams(p) != 1 {
		t.Errorf("%d repeated, %d sessions; want 0 and 1", rep.Duplicates, streams(p))
	}
}

// position is the site's whole position row.
func position(t *testing.T, s *rig.Site) string {
	t.Helper()
	return s.DB.Query1(t, `select p.*::text from outbox_relay.position p`)
}

// TestRestoredServerBehindItsPosition proves that a position row that is ahead
// of a restored server's log, as when only its table was saved, ends the start:
// what follows would be taken for known. Nothing is published, and the row
// stays as it is.
// Case F30 of docs/guarantees.md.
func TestRestoredServerBehindItsPosition(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	b.DB.Exec(t, `update outbox_relay.position set lsn = $1::text::pg_lsn, reached = $1::text::pg_lsn`, b.lsn)
	row := position(t, b.Site)
	b.Insert(t, "new")
	p := b.Start(t)
	if got := p.ExitCode(); got != 10 || !strings.Contains(p.Log.String(), "rewound") {
		t.Errorf("exit code %d, want 10 and the word rewound:\n%s", got, rig.Tail(p.Log.String(), 2000))
	}
	if n := len(b.Kafka.Dump(t, b.Topic)); n != b.record {
		t.Errorf("%d records were published", n-b.record)
	}
	if got := position(t, b.Site); got != row {
		t.Errorf("position row %s before, %s after", row, got)
	}
}
