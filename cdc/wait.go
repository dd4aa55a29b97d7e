package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Wait listens for at most d, without asking the server anything, and returns
// nil when nothing came. A server that shuts down says so to every ordinary
// connection at once (SQLSTATE 57P01), long before it gives up on our stream,
// and this is how we hear it. ctx ends the wait early, also with nil.
func (a *Admin) Wait(ctx context.Context, d time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		_, err := a.conn.WaitForNotification(limited)
		switch {
		case err == nil: // nobody listens to a channel here; whatever it was, it is not for us
		case limited.Err() != nil && pgconn.Timeout(err), ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("listening on the query connection: %w", err)
		}
	}
}
