package guard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the ephemeral range of Linux (32768 and up), so
// that no outgoing connection takes the port of a server that is down for the
// moment.
const (
	firstPort = 20000
	lastPort  = 32000
)

// Port finds a TCP port on 127.0.0.1 that nobody listens on now. Somebody else
// may take it before the caller does, so callers try again with another one.
func Port() (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("finding a free port between %d and %d: %w", firstPort, lastPort, errors.Join(last))
}
