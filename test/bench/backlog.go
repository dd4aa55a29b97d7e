package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// makePayload builds a document of a given size. Half of it is the text that
// such documents repeat, half is digits that do not compress.
const makePayload = `create function bench_payload(n bigint, bytes int) returns bytea language sql immutable as $$
select convert_to(left(format('{"order_id":%s,"customer":{"id":%s,"name":"Customer %s","segment":"retail"},"currency":"EUR","lines":[', n, n % 10007, n % 10007)
  || (select string_agg(format('{"sku":"%s","quantity":%s,"unit_price":"19.90"},', md5(n::text || i), i), '') from generate_series(1, 1 + bytes / 75) i), bytes), 'UTF8')
$$`

// makeLoader writes rows first to first + rows - 1, some in each transaction.
const makeLoader = `create procedure bench_load(first bigint, rows int, per_transaction int, bytes int) language plpgsql as $$
declare at bigint := first;
begin
  while at < first + rows loop
    insert into public.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
      select 'bench', (n % 10007)::text, 'OrderPlaced', bench_payload(n, bytes), '{"source": "bench", "schema": "order.v1"}'
        from generate_series(at, least(at + per_transaction, first + rows) - 1) n;
    commit;
    at := at + per_transaction;
  end loop;
end $$`

const (
	loaders   = 4      // connections that load; more only wait for each other on two cores
	loadChunk = 10_000 // rows of one call, for the progress bar
)

// backlog is a filled outbox in a database of its own.
type backlog struct {
	*database
	rows  int
	shape int        // rows in a transaction
	base  string     // slot that stands before the first row
	start outbox.LSN // where base stands
	last  outbox.LSN // inside the last transaction, behind its rows: what confirms more has it all
	dirty bool       // statuses were written since the last reset
}

// loadBacklog makes and fills a database; loaded is told of rows written.
func loadBacklog(ctx context.Context, b *bench, shape int, loaded func(rows int)) (*backlog, error) {
	d, err := createDatabase(ctx, b.pg, fmt.Sprintf("bench_%d", shape))
	if err != nil {
		return nil, err
	}
	l := &backlog{database: d, rows: b.o.rows, shape: shape}
	if l.base, err = d.freshSlot(ctx, ""); err != nil {
		return nil, err
	}
	if l.start, err = askLSN(ctx, d, "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1", l.base); err != nil {
		return nil, err
	}
	if err := l.fill(ctx, b.o.payload, loaded); err != nil {
		return nil, fmt.Errorf("loading %d rows: %w", l.rows, err)
	}
	for _, sql := range []string{"vacuum analyze public.outbox", "checkpoint"} {
		if err := d.exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// fill writes all rows: the bulk over several connections, then the last
// transaction alone, so that its position is known.
func (l *backlog) fill(ctx context.Context, bytes int, loaded func(int)) error {
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, loaders)
	for i := range loaders {
		wg.Go(func() {
			errs[i] = l.load(ctx, &next, bytes, func(rows int) {
				mu.Lock()
				defer mu.Unlock()
				loaded(rows)
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	loaded(l.shape)
	return l.finish(ctx, bytes)
}

// load writes chunk after chunk over one connection; next is where the next
// chunk begins.
func (l *backlog) load(ctx context.Context, next *atomic.Int64, bytes int, loaded func(int)) error {
	conn, err := l.pg.Connect(ctx, l.name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	// The loading is not measured; only its WAL is.
	if _, err := conn.Exec(ctx, "set synchronous_commit = off"); err != nil {
		return err
	}
	bulk := l.rows - l.shape
	for {
		first := int(next.Add(loadChunk)) - loadChunk
		if first >= bulk {
			return nil
		}
		rows := min(loadChunk, bulk-first)
		// Without parameters it goes as a simple query, in which a procedure may commit.
		if _, err := conn.Exec(ctx, fmt.Sprintf("call bench_load(%d, %d, %d, %d)", first, rows, l.shape, bytes)); err != nil {
			return err
		}
		loaded(rows)
	}
}

// finish writes the last transaction and checks that every row is there.
func (l *backlog) finish(ctx context.Context, bytes int) error {
	tx, err := l.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	_, err = tx.Exec(ctx, `insert into public.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
		select 'bench', (n % 10007)::text, 'OrderPlaced', bench_payload(n, $2), '{"source": "bench", "schema": "order.v1"}'
		from generate_series(1, $1::int) n`, l.shape, bytes)
	if err != nil {
		return err
	}
	if l.last, err = askLSN(ctx, l.database, "select pg_current_wal_insert_lsn()::text"); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	n, err := ask[int](ctx, l.database, "select count(*) from public.outbox")
	if err == nil && n != l.rows {
		err = fmt.Errorf("%d rows are there, want %d", n, l.rows)
	}
	return err
}

// reset makes every row READY again. Its WAL lies behind the backlog's, where
// no run gets to while it is measured.
func (l *backlog) reset(ctx context.Context) error {
	if !l.dirty {
		return nil
	}
	for _, sql := range []string{
		"update public.outbox set status = 0, sent_at = null where status <> 0",
		"vacuum full analyze public.outbox", // as when first written: room on every page, nothing dead
	} {
		if err := l.exec(ctx, sql); err != nil {
			return err
		}
	}
	l.dirty = false
	return nil
}
