package cdc

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// queuedBytes says how many received bytes wait in the kernel (tcp(7),
// SIOCINQ). It does not know for what is not a socket.
func queuedBytes(c net.Conn) (n int, known bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, false
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return n, err == nil && failed == nil
}
