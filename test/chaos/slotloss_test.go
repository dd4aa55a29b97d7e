package chaos

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestSlotLostWhileStreaming proves that a slot whose log the server has
// removed, or that somebody dropped, is an incident for a person: the relay
// says so, a new one does not start, none makes a slot although the
// configuration lets the first start make one; and that the documented way out
// costs no row: a new slot, and the rows that say READY inserted again.
// Case F3 of docs/guarantees.md.
func TestSlotLostWhileStreaming(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]slotLoss{
		"log removed": {settings: map[string]string{"max_slot_wal_keep_size": "1MB"}, harm: removeLog, left: "lost", drop: true, says: []string{"is lost", "slot.lost"}},
		"dropped":     {harm: dropUnderRelay, left: "", says: []string{"is missing", "slot.missing", "is gone"}},
	} {
		for _, major := range []int{14, 18} {
			t.Run(fmt.Sprint(name, " ", major), func(t *testing.T) {
				t.Parallel()
				c.run(t, major)
			})
		}
	}
}

// slotLoss is one way to lose a slot.
type slotLoss struct {
	settings map[string]string
	harm     func(*testing.T, *rig.Site)
	left     string   // wal_status of what is left of it; "" = nothing is
	drop     bool     // what is left must be dropped first
	says     []string // any of these
}

// status is the slot's wal_status; "" when there is no slot.
func slotStatus(t *testing.T, s *rig.Site) string {
	t.Helper()
	return s.DB.Query1(t, `select coalesce((select wal_status from pg_replication_slots where slot_name = $1), '')`, s.Slot())
}

// removeLog has the server remove the log that the slot needs.
func removeLog(t *testing.T, s *rig.Site) {
	rig.Eventually(t, patience, "the slot is lost", func() bool {
		s.DB.Exec(t, `create table if not exists public.filler (text text)`)
		s.DB.Exec(t, `insert into public.filler values ('x')`)
		s.DB.Exec(t, `select pg_switch_wal()`)
		s.DB.Exec(t, `checkpoint`)
		return slotStatus(t, s) == "lost"
	})
}

// dropUnderRelay drops the slot of a relay that stands still.
func dropUnderRelay(t *testing.T, s *rig.Site) {
	s.DB.Exec(t, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '`+s.Slot()+`' and active`)
	rig.Eventually(t, patience, "nobody reads the slot", func() bool { return walsender(t, s) == "" })
	s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
}

func (c slotLoss) run(t *testing.T, major int) {
	harness.Need(t, harness.PostgresMajor(major))
	pg := harness.StartPostgres(t, harness.PostgresOptions{Major: major, Settings: c.settings})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	s.Set("slot", "on_missing", "create")
	before := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "a", "b")
	s.Settled(t)
	p.Signal(syscall.SIGSTOP)
	p.Frozen()
	s.Insert(t, "a", "frozen", "c")
	if err := before.Read(t.Context()); err != nil { // its slot will be lost too
		t.Fatal(err)
	}
	c.harm(t, s)
	s.Insert(t, "a", "late", "c")
	p.Signal(syscall.SIGCONT)
	p.State("failed")
	c.spoken(t, "the probe", p.Get("/readyz?verbose"))
	says(t, p, "a person must act")
	c.spoken(t, "the log", p.Log.String())
	p.Stop()
	c.refused(t, s)

	after, again := c.recover(t, s)
	p = s.Start(t)
	p.Ready()
	s.Insert(t, "a", "after")
	s.Settled(t)
	p.Stop()
	if err := after.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := joined(before.Rows(), after.Rows())
	rep := judge.Check(judge.Evidence{Rows: rows, Records: s.Kafka.Dump(t, s.Topic)}, judge.Rules{Restarts: 1, SkipsSettled: true, NoLines: true})
	t.Logf("%d rows inserted again; %v", again, rep)
	if err := rep.Err(); err != nil {
		t.Error(err)
	}
	if again < 3 || rep.Rows != 10 || rep.Published != 10 || rep.Waiting != 0 {
		t.Errorf("%d inserted again, %d rows, %d published; want at least the 3 late ones, 10 and 10", again, rep.Rows, rep.Published)
	}
}

// spoken wants one of the words in what was said.
func (c slotLoss) spoken(t *testing.T, where, text string) {
	t.Helper()
	for _, words := range c.says {
		if strings.Contains(text, words) {
			return
		}
	}
	t.Errorf("%s says none of %q:\n%s", where, c.says, rig.Tail(text, 2000))
}

// refused wants the next start to end with 10, and the slot as it was left.
func (c slotLoss) refused(t *testing.T, s *rig.Site) {
	t.Helper()
	records := len(s.Kafka.Dump(t, s.Topic))
	p := s.Start(t)
	if got := p.ExitCode(); got != 10 {
		t.Errorf("exit code %d, want 10", got)
	}
	c.spoken(t, "the next start", p.Log.String())
	if got := slotStatus(t, s); got != c.left {
		t.Errorf("the slot is %q, want %q: nobody was to make one", got, c.left)
	}
	if n := len(s.Kafka.Dump(t, s.Topic)); n != records {
		t.Errorf("%d records came from a start that was refused", n-records)
	}
}

// recover goes the documented way: a new slot whose name is typed again, then
// the rows that say READY once more. It gives a truth of what follows and how
// many rows that were.
func (c slotLoss) recover(t *testing.T, s *rig.Site) (*judge.Truth, int) {
	t.Helper()
	steps := [][]string{{"slot", "create", "--confirm", s.Slot()}}
	if c.drop {
		steps = append([][]string{{"slot", "drop", "--confirm", s.Slot()}}, steps...)
	}
	if out, err := s.Command(t, "slot", "create").CombinedOutput(); err == nil {
		t.Errorf("slot create without --confirm went on:\n%s", out)
	}
	for _, args := range steps {
		if out, err := s.Command(t, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	after, err := judge.OpenTruth(t.Context(), judge.Dial(s.DB.DSN()), judge.TruthOptions{Slot: "after_" + s.DB.Name()})
	if err != nil {
		t.Fatal(err)
	}
	ready := column(t, s.DB, `select event_id::text from public.outbox where status = 0`)
	s.DB.Exec(t, `create table public.again as select * from public.outbox where status = 0;
		delete from public.outbox where status = 0; insert into public.outbox select * from public.again order by id`)
	return after, len(ready)
}

// joined are the rows of two truths; what was inserted again counts where it
// was inserted last.
func joined(before, after []judge.Row) []judge.Row {
	again := map[string]bool{}
	for _, r := range after {
		again[r.EventID] = true
	}
	var rows []judge.Row
	for _, r := range before {
		if !again[r.EventID] {
			rows = append(rows, r)
		}
	}
	rows = append(rows, after...)
	for i := range rows {
		rows[i].Rank = i
	}
	return rows
}
