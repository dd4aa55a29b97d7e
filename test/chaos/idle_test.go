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
