package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Reset says where a relay starts anew.
type Reset struct {
	Relay    string
	Slot     string
	SystemID string
	Timeline uint32
	Start    outbox.LSN // of the new slot
	Reason   string     // for the audit
}

// ResetPosition moves the position row of a relay to where its new slot
// starts, and notes that in the audit. What committed between the old
// position and Start will not be streamed: the caller has told a person, who
// has agreed. It writes a new nonce, so a session that still runs is fenced.
// A relay without a row gets none: its first start makes it.
//
// It returns the row as it was, nil when there was none.
func ResetPosition(ctx context.Context, conn *pgx.ConnConfig, r Reset) (before *PositionRow, err error) {
	err = alone(ctx, conn, func(c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			before, err = r.apply(ctx, tx)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("resetting the position of relay %q: %w", r.Relay, judge(err))
	}
	return before, nil
}

func (r Reset) apply(ctx context.Context, tx pgx.Tx) (*PositionRow, error) {
	row, err := scanPosition(tx.QueryRow(ctx, selectPosition+` for update`, r.Relay))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `update outbox_relay.position set slot = $2::text, system_identifier = $3::text, timeline = $4::int,
			lsn = $5::text::pg_lsn, next_commit = null, next_index = 0, reached = null, session = $6::text::uuid, updated_at = now()
		where relay = $1::text`, r.Relay, r.Slot, r.SystemID, int64(r.Timeline), r.Start.String(), uuid.NewString())
	if err != nil {
		return nil, fmt.Errorf("writing the row: %w", err)
	}
	_, err = tx.Exec(ctx, `insert into outbox_relay.audit (who, relay, verb, reason, before, after)
		values (session_user, $1::text, 'reset_position', $2::text, $3::text, $4::text)`,
		r.Relay, r.Reason, row.Slot+" "+row.Progress.LSN.String(), r.Slot+" "+r.Start.String())
	if err != nil {
		return nil, fmt.Errorf("noting it in the audit: %w", err)
	}
	return &row, nil
}
