package guard

import (
	"context"
	"fmt"
	"time"
)

// Poll asks ready every 10 ms until it says yes, and returns nil; or until ctx
// ends, stop is closed (nil: never) or ready returns an error. what names the
// condition in the error.
func Poll(ctx context.Context, what string, stop <-chan struct{}, ready func() (bool, error)) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := ready()
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ticker.C:
		case <-stop:
			return fmt.Errorf("waiting for %s: the process ended", what)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
