package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// noise writes to tables that nobody publishes, by four clients, until stop is
// called.
func noise(t *testing.T, db *harness.Database) (stop func()) {
	t.Helper()
	db.Exec(t, `create table public.noise (id int primary key, n int not null default 0, text text); insert into public.noise select i from generate_series(0, 3) i;
		create table public.log_0 (text text); create table public.log_1 (text text); create table public.log_2 (text text); create table public.log_3 (text text)`)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		conn := db.Conn(t)
		writers.Go(func() { writeNoise(ctx, conn, i) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		writers.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// writeNoise writes some 20 MiB a second.
func writeNoise(ctx context.Context, conn *pgx.Conn, i int) {
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		_, _ = conn.Exec(ctx, fmt.Sprintf(`update public.noise set n = n + 1, text = repeat('n', 200) where id = %d`, i))
		_, _ = conn.Exec(ctx, fmt.Sprintf(`insert into public.log_%d select repeat('x', 1000) from generate_series(1, 1000)`, i))
		if n%20 == 0 {
			_, _ = conn.Exec(ctx, fmt.Sprintf(`truncate public.log_%d`, i))
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

const mib = 1 << 20

// TestIdleOutboxBesideABusyNeighbour proves F1 and F20: while unrelated tables
// are written hard, an idle outbox keeps no more than 64 MiB of log back and the
// relay no more memory; and one huge unrelated transaction, in front of a row,
// costs neither the connection nor the row.
// Case F2 of docs/guarantees.md.
func TestIdleOutboxBesideABusyNeighbour(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{Settings: map[string]string{"max_wal_size": "4GB"}})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "before")
	s.Settled(t)
	distance := func(from, to string) int {
		t.Helper()
		n, err := strconv.Atoi(s.DB.Query1(t, fmt.Sprintf(`select (%s - %s)::bigint from pg_replication_slots where slot_name = $1`, to, from), s.Slot()))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	serving, memory := walsender(t, s), p.ResidentMiB()
	first := s.DB.Query1(t, `select pg_current_wal_lsn()`)
	written := func() int { return distance(`'`+first+`'::pg_lsn`, `pg_current_wal_lsn()`) }
	confirms, last, peak := 0, "", memory
	stop := noise(t, s.DB)
	began := time.Now()
	rig.Eventually(t, 2*patience, "20 s and 320 MiB of noise", func() bool {
		peak = max(peak, p.ResidentMiB())
		if at := s.DB.Query1(t, `select confirmed_flush_lsn from pg_replication_slots where slot_name = $1`, s.Slot()); at != last {
			confirms, last = confirms+1, at
		}
		return time.Since(began) > 20*time.Second && written() > 320*mib
	})
	stop()
	rig.Eventually(t, patience, "no more than 64 MiB of log are kept back", func() bool { return distance(`confirmed_flush_lsn`, `pg_current_wal_flush_lsn()`) <= 64*mib })
	t.Logf("%d MiB written, %d confirms, memory %d MiB before and at most %d", written()/mib, confirms, memory, peak)
	if confirms < 3 {
		t.Errorf("%d confirms in %d MiB", confirms, written()/mib)
	}
	if peak > memory+32 {
		t.Errorf("memory grew from %d to %d MiB", memory, peak)
	}

	s.DB.Exec(t, `create table public.huge as select i, repeat('h', 100) as text from generate_series(1, 1000000) i`)
	s.DB.Exec(t, `update public.huge set text = text || 'x'`)
	s.Insert(t, "after")
	s.Settled(t)
	if after := walsender(t, s); after != serving || streams(p) != 1 {
		t.Errorf("walsender %s before, %s after, %d sessions", serving, after, streams(p))
	}
	if n := strings.Count(pg.Log(), fmt.Sprintf(`starting logical decoding for slot "%s"`, s.Slot())); n != 1 {
		t.Errorf("decoding was started %d times, want once", n)
	}
	ticks := 0
	rig.Eventually(t, patience, "the server may remove the log of the noise", func() bool {
		s.DB.Exec(t, `checkpoint`) // writes where decoding may begin anew
		s.Insert(t, "tick")
		ticks++
		return distance(`restart_lsn`, `pg_current_wal_flush_lsn()`) <= 64*mib
	})
	s.Settled(t)
	p.Stop()
	// No judge: its own slot would have to read all the noise.
	var keys []string
	for _, r := range s.Kafka.Dump(t, s.Topic) {
		keys = append(keys, string(r.Key))
	}
	slices.Sort(keys)
	if want := append([]string{"after", "before"}, slices.Repeat([]string{"tick"}, ticks)...); !slices.Equal(keys, want) {
		t.Fatalf("records of the keys %q, want %q", keys, want)
	}
}

// hammer has two backends commit single-row updates without waiting for the
// disk, each 7,500 a second, for this long. The channel has their errors.
func hammer(t *testing.T, db *harness.Database, long time.Duration) <-chan error {
	t.Helper()
	db.Exec(t, `create table public.hot (id int primary key, text text) with (fillfactor = 10); insert into public.hot values (0), (1)`)
	ended := make(chan error, 2)
	for i := range 2 {
		conn := db.Conn(t)
		exec(t, conn, `set synchronous_commit = off`)
		loop := fmt.Sprintf(`do $$ declare began timestamptz := clock_timestamp(); ahead float; begin
			for i in 1..10000000 loop
				update public.hot set text = rpad(i::text, 400, 'n') where id = %d;
				commit;
				if i %% 150 = 0 then
					exit when clock_timestamp() > began + interval '%d ms';
					ahead := i / 7500.0 - extract(epoch from clock_timestamp() - began);
					if ahead > 0 then perform pg_sleep(ahead); end if;
				end if;
			end loop; end $$`, i, long.Milliseconds())
		go func() {
			_, err := conn.PgConn().Exec(context.WithoutCancel(t.Context()), loop).ReadAll()
			ended <- err
		}()
	}
	return ended
}

// transactions a second that must be written beside the idle outbox.
const hammered = 12_000

// TestIdleOutboxBesideSmallTransactions proves that unrelated commits hold no log
// back where it is hardest: two
// backends commit 12,000 transactions a second, each of one row, to a table
// that nobody publishes, first in the outbox's own database and then in
// another. All the while the slot stays near the end of the log, the relay's
// memory stays as it is, and the row of every five seconds arrives.
//
// It is not parallel: the rate needs the machine.
// Cases F1, F2 of docs/guarantees.md.
func TestIdleOutboxBesideSmallTransactions(t *testing.T) {
	for _, major := range []int{14, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			harness.Need(t, harness.PostgresMajor(major))
			pg := harness.StartPostgres(t, harness.PostgresOptions{Major: major, Settings: map[string]string{"max_wal_size": "4GB"}})
			s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
			tr := s.Truth(t)
			p := s.Start(t)
			p.Ready()
			s.Insert(t, "before")
			s.Settled(t)
			beside := &neighbour{t: t, s: s, p: p, memory: p.ResidentMiB()}
			beside.write("own", s.DB)
			if err := tr.Read(t.Context()); err != nil { // in parts: its slot has to read all of it too
				t.Fatal(err)
			}
			beside.write("another", pg.CreateDatabase(t))
			s.Settled(t)
			p.Stop()
			rep := s.Judge(t, tr, nil, judge.Rules{NoLines: true})
			if want := 1 + beside.rows; rep.Rows != want || rep.Published != want || rep.Duplicates != 0 || streams(p) != 1 {
				t.Errorf("%d rows, %d published, %d repeated, %d sessions; want %d rows once in one session", rep.Rows, rep.Published, rep.Duplicates, streams(p), want)
			}
		})
	}
}

// neighbour is the noise beside an outbox, and what it did to it.
type neighbour struct {
	t      *testing.T
	s      *rig.Site
	p      *rig.Process
	memory int // MiB of the relay before it
	rows   int // written to the outbox meanwhile
}

// number reads one number from the site's database.
func (n *neighbour) number(sql string, args ...any) int {
	n.t.Helper()
	i, err := strconv.Atoi(n.s.DB.Query1(n.t, sql, args...))
	if err != nil {
		n.t.Fatal(err)
	}
	return i
}

// write makes the noise in a database for 30 s and looks at the outbox
// meanwhile.
func (n *neighbour) write(where string, db *harness.Database) {
	t := n.t
	t.Helper()
	const long, beat, kept = 30 * time.Second, 10 * time.Second / 3, 64 * mib
	const xids, wal = `select pg_snapshot_xmax(pg_current_snapshot())`, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`
	xid, lsn, began := n.number(xids), n.number(wal), time.Now()
	ended := hammer(t, db, long)
	distance, low, high, sent, samples := 0, n.memory, n.memory, 0, 0
	rig.Eventually(t, 2*patience, "the end of the noise", func() bool {
		if time.Since(began) > time.Duration(sent+1)*5*time.Second && sent < 5 {
			key := fmt.Sprintf("%s %d", where, sent)
			n.s.Insert(t, key)
			sent++
			rig.Eventually(t, 20*time.Second, "a row arrives during the noise", func() bool { return n.s.Count(t, "status = 2 and aggregate_id = '"+key+"'") == "1" })
		}
		distance = max(distance, n.number(`select (pg_current_wal_insert_lsn() - confirmed_flush_lsn)::bigint from pg_replication_slots where slot_name = $1`, n.s.Slot()))
		low, high, samples = min(low, n.p.ResidentMiB()), max(high, n.p.ResidentMiB()), samples+1
		return len(ended) == 2
	})
	took := time.Since(began)
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatalf("the noise ended: %v", err)
		}
	}
	n.rows += sent
	rate, written := float64(n.number(xids)-xid)/took.Seconds(), n.number(wal)-lsn
	bound := kept + int(float64(written)*beat.Seconds()/took.Seconds())
	t.Logf("%s database: %.0f transactions a second, %d MiB of log in %v; at most %d MiB unconfirmed (bound %d) in %d looks; memory %d MiB before, %d to %d",
		where, rate, written/mib, took, distance/mib, bound/mib, samples, n.memory, low, high)
	if rate < hammered || sent < 5 || written < bound+16*mib {
		t.Fatalf("%.0f transactions a second, %d MiB and %d rows, want %d, more than the bound, and 5: the noise has not bitten", rate, written/mib, sent, hammered)
	}
	if distance > bound {
		t.Errorf("%d MiB unconfirmed, want at most %d", distance/mib, bound/mib)
	}
	if low < n.memory-16 || high > n.memory+16 {
		t.Errorf("memory went from %d MiB to %d to %d", n.memory, low, high)
	}
}

// distances are what SQL and the metrics call the three numbers of a slot.
var distances = map[string]string{
	"slot_lag_bytes":           `pg_current_wal_flush_lsn() - confirmed_flush_lsn`,
	"slot_retained_wal_bytes":  `pg_current_wal_flush_lsn() - restart_lsn`,
	"slot_safe_wal_size_bytes": `safe_wal_size`,
}

// sameDistances waits until the metrics say what SQL says, and gives it.
func sameDistances(t *testing.T, s *rig.Site, p *rig.Process) map[string]int {
	t.Helper()
	agreed := map[string]int{}
	rig.Eventually(t, patience, "the metrics agree with SQL", func() bool {
		for name, sql := range distances {
			n, err := strconv.Atoi(s.DB.Query1(t, `select (`+sql+`)::bigint from pg_replication_slots where slot_name = $1`, s.Slot()))
			if err != nil {
				t.Fatal(err)
			}
			if n != int(sample(t, p, `outbox_relay_`+name+`{slot="`+s.Slot()+`"}`)) {
				return false
			}
			agreed[name] = n
		}
		return true
	})
	return agreed
}

// TestBothDistancesBehindAnOpenTransaction proves that the two distances are
// told apart: a transaction that stays open makes the server keep its log,
// which the metrics show to the byte, while the relay is not behind at all;
// also after a restart of it.
// Case F61 of docs/guarantees.md.
func TestBothDistancesBehindAnOpenTransaction(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{Settings: map[string]string{"max_slot_wal_keep_size": "1GB", "max_wal_size": "2GB", "autovacuum": "off"}})
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
	tr := s.Truth(t)
	p := s.Start(t)
	p.Ready()
	s.Insert(t, "before")
	s.Settled(t)
	holder := s.DB.Conn(t)
	exec(t, holder, `begin; insert into public.outbox (aggregate_id, payload) values ('open', 'hi')`)
	s.DB.Exec(t, `create table public.filler as select repeat('x', 1900) from generate_series(1, 60000)`)
	s.Drained(t) // a quiet relay would confirm the noise within a minute
	look := func(when string) {
		t.Helper()
		var d map[string]int
		rig.Eventually(t, patience, when+": the relay is not behind", func() bool {
			d = sameDistances(t, s, p)
			return d["slot_lag_bytes"] <= mib
		})
		t.Logf("%s: %v", when, d)
		if d["slot_retained_wal_bytes"] < 100_000_000 || d["slot_safe_wal_size_bytes"] <= 0 {
			t.Errorf("%s: %v; want 100 MB retained and some left", when, d)
		}
	}
	look("open")
	p.Stop()
	p = s.Start(t)
	p.Ready()
	look("after a restart")
	if got := s.Count(t, "aggregate_id = 'open'"); got != "0" {
		t.Fatalf("%s rows: the transaction has ended", got)
	}
	exec(t, holder, `commit`)
	s.Insert(t, "after")
	s.Settled(t)
	p.Stop()
	whole(t, s.Judge(t, tr, nil, judge.Rules{NoLines: true}))
}
