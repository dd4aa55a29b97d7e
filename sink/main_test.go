package sink

import (
	"testing"

	"go.uber.org/goleak"
)

// Whoever starts a goroutine waits for it: nothing may be left after all tests
// but the one that waits for the shared server, which lives as long as the
// process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outboxrelay/outbox-relay/test/harness/internal/guard.(*Process).wait"))
}
