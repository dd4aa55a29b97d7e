package cdc

import (
	"testing"

	"go.uber.org/goleak"
)

// Law: nothing that this package starts outlives its call. The shared servers
// live as long as the process, and so does who waits for them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outboxrelay/outbox-relay/test/harness/internal/guard.(*Process).wait"))
}
