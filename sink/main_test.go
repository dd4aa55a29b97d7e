package sink

import (
	"testing"

	"go.uber.org/goleak"
)

// Whoever starts a goroutine waits for it: nothing may be left after all tests.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
