package judge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// writer is one application: one connection, one transaction at a time.
type writer struct {
	workload Workload
	number   int
	random   *rand.Rand
	zipf     *rand.Zipf
	conn     *pgx.Conn
	prepared string // a prepared transaction whose end is open; "" = none
	journal  Journal
}

// run writes one transaction per ticket. A lost connection is part of the
// game; any other error ends the writer.
func (w *writer) run(ctx context.Context, tickets <-chan int) error {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for n := range tickets {
		if err := w.reconnect(ctx); err != nil {
			return fmt.Errorf("connecting writer %d: %w", w.number, err)
		}
		if err := w.transaction(ctx); err != nil && !lost(err) {
			return fmt.Errorf("writing transaction %d: %w", n, err)
		}
		if w.workload.Done != nil {
			w.workload.Done(n + 1)
		}
	}
	if err := w.reconnect(ctx); err != nil {
		return fmt.Errorf("connecting writer %d: %w", w.number, err)
	}
	return ctx.Err()
}

// reconnect gives the writer a connection, trying until ctx ends, and ends a
// prepared transaction that a crash left open.
func (w *writer) reconnect(ctx context.Context) error {
	for {
		if err := w.dial(ctx); err != nil {
			return err
		}
		if w.prepared == "" {
			return nil
		}
		_, err := w.conn.Exec(ctx, "commit prepared '"+w.prepared+"'")
		if err == nil || !lost(err) { // not there any more: it had been committed
			w.prepared = ""
			return nil
		}
		_ = w.close(ctx, err)
	}
}

func (w *writer) dial(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for w.conn == nil || w.conn.IsClosed() {
		conn, err := w.workload.Connect(ctx)
		if err == nil {
			w.conn = conn
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
	return nil
}

// lost says whether the connection went, and not the statement. The server's
// own farewells are of class 57P.
func lost(err error) bool {
	var e *pgconn.PgError
	return !errors.As(err, &e) || e.Code[:3] == "57P"
}

// attempt is one transaction that is being written.
type attempt struct {
	aggregates []int
	next       map[int]int64 // last number of each aggregate
	kept, gone []string      // event ids that would commit; that were rolled back already
}

// transaction writes one and books its end.
func (w *writer) transaction(ctx context.Context) error {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return w.close(ctx, err)
	}
	a := &attempt{next: map[int]int64{}}
	if err := w.fill(ctx, tx, a); err != nil {
		w.journal.Aborted = append(w.journal.Aborted, append(a.kept, a.gone...)...)
		_ = tx.Rollback(ctx)
		return w.close(ctx, err)
	}
	w.journal.Aborted = append(w.journal.Aborted, a.gone...)
	if w.chance(100) {
		w.journal.Aborted = append(w.journal.Aborted, a.kept...)
		return w.close(ctx, tx.Rollback(ctx))
	}
	if err := w.commit(ctx, tx); err != nil {
		w.journal.Unknown = append(w.journal.Unknown, a.kept...)
		return w.close(ctx, err)
	}
	w.journal.Committed = append(w.journal.Committed, a.kept...)
	return nil
}

// close gives up the connection after an error.
func (w *writer) close(ctx context.Context, err error) error {
	if err != nil {
		_ = w.conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

// commit commits, now and then in two phases. An error leaves the end open.
func (w *writer) commit(ctx context.Context, tx pgx.Tx) error {
	if !w.workload.TwoPhase || !w.chance(20) {
		return tx.Commit(ctx)
	}
	w.prepared = uuid.NewString()
	if _, err := w.conn.Exec(ctx, "prepare transaction '"+w.prepared+"'"); err != nil {
		return err
	}
	_, err := w.conn.Exec(ctx, "commit prepared '"+w.prepared+"'")
	if err == nil {
		w.prepared = ""
	}
	return err
}

// chance is true this many times in a thousand.
func (w *writer) chance(permille int) bool { return w.random.IntN(1000) < permille }

// fill writes the rows of a transaction.
func (w *writer) fill(ctx context.Context, tx pgx.Tx, a *attempt) error {
	if err := w.lock(ctx, tx, a); err != nil {
		return err
	}
	if w.chance(20) { // a long one: commit order is not start order
		if _, err := tx.Exec(ctx, "select pg_sleep($1)", 0.05+0.2*w.random.Float64()); err != nil {
			return err
		}
	}
	if err := w.body(ctx, tx, a); err != nil {
		return err
	}
	for _, n := range a.aggregates {
		if _, err := tx.Exec(ctx, "update workload_counter set n = $2 where aggregate = $1", n, a.next[n]); err != nil {
			return err
		}
	}
	return nil
}

// lock takes one to three aggregates in ascending order, so that writers never
// deadlock and the numbers of an aggregate follow the order of commits.
func (w *writer) lock(ctx context.Context, tx pgx.Tx, a *attempt) error {
	for range 1 + w.random.IntN(3) {
		if n := int(w.zipf.Uint64()); !slices.Contains(a.aggregates, n) {
			a.aggregates = append(a.aggregates, n)
		}
	}
	slices.Sort(a.aggregates)
	for _, aggregate := range a.aggregates {
		var n int64
		err := tx.QueryRow(ctx, "select n from workload_counter where aggregate = $1 for update", aggregate).Scan(&n)
		if err != nil {
			return err
		}
		a.next[aggregate] = n
	}
	return nil
}

// body picks the shape of the transaction.
func (w *writer) body(ctx context.Context, tx pgx.Tx, a *attempt) error {
	rows := 1 + w.random.IntN(w.workload.MaxRows)
	switch dice := w.random.IntN(1000); {
	case dice < 150:
		return w.savepoints(ctx, tx, a, rows)
	case dice < 200:
		return w.copy(ctx, tx, a, rows)
	case dice < 210 && w.workload.BigRows > 0:
		return w.copy(ctx, tx, a, w.workload.BigRows)
	case dice < 260:
		return w.insertAndDelete(ctx, tx, a, rows)
	default:
		return w.insert(ctx, tx, a, rows)
	}
}

// savepoints writes three parts, of which some are rolled back.
func (w *writer) savepoints(ctx context.Context, tx pgx.Tx, a *attempt, rows int) error {
	for range 3 {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		before := len(a.kept)
		numbers := map[int]int64{}
		for k, v := range a.next {
			numbers[k] = v
		}
		if err := w.insert(ctx, inner, a, 1+rows/3); err != nil {
			return err
		}
		if w.chance(500) {
			if err := inner.Commit(ctx); err != nil {
				return err
			}
			continue
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		a.gone = append(a.gone, a.kept[before:]...)
		a.kept, a.next = a.kept[:before:before], numbers
	}
	return nil
}

// insertAndDelete leaves nothing in the table; the log has the rows all the same.
func (w *writer) insertAndDelete(ctx context.Context, tx pgx.Tx, a *attempt, rows int) error {
	before := len(a.kept)
	if err := w.insert(ctx, tx, a, rows); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "delete from "+w.workload.Table+" where event_id = any($1::uuid[])", a.kept[before:])
	return err
}

var columns = []string{"event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "message_key", "payload", "headers"}

// copy writes by COPY.
func (w *writer) copy(ctx context.Context, tx pgx.Tx, a *attempt, rows int) error {
	table := pgx.Identifier(bytesFields(w.workload.Table))
	_, err := tx.CopyFrom(ctx, table, columns, pgx.CopyFromSlice(rows, func(int) ([]any, error) {
		return w.event(a), nil
	}))
	return err
}

func bytesFields(table string) []string {
	var parts []string
	for _, p := range bytes.Split([]byte(table), []byte(".")) {
		parts = append(parts, string(bytes.Trim(p, `"`)))
	}
	return parts
}

// insert writes row by row, in one round trip.
func (w *writer) insert(ctx context.Context, tx pgx.Tx, a *attempt, rows int) error {
	var batch pgx.Batch
	for range rows {
		batch.Queue("insert into "+w.workload.Table+` (event_id, aggregate_type, aggregate_id, event_type, topic, message_key, payload, headers)
			values ($1, $2, $3, $4, $5, $6, $7, $8)`, w.event(a)...)
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// event makes the values of one row, in the order of columns.
func (w *writer) event(a *attempt) []any {
	n := a.aggregates[w.random.IntN(len(a.aggregates))]
	a.next[n]++
	var b [16]byte
	for i := range b {
		b[i] = byte(w.random.Uint32())
	}
	id, _ := uuid.FromBytes(b[:])
	a.kept = append(a.kept, id.String())
	aggregate, key, topic := w.workload.aggregate(n)
	owner := &aggregate
	if w.chance(20) { // a row without any key keeps no order
		owner, key = nil, nil
	}
	headers := fmt.Sprintf(`{"traceparent": "00-%x-%x-01", "n": %d, "text": "\u2603"}`, b, b[:8], a.next[n])
	return []any{id, "order", owner, "changed", topic, key, w.payload(n, a.next[n]), headers}
}

// payload is JSON that names the aggregate and its number, or an awkward one.
func (w *writer) payload(aggregate int, n int64) []byte {
	text := fmt.Appendf(nil, `{"aggregate": %d, "n": %d, "writer": %d, "pad": "%0*d"}`, aggregate, n, w.number, w.random.IntN(200), 0)
	switch dice := w.random.IntN(1000); {
	case dice < 10:
		return append(text, bytes.Repeat([]byte("x"), w.workload.LargeBytes)...)
	case dice < 15 && w.workload.PoisonBytes > 0:
		return append(text, bytes.Repeat([]byte("y"), w.workload.PoisonBytes)...)
	case dice < 25:
		return nil
	case dice < 35:
		return []byte{}
	case dice < 45:
		return []byte{0, 255, '\'', '\\', '\n', 0xC3}
	default:
		return text
	}
}
