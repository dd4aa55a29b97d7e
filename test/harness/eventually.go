package harness

import (
	"context"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// Eventually waits until ok holds, and fails the test when it does not within
// the limit. It is for conditions that nothing announces: it looks every 10 ms.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	err := guard.Poll(ctx, what, nil, func() (bool, error) { return ok(), nil })
	if err != nil {
		t.Fatalf("%v (%v)", err, limit)
	}
}
