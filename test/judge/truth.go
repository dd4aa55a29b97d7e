package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Row is one committed row of the outbox, as the server decoded it.
type Row struct {
	Rank      int    // its place among all rows in commit order, from 0
	Commit    string // end of its transaction, for messages
	Index     int    // its place among the rows of its transaction, from 0
	ID        string // primary key
	EventID   string
	Topic     *string // nil: the route decides
	Key       []byte  // message_key, else aggregate_id; nil when both are null
	Payload   []byte  // nil is null
	Scheduled bool    // deliver_after is set, so the row keeps no order
	Wire      *Wire   // what else its record carries; nil is not judged
}

// Columns are the names in the outbox table. "" = not there.
type Columns struct {
	ID, EventID, AggregateID, Key, Topic, Payload, DeliverAfter, Status string
	// Judged where the table has them.
	EventType, ContentType, Headers, CreatedAt string
}

// DefaultColumns are those of the product's own table.
var DefaultColumns = Columns{
	ID: "id", EventID: "event_id", AggregateID: "aggregate_id", Key: "message_key", Topic: "topic",
	Payload: "payload", DeliverAfter: "deliver_after", Status: "status",
	EventType: "event_type", ContentType: "content_type", Headers: "headers", CreatedAt: "created_at",
}

// TruthOptions says what is watched. The zero value is public.outbox.
type TruthOptions struct {
	Slot    string   // "" = judge_truth; a slot of that name must not exist
	Tables  []string // schema.table without quotes; none = public.outbox; partitions are named one by one
	Columns *Columns // nil = DefaultColumns
	// Failover makes the slot one that standbys keep (PostgreSQL 17 and later).
	// Read must then be called once, at the end, on the last primary: what an
	// old primary told might never have reached the new one.
	Failover bool
}

// batch bounds the changes of one call; a call never ends inside a transaction.
const batch = 20_000

// Truth collects the committed rows. It is not safe for concurrent use.
type Truth struct {
	options TruthOptions
	columns Columns
	connect func(context.Context) (*pgx.Conn, error)
	last    lsn // end of the last transaction read
	rows    []Row
}

// OpenTruth makes the slot; rows that commit from now on are seen. connect
// opens a plain connection as a role with REPLICATION; each call uses a fresh
// one, so that it may lead to another server after a failover.
func OpenTruth(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), o TruthOptions) (*Truth, error) {
	if o.Slot == "" {
		o.Slot = "judge_truth"
	}
	if len(o.Tables) == 0 {
		o.Tables = []string{"public.outbox"}
	}
	t := &Truth{options: o, columns: DefaultColumns, connect: connect}
	if o.Columns != nil {
		t.columns = *o.Columns
	}
	sql := "select pg_create_logical_replication_slot($1, 'test_decoding')"
	if o.Failover {
		sql = "select pg_create_logical_replication_slot($1, 'test_decoding', false, false, true)"
	}
	if err := t.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, o.Slot)
		return err
	}); err != nil {
		return nil, fmt.Errorf("creating slot %s: %w", o.Slot, err)
	}
	return t, nil
}

// Dial gives a connect function for OpenTruth from a DSN.
func Dial(dsn string) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }
}

func (t *Truth) with(ctx context.Context, use func(*pgx.Conn) error) error {
	conn, err := t.connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting for the truth: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return use(conn)
}

// Read takes in all that committed up to now. It may be called often, which
// lets the server give up the log it keeps.
func (t *Truth) Read(ctx context.Context) error {
	err := t.with(ctx, func(conn *pgx.Conn) error {
		for {
			n, err := t.readBatch(ctx, conn)
			if err != nil || n < batch {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("reading the truth: %w", err)
	}
	return nil
}

// Rows are the rows read so far, in commit order. The caller does not change
// them.
func (t *Truth) Rows() []Row { return t.rows }

// Close drops the slot.
func (t *Truth) Close(ctx context.Context) error {
	return t.with(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "select pg_drop_replication_slot($1)", t.options.Slot); err != nil {
			return fmt.Errorf("dropping slot %s: %w", t.options.Slot, err)
		}
		return nil
	})
}

// readBatch takes some whole transactions and says how many changes came.
func (t *Truth) readBatch(ctx context.Context, conn *pgx.Conn) (changes int, err error) {
	const sql = `select lsn::text, data from pg_logical_slot_get_changes($1, null, $2,
		'include-xids', '0', 'skip-empty-xacts', '1', 'include-timestamp', '1')`
	if _, err := conn.Exec(ctx, "set timezone = 'UTC'; set datestyle = 'ISO'"); err != nil {
		return 0, err
	}
	rows, err := conn.Query(ctx, sql, t.options.Slot, batch)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var tx transaction
	for rows.Next() {
		var at, data string
		if err := rows.Scan(&at, &data); err != nil {
			return 0, err
		}
		changes++
		switch {
		case data == "BEGIN":
			tx.rows, tx.inserts = tx.rows[:0], 0
		case strings.HasPrefix(data, "COMMIT"):
			if err := t.commit(at, data, tx); err != nil {
				return 0, err
			}
		default:
			if err = t.change(data, &tx); err != nil {
				return 0, err
			}
		}
	}
	return changes, rows.Err()
}

// transaction is what was read of one.
type transaction struct {
	rows    []Row
	inserts int // rows in other states than READY too
}

// commit takes a transaction in, once: after a crash of the server the slot
// may tell the last ones again. word is COMMIT (at ...).
func (t *Truth) commit(at, word string, tx transaction) error {
	end, err := parseLSN(at)
	if err != nil {
		return err
	}
	committed, err := time.Parse("COMMIT (at "+pgTime+")", word)
	if err != nil {
		return fmt.Errorf("reading the time of a commit: %w", err)
	}
	if end <= t.last {
		return nil
	}
	for i, r := range tx.rows {
		r.Rank, r.Commit, r.Index = len(t.rows), at, i
		r.Wire.committed(t.last, end, committed)
		t.rows = append(t.rows, r)
	}
	t.last = end
	return nil
}

// change adds the row that an insert made; all else is passed over.
func (t *Truth) change(data string, tx *transaction) error {
	in, ok, err := parseInsert(data)
	if err != nil || !ok || !slices.Contains(t.options.Tables, in.table) {
		return err
	}
	index := tx.inserts
	tx.inserts++
	if s, ok := in.columns[t.columns.Status]; ok && s.text != "0" {
		return nil // inserted in another state than READY: not the relay's
	}
	r, err := t.row(in.columns)
	if err != nil {
		return err
	}
	r.Wire = t.wire(in.columns, index)
	tx.rows = append(tx.rows, r)
	return nil
}

func (t *Truth) row(columns map[string]value) (Row, error) {
	for _, name := range []string{t.columns.ID, t.columns.EventID, t.columns.AggregateID, t.columns.Key, t.columns.Topic, t.columns.Payload, t.columns.DeliverAfter} {
		if _, ok := columns[name]; name != "" && !ok {
			return Row{}, fmt.Errorf("reading an insert: there is no column %s", name)
		}
	}
	payload, err := columns[t.columns.Payload].bytes()
	if err != nil {
		return Row{}, err
	}
	r := Row{ID: columns[t.columns.ID].text, EventID: columns[t.columns.EventID].text, Payload: payload}
	if topic, ok := columns[t.columns.Topic]; ok && !topic.null {
		r.Topic = &topic.text
	}
	for _, name := range []string{t.columns.Key, t.columns.AggregateID} {
		if key, ok := columns[name]; ok && !key.null {
			r.Key = []byte(key.text)
			break
		}
	}
	after, ok := columns[t.columns.DeliverAfter]
	r.Scheduled = ok && !after.null
	return r, nil
}

// lsn is a position in the log of the truth's server. The judge has its own
// type, because it shares no code with what it judges.
type lsn uint64

func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint64(l)>>32, uint32(l)) }

func parseLSN(s string) (lsn, error) {
	hi, lo, ok := strings.Cut(s, "/")
	h, errHi := strconv.ParseUint(hi, 16, 32)
	l, errLo := strconv.ParseUint(lo, 16, 32)
	if !ok || errHi != nil || errLo != nil {
		return 0, errors.New("parsing the position " + s)
	}
	return lsn(h<<32 | l), nil
}
