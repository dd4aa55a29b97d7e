//go:build failpoints

package relay

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is the point that OUTBOX_RELAY_FAILPOINT names, "" for none, and how
// often it is passed before it kills.
var armed, passes = parseFailpoint(os.Getenv("OUTBOX_RELAY_FAILPOINT"))

var passed atomic.Int64

func parseFailpoint(s string) (string, int64) {
	if s == "" {
		return "", 0
	}
	name, times, _ := strings.Cut(s, ":")
	n, err := strconv.ParseInt(times, 10, 64)
	for _, known := range Failpoints {
		if known == name && err == nil && n > 0 {
			return name, n
		}
	}
	panic(fmt.Sprintf("relay: OUTBOX_RELAY_FAILPOINT=%q: want one of %v, a colon and a positive number", s, Failpoints))
}

// failpoint kills the process when the armed point is come to for the n-th
// time. SIGKILL to ourselves is what a machine's end looks like to the rest.
func failpoint(name string) {
	if name == armed && passed.Add(1) == passes {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal is delivered
	}
}
