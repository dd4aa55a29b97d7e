//go:build !linux

package cdc

import (
	"syscall"
	"time"
)

// userTimeout does nothing: only Linux has TCP_USER_TIMEOUT. The write
// deadline of Confirm and the caller's rule on inbound silence remain.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
