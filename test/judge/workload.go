package judge

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Workload writes to an outbox as many applications at once would. The same
// seed gives each writer the same plan; how the writers mix is up to the
// server.
type Workload struct {
	// Connect opens a connection of a role that may write; it is asked again
	// after a connection was lost, and may then lead to another server.
	Connect func(context.Context) (*pgx.Conn, error)
	Table   string // as in SQL; "" = public.outbox

	Seed         uint64
	Writers      int      // 0 = 8
	Transactions int      // of all writers together; 0 = 400
	Aggregates   int      // 0 = 100
	Topics       []string // each aggregate has one of them; none = null, the route decides
	MaxRows      int      // of an ordinary transaction; 0 = 20
	BigRows      int      // of the one big transaction in a hundred; 0 = none
	LargeBytes   int      // of the one large payload in a hundred; 0 = 100,000
	PoisonBytes  int      // of one payload in two hundred, to be refused; 0 = none
	TwoPhase     bool     // some transactions are prepared first
	Rate         int      // transactions a second at most; 0 = no bound
	// Done is called after each transaction, by any writer; nil = nobody asks.
	Done func(transactions int)
}

// Journal is what the writers know in the end: event ids whose COMMIT was
// acknowledged, which were rolled back, and whose COMMIT got no answer.
type Journal struct {
	Committed, Aborted, Unknown []string
}

func (w Workload) complete() Workload {
	w.Writers = or(w.Writers, 8)
	w.Transactions = or(w.Transactions, 400)
	w.Aggregates = or(w.Aggregates, 100)
	w.MaxRows = or(w.MaxRows, 20)
	w.LargeBytes = or(w.LargeBytes, 100_000)
	if w.Table == "" {
		w.Table = "public.outbox"
	}
	return w
}

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Run writes until all transactions are done, or ctx ends, and gives the
// journal. It makes the tables workload_counter and workload_noise where they
// are missing. It does not return before its goroutines have ended.
func (w Workload) Run(ctx context.Context) (Journal, error) {
	w = w.complete()
	if err := w.prepare(ctx); err != nil {
		return Journal{}, fmt.Errorf("preparing the workload: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tickets := w.tickets(ctx)
	writers := make([]*writer, w.Writers)
	errs := make([]error, w.Writers)
	var writing, noise sync.WaitGroup
	for i := range writers {
		writers[i] = &writer{workload: w, number: i, random: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
		writers[i].zipf = rand.NewZipf(writers[i].random, 1.2, 4, uint64(w.Aggregates-1))
		writing.Go(func() {
			if errs[i] = writers[i].run(ctx, tickets); errs[i] != nil {
				cancel()
			}
		})
	}
	noise.Go(func() { w.noise(ctx) })
	writing.Wait()
	cancel()
	noise.Wait()
	var j Journal
	for _, one := range writers {
		j.Committed = append(j.Committed, one.journal.Committed...)
		j.Aborted = append(j.Aborted, one.journal.Aborted...)
		j.Unknown = append(j.Unknown, one.journal.Unknown...)
	}
	return j, errors.Join(errs...)
}

func (w Workload) prepare(ctx context.Context) error {
	conn, err := w.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const tables = `create table if not exists workload_counter (aggregate int primary key, n bigint not null);
		create table if not exists workload_noise (id bigint generated always as identity primary key, text text)`
	if _, err := conn.PgConn().Exec(ctx, tables).ReadAll(); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "insert into workload_counter select i, 0 from generate_series(0, $1::int) i on conflict do nothing", w.Aggregates-1)
	return err
}

// tickets hands out the numbers of transactions, at most Rate a second. It is
// closed when none is left or ctx has ended; its goroutine ends with ctx at
// the latest, and Run ends ctx.
func (w Workload) tickets(ctx context.Context) <-chan int {
	tickets := make(chan int)
	go func() {
		defer close(tickets)
		var pace <-chan time.Time
		if w.Rate > 0 {
			ticker := time.NewTicker(time.Second / time.Duration(w.Rate))
			defer ticker.Stop()
			pace = ticker.C
		}
		for i := range w.Transactions {
			if pace != nil {
				select {
				case <-pace:
				case <-ctx.Done():
					return
				}
			}
			select {
			case tickets <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	return tickets
}

// noise writes to a table that nobody publishes, some hundred times a second
// at most, until ctx ends. Its failures are nobody's.
func (w Workload) noise(ctx context.Context) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if conn == nil || conn.IsClosed() {
			conn, _ = w.Connect(ctx)
		}
		if conn != nil {
			_, _ = conn.Exec(ctx, "insert into workload_noise (text) select repeat('noise', i) from generate_series(1, 5) i")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

// aggregate gives what belongs to an aggregate for good: its id (the first two
// are awkward), its key and its topic.
func (w Workload) aggregate(n int) (id string, key, topic *string) {
	id = fmt.Sprintf("a-%d", n)
	switch n {
	case 0:
		id = ""
	case 1:
		id = "ключ-☃-'\"\\"
	}
	if n%3 == 2 {
		k := "key of " + id
		key = &k
	}
	if len(w.Topics) > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(id))
		topic = &w.Topics[int(h.Sum32())%len(w.Topics)]
	}
	return id, key, topic
}
