//go:build !linux

package cdc

import "net"

// queuedBytes is known on Linux only.
func queuedBytes(net.Conn) (n int, known bool) { return 0, false }
