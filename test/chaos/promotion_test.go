package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// pair is a site whose primary has a standby that keeps the relay's slot and
// the judge's; the relay's DSN names both.
type pair struct {
	*rig.Site
	primary, standby *harness.Postgres
	truth            *judge.Truth
}

// warm is the key of the rows before the truth began.
const warm = "warm"

// newPair makes one. Synchronised, the primary sends the relay nothing that
// the standby does not have.
func newPair(t *testing.T, major int, synchronised bool) *pair {
	t.Helper()
	harness.Need(t, harness.PostgresMajor(major))
	primary := harness.StartPostgres(t, harness.PostgresOptions{Major: major})
	s := rig.New(t, rig.Options{Postgres: primary, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
	s.Set("slot", "failover", true)
	s.Set("limits", "span_rows", span)
	if out, err := s.Command(t, "slot", "create").CombinedOutput(); err != nil {
		t.Fatalf("slot create: %v\n%s", err, out)
	}
	p := &pair{Site: s, primary: primary, standby: primary.Standby(t, harness.StandbyOptions{SyncSlots: true, Database: s.DB.Name()})}
	both := fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable", primary.Port(), p.standby.Port(), s.DB.Name())
	s.Set("postgres", "replication", both)
	if synchronised {
		s.DB.Exec(t, fmt.Sprintf(`alter system set synchronized_standby_slots = '%s'`,
			s.DB.Query1(t, `select slot_name from pg_replication_slots where slot_type = 'physical'`)))
		s.DB.Exec(t, `select pg_reload_conf()`)
	}
	var err error
	p.truth, err = judge.OpenTruth(t.Context(), func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.Connect(ctx, both+"&target_session_attrs=read-write")
	}, judge.TruthOptions{Slot: truthSlot, Failover: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const truthSlot = "truth"

// span bounds what a relay of a pair repeats.
const span = 2000

// kept moves both slots on until the standby keeps them for good. The truth
// begins after the rows that it takes.
func (p *pair) kept(t *testing.T) {
	t.Helper()
	rig.Eventually(t, patience, "the standby keeps both slots", func() bool {
		p.Insert(t, warm)
		p.Settled(t)
		p.DB.Exec(t, `select pg_log_standby_snapshot()`)
		p.DB.Exec(t, `select pg_replication_slot_advance($1, pg_current_wal_flush_lsn())`, truthSlot)
		return p.DB.On(p.standby).Query1(t, `select count(*) from pg_replication_slots where synced and not temporary and invalidation_reason is null`) == "2"
	})
	p.DB.Exec(t, `select pg_replication_slot_advance($1, pg_current_wal_flush_lsn())`, truthSlot)
}

// crashed kills the primary without a checkpoint, promotes the standby and
// turns the site to it.
func (p *pair) crashed(t *testing.T) {
	t.Helper()
	p.primary.Crash(t)
	p.standby.Promote(t)
	p.DB = p.DB.On(p.standby)
}

// counted are the records of the topic without those of rows that lie before
// the truth's beginning. Read must have been called.
func (p *pair) counted(t *testing.T) []kafkaserver.Record {
	t.Helper()
	known := map[string]bool{}
	for _, r := range p.truth.Rows() {
		known[r.EventID] = true
	}
	return slices.DeleteFunc(p.Kafka.Dump(t, p.Topic), func(r kafkaserver.Record) bool {
		return string(r.Key) == warm && !known[header(r, judge.HeaderID)]
	})
}

// without drops the records whose key begins so.
func without(records []kafkaserver.Record, key string) []kafkaserver.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r kafkaserver.Record) bool { return strings.HasPrefix(string(r.Key), key) })
}

// byTimeline counts records by the timeline of their position.
func byTimeline(records []kafkaserver.Record) map[string]int {
	n := map[string]int{}
	for _, r := range records {
		timeline, _, _ := strings.Cut(header(r, "outbox-position"), ":")
		n[timeline]++
	}
	return n
}

// judged gives the verdict. Rows whose COMMIT was acknowledged and that the
// new primary does not have are not owed; how many there are is logged.
func (p *pair) judged(t *testing.T, j *judge.Journal, rules judge.Rules) judge.Report {
	t.Helper()
	if err := p.truth.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j != nil {
		has := map[string]bool{}
		for _, r := range p.truth.Rows() {
			has[r.EventID] = true
		}
		rules.MayLose = map[string]bool{}
		for _, id := range j.Committed {
			if !has[id] {
				rules.MayLose[id] = true
			}
		}
		t.Logf("%d of %d acknowledged rows went with the old primary", len(rules.MayLose), len(j.Committed))
	}
	lines, err := judge.ReadLines(t.Context(), p.DB.Conn(t), "default", "public.outbox")
	if err != nil {
		t.Fatal(err)
	}
	rules.NoLines = true
	return judge.Verdict(t, p.truth, [][]kafkaserver.Record{p.counted(t)}, lines, j, rules)
}

// TestPromotionWhileWritersRun proves the failover of the built program with a
// synchronised slot: the primary dies while eight writers commit and the relay
// publishes. Nothing that the new primary has is lost, nothing is published
// that it has not, and at most a span is repeated.
func TestPromotionWhileWritersRun(t *testing.T) {
	t.Parallel()
	for _, major := range []int{17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, major, true)
			relay := p.Start(t)
			relay.Ready()
			p.kept(t)
			f := p.Flow(t, judge.Workload{Seed: uint64(major), BigRows: 500, Rate: 100})
			f.More(200)
			p.crashed(t)
			j := f.Stop()
			again := p.Flow(t, judge.Workload{Seed: uint64(major) + 100, BigRows: 500, Rate: 100})
			again.More(100)
			j2 := again.Stop()
			p.Settled(t)
			relay.Ready()
			relay.Stop()
			if n := streams(relay); n < 2 {
				t.Fatalf("%d sessions: the failover has not bitten", n)
			}
			j.Committed, j.Aborted, j.Unknown = append(j.Committed, j2.Committed...), append(j.Aborted, j2.Aborted...), append(j.Unknown, j2.Unknown...)
			rep := p.judged(t, j, judge.Rules{Restarts: streams(relay) - 1, SkipsSettled: true})
			if n := byTimeline(p.counted(t)); n["1"] == 0 || n["2"] == 0 || len(n) != 2 {
				t.Errorf("records by timeline: %v, want some of 1 and of 2", n)
			}
			if rep.Waiting != 0 || rep.Published != rep.Rows || rep.Rows == 0 || rep.Duplicates > span {
				t.Errorf("%d rows, %d published, %d waiting, %d repeated; want all published and at most %d repeated", rep.Rows, rep.Published, rep.Waiting, rep.Duplicates, span)
			}
		})
	}
}

// TestPromotionOfAnIdlePair proves the same without load: every row before and
// after the promotion is published, and none twice.
func TestPromotionOfAnIdlePair(t *testing.T) {
	t.Parallel()
	for _, major := range []int{17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, major, true)
			relay := p.Start(t)
			relay.Ready()
			p.kept(t)
			p.Insert(t, "a", "b", "a")
			p.Settled(t)
			p.standby.WaitFor(t, p.primary)
			p.crashed(t)
			p.Insert(t, "a", "c")
			p.Settled(t)
			relay.Ready()
			relay.Stop()
			rep := p.judged(t, nil, judge.Rules{Restarts: streams(relay) - 1, SkipsSettled: true})
			if n := byTimeline(without(p.counted(t), warm)); rep.Rows < 5 || rep.Published != rep.Rows || rep.Duplicates != 0 || n["1"] != 3 || n["2"] != 2 {
				t.Errorf("%d rows, %d published, %d repeated, by timeline %v; want all of at least 5, 0, three of 1 and two of 2", rep.Rows, rep.Published, rep.Duplicates, n)
			}
		})
	}
}

// frozenReceiver stops the process by which a standby receives, and gives its
// release.
func frozenReceiver(t *testing.T, db *harness.Database) (release func()) {
	t.Helper()
	pid, err := strconv.Atoi(db.Query1(t, `select pid from pg_stat_wal_receiver`))
	if err != nil {
		t.Fatal(err)
	}
	signal := func(sig syscall.Signal) {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatalf("signal %v: %v", sig, err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// TestPromotionBehindTheRelay proves what a standby costs that the primary was
// not told to wait for. It lacks rows that were published, and is promoted:
// their records stay, and are in no database. The relay says so, with the
// interval; a position row cannot, since it went back with the rest. It goes on
// by the slot that the standby has, makes none, and loses nothing that the new
// primary has. The records of before and after differ in their timeline.
func TestPromotionBehindTheRelay(t *testing.T) {
	t.Parallel()
	const gone = 20
	p := newPair(t, 17, false)
	relay := p.Start(t)
	relay.Ready()
	p.kept(t)
	p.standby.WaitFor(t, p.primary)
	release := frozenReceiver(t, p.DB.On(p.standby))
	// What is on its way when it is stopped, it still reads when it wakes: this
	// fills the socket, so the rows stay with the primary.
	p.DB.Exec(t, `create table public.filler as select repeat('x', 1000) from generate_series(1, 32000)`)
	for i := range gone {
		p.Insert(t, fmt.Sprint("gone ", i))
	}
	p.Settled(t)
	reached := p.DB.Query1(t, `select lsn from outbox_relay.position`)
	p.primary.Crash(t)
	release()
	p.standby.Promote(t)
	p.DB = p.DB.On(p.standby)
	if got := p.Count(t, "aggregate_id like 'gone %'"); got != "0" {
		t.Fatalf("the new primary has %s of the published rows: the fault has not bitten", got)
	}
	if got := p.DB.Query1(t, `select bool_and(lsn < $1::text::pg_lsn) from outbox_relay.position`, reached); got != "t" {
		t.Fatalf("the new primary's position row does not lie behind %s", reached)
	}
	p.Insert(t, "new", "new")
	p.Settled(t)
	relay.Stop()
	if log := relay.Log.String(); strings.Count(log, "are in no database any more") != 1 || !strings.Contains(log, `"to":"`+reached+`"`) {
		t.Errorf("the log does not say, once, that the records up to %s are in no database:\n%s", reached, rig.Tail(log, 3000))
	}
	if got := p.DB.Query1(t, `select count(*) from pg_replication_slots`); got != "2" || streams(relay) < 2 {
		t.Errorf("%s slots, %d sessions; want the two that the standby kept, and a second session", got, streams(relay))
	}
	if err := p.truth.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := p.counted(t)
	owed := without(records, "gone ")
	rep := judge.Verdict(t, p.truth, [][]kafkaserver.Record{owed}, nil, nil, judge.Rules{Restarts: streams(relay) - 1, SkipsSettled: true, NoLines: true})
	if n := byTimeline(without(owed, warm)); len(records)-len(owed) != gone || n["2"] != 2 || rep.Published != rep.Rows {
		t.Errorf("%d records of rows that no database has, want %d; %v by timeline, want 2 of 2; %d of %d rows published", len(records)-len(owed), gone, n, rep.Published, rep.Rows)
	}
}
