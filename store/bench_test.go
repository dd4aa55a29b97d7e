package store_test

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

const benchRows, benchBatch = 200_000, 500

// turnConn counts round trips: reads that follow a write.
type turnConn struct {
	net.Conn
	wrote *atomic.Bool
	turns *atomic.Int64
}

func (c turnConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

func (c turnConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.wrote.Swap(false) {
		c.turns.Add(1)
	}
	return n, err
}

// benchTable makes the outbox with its rows and gives their events.
func benchTable(b *testing.B) (*harness.Database, []*outbox.Event) {
	b.Helper()
	db := harness.SharedPostgres(b, 0).CreateDatabase(b)
	if _, err := migrations.Up(b.Context(), parse(b, db.DSN())); err != nil {
		b.Fatal(err)
	}
	ddl, err := migrations.OutboxDDL(migrations.OutboxOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range ddl {
		db.Exec(b, d)
	}
	db.Exec(b, `insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
		select 'order', 'key ' || i, 'created', convert_to(repeat('x', 200), 'UTF8') from generate_series(1, `+strconv.Itoa(benchRows)+`) i`)
	db.Exec(b, `vacuum analyze public.outbox`)
	rows, err := db.Conn(b).Query(b.Context(), `select id::text, event_id::text from public.outbox order by id`)
	if err != nil {
		b.Fatal(err)
	}
	events := make([]*outbox.Event, 0, benchRows)
	var id, eventID string
	if _, err := pgx.ForEachRow(rows, []any{&id, &eventID}, func() error {
		events = append(events, event(outbox.LSN(200+len(events)), 0, eventID, id))
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return db, events
}

// BenchmarkSettle marks 200,000 rows SENT in batches of 500: once through
// Settle, once by the barest statement that could do it, without fence,
// position, locks that skip, event ids or savepoint. Read the two beside one
// another; the numbers of two machines do not compare.
func BenchmarkSettle(b *testing.B) {
	b.Run("settle", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			db, events := benchTable(b)
			var turns atomic.Int64
			st := benchStore(b, db, &turns)
			turns.Store(0)
			b.StartTimer()
			start := time.Now()
			for i := 0; i < benchRows; i += benchBatch {
				benchSettle(b, st, events[i:i+benchBatch])
			}
			report(b, start, turns.Load())
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			db, _ := benchTable(b)
			conn := db.Conn(b)
			ids := make([]int64, benchBatch)
			b.StartTimer()
			start := time.Now()
			for i := 0; i < benchRows; i += benchBatch {
				for j := range ids {
					ids[j] = int64(i + j + 1)
				}
				if _, err := conn.Exec(b.Context(), `update public.outbox set status = 2, sent_at = now() where id = any($1::int8[])`, ids); err != nil {
					b.Fatal(err)
				}
			}
			report(b, start, benchRows/benchBatch)
		}
	})
}

// report gives the last round's numbers.
func report(b *testing.B, start time.Time, turns int64) {
	b.Helper()
	b.ReportMetric(benchRows/time.Since(start).Seconds(), "rows/s")
	b.ReportMetric(float64(turns)/(benchRows/benchBatch), "round-trips/batch")
}

func benchStore(b *testing.B, db *harness.Database, turns *atomic.Int64) *store.Store {
	b.Helper()
	cfg := store.Config{Conn: parse(b, db.DSN()), Relay: "default", Slot: "s", Table: defaultTable(), Mode: store.WriteStatus}
	dial := cfg.Conn.DialFunc
	var wrote atomic.Bool
	cfg.Conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return turnConn{c, &wrote, turns}, err
	}
	st, err := store.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close(context.Background()) })
	if _, err := st.TakeOver(b.Context(), store.Takeover{SystemID: systemID, Timeline: 1, Start: 100}); err != nil {
		b.Fatal(err)
	}
	return st
}

func benchSettle(b *testing.B, st *store.Store, events []*outbox.Event) {
	b.Helper()
	outcomes := make([]outbox.Outcome, len(events))
	for i, e := range events {
		outcomes[i] = outbox.Outcome{Ticket: outbox.Ticket(i + 1), Event: e, Verdict: outbox.Acked}
	}
	last := events[len(events)-1].Position.Commit
	done, err := st.Settle(b.Context(), store.Batch{Progress: progress(last), Outcomes: outcomes})
	if err != nil || done.Shown != len(events) {
		b.Fatalf("settled %+v, %v", done, err)
	}
}
