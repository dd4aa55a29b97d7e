package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Report is what the relay's own tables say about one relay.
type Report struct {
	Position *PositionRow // nil: the relay has none yet
	Lines    []LineReport // by topic, those with the most events first
	Pending  int64        // statuses that are still to be shown
}

// LineReport sums up the lines of one topic.
type LineReport struct {
	Topic  string
	Lines  int64
	Events int64
	Parked int64 // lines that wait for a person
	Held   int64 // lines that later events of their key wait behind
	Oldest time.Time
}

// ReadReport reads the report over a connection of its own, without a
// session: it may be called while a relay runs, and changes nothing. Topics
// beyond the limit are left out.
func ReadReport(ctx context.Context, conn *pgx.ConnConfig, relay string, limit int) (r Report, err error) {
	err = alone(ctx, conn, func(c *pgx.Conn) error {
		r, err = readReport(ctx, c, relay, limit)
		return err
	})
	if err != nil {
		return Report{}, fmt.Errorf("reading the relay's tables: %w", judge(err))
	}
	return r, nil
}

// alone runs f on a connection of its own, pinned like a Store's.
func alone(ctx context.Context, conn *pgx.ConnConfig, f func(*pgx.Conn) error) error {
	conn = conn.Copy()
	maps.Copy(conn.RuntimeParams, outbox.PinnedSettings())
	conn.RuntimeParams["statement_timeout"] = milliseconds(defaultStatementTimeout)
	conn.RuntimeParams["lock_timeout"] = milliseconds(defaultLockTimeout)
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "outbox-relay"
	}
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec // it may lead through a pooler
	c, err := pgx.ConnectConfig(ctx, conn)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := pinLate(ctx, c); err != nil {
		return err
	}
	return f(c)
}

func readReport(ctx context.Context, c *pgx.Conn, relay string, limit int) (r Report, err error) {
	row, err := scanPosition(c.QueryRow(ctx, selectPosition, relay))
	switch {
	case err == nil:
		r.Position = &row
	case !errors.Is(err, pgx.ErrNoRows):
		return r, err
	}
	rows, err := c.Query(ctx, `select l.topic, count(distinct l.id), count(e.seq), count(distinct l.id) filter (where l.parked_at is not null),
			count(distinct l.id) filter (where l.holds), min(l.since)
		from outbox_relay.line l left join outbox_relay.line_event e on e.line_id = l.id
		where l.relay = $1::text group by l.topic order by 3 desc, 1 limit $2::int`, relay, limit)
	if err != nil {
		return r, err
	}
	var l LineReport
	_, err = pgx.ForEachRow(rows, []any{&l.Topic, &l.Lines, &l.Events, &l.Parked, &l.Held, &l.Oldest}, func() error {
		r.Lines = append(r.Lines, l)
		return nil
	})
	if err != nil {
		return r, err
	}
	err = c.QueryRow(ctx, `select count(*) from outbox_relay.pending_status where relay = $1::text`, relay).Scan(&r.Pending)
	return r, err
}
