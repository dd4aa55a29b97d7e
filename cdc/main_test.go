package cdc

import (
	"testing"

	"go.uber.org/goleak"
)

// Law: nothing that this package starts outlives its call.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
