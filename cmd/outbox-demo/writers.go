package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
)

const (
	writerCount    = 8
	aggregateCount = 50
	rollbacks      = .05              // of the transactions
	writeLimit     = 20 * time.Second // of one transaction
)

// aggregates is the application's own table: the row's lock, held until the
// commit, makes the order of numbers the order of commits.
const createAggregates = `create table public.aggregate (id text primary key, kind text not null, seq bigint not null default 0)`

// insert takes the next number of an aggregate and writes the event.
const insert = `
with next as (update public.aggregate set seq = seq + 1 where id = $1 returning kind, seq)
insert into public.outbox (event_id, aggregate_type, aggregate_id, event_type, payload)
select $2, kind, $1, kind || '.changed', convert_to(json_build_object('aggregate', $1::text, 'seq', seq, 'note', $3::text)::text, 'UTF8') from next`

// writers are the application: transactions of one to five rows over a set of
// aggregates, at a paced rate, some of them rolled back.
type writers struct {
	db         *database
	ledger     *meter.Ledger
	pace       *pace
	rolledBack atomic.Int64 // rows
}

// aggregateIDs are in the order in which transactions lock them.
func aggregateIDs() []string {
	ids := make([]string, aggregateCount)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%02d", kinds[i%len(kinds)], i)
	}
	slices.Sort(ids)
	return ids
}

// Prepare makes the aggregates.
func (w *writers) Prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, createAggregates); err != nil {
		return fmt.Errorf("creating the aggregates' table: %w", err)
	}
	for _, id := range aggregateIDs() {
		kind, _, _ := strings.Cut(id, "-")
		if _, err := conn.Exec(ctx, "insert into public.aggregate (id, kind) values ($1, $2)", id, kind); err != nil {
			return fmt.Errorf("creating aggregate %s: %w", id, err)
		}
	}
	return nil
}

// Run writes until ctx ends; the last transactions are finished.
func (w *writers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range writerCount {
		g.Go(func() error { return w.one(ctx, rand.New(rand.NewPCG(uint64(i), 0x0b0c))) })
	}
	return g.Wait()
}

func (w *writers) one(ctx context.Context, rnd *rand.Rand) error {
	conn, err := w.db.Connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	ids := aggregateIDs()
	for {
		chosen := make([]string, 1+rnd.IntN(5))
		if !w.pace.Wait(ctx, len(chosen)) {
			return nil
		}
		for i := range chosen {
			chosen[i] = ids[rnd.IntN(len(ids))] // the same one twice is welcome
		}
		slices.Sort(chosen) // one order of locks, so no deadlock
		end := (*writers).commit
		if rnd.Float64() < rollbacks {
			end = (*writers).rollback
		}
		if err := w.transaction(ctx, conn, chosen, end); err != nil {
			return err
		}
	}
}

// transaction writes one event for each aggregate and ends as told. It is not
// given up when ctx ends: a COMMIT without an answer could not be judged.
func (w *writers) transaction(ctx context.Context, conn *pgx.Conn, aggregates []string, end func(*writers, context.Context, pgx.Tx, []meter.ID) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	batch := &pgx.Batch{}
	ids := make([]meter.ID, len(aggregates))
	for i, a := range aggregates {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("making an event id: %w", err)
		}
		ids[i] = meter.ID(id)
		batch.Queue(insert, a, id, note)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("writing %d events: %w", len(aggregates), err)
	}
	return end(w, ctx, tx, ids)
}

// note makes a payload of about 200 bytes.
var note = strings.Repeat("outbox ", 22)

func (w *writers) commit(ctx context.Context, tx pgx.Tx, ids []meter.ID) error {
	w.ledger.Committing(ids, time.Now())
	if err := tx.Commit(ctx); err != nil {
		w.ledger.Abandoned(ids)
		return fmt.Errorf("committing: %w", err)
	}
	w.ledger.Committed(ids)
	return nil
}

func (w *writers) rollback(ctx context.Context, tx pgx.Tx, ids []meter.ID) error {
	w.rolledBack.Add(int64(len(ids)))
	if err := tx.Rollback(ctx); err != nil {
		return fmt.Errorf("rolling back: %w", err)
	}
	return nil
}

// pace hands out times to write at, so that all writers together keep a rate.
type pace struct {
	gap  time.Duration // between two rows
	mu   sync.Mutex
	next time.Time
}

// newPace keeps the rate of committed rows: what is rolled back comes on top.
func newPace(rate int) *pace {
	return &pace{gap: time.Duration(float64(time.Second) * (1 - rollbacks) / float64(rate))}
}

// mostBehind is how much is made good after a stall; more is forgotten, or a
// slow machine would end in one burst.
const mostBehind = 250 * time.Millisecond

// Wait returns when it is time for n rows, false when ctx has ended.
func (p *pace) Wait(ctx context.Context, n int) bool {
	now := time.Now()
	p.mu.Lock()
	if p.next.Before(now.Add(-mostBehind)) {
		p.next = now
	}
	at := p.next
	p.next = p.next.Add(p.gap * time.Duration(n))
	p.mu.Unlock()
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
