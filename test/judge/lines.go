package judge

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Line is one event that the relay keeps instead of having published it.
type Line struct {
	EventID string
	Reason  string
	// Status is what the outbox row says; nil when the row is gone.
	Status *int
	// Pending says that the relay still owes the row its status.
	Pending bool
}

// ReadLines reads what waits in the lines of one relay whose outbox is table
// (a name as in SQL), by the columns event_id and status.
func ReadLines(ctx context.Context, conn *pgx.Conn, relay, table string) ([]Line, error) {
	sql := `select e.event_id::text, e.reason, o.status::int,
			exists (select from outbox_relay.pending_status p where p.relay = e.relay and p.row_key = e.row_key)
		from outbox_relay.line_event e left join ` + table + ` o on o.event_id = e.event_id
		where e.relay = $1 order by e.seq`
	rows, err := conn.Query(ctx, sql, relay)
	if err != nil {
		return nil, fmt.Errorf("reading the lines of relay %s: %w", relay, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Line])
	if err != nil {
		return nil, fmt.Errorf("reading the lines of relay %s: %w", relay, err)
	}
	return lines, nil
}

// visible says whether an operator who looks at the outbox sees that the event
// waits: it is FAILED (3), or INPROGRESS (1) while it is tried again, or a
// consumer has moved it on (4, 5), or the row is gone.
func (l Line) visible() bool {
	return l.Status == nil || l.Pending || *l.Status == 1 || *l.Status >= 3
}
