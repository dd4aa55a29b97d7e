//go:build failpoints

package relay

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// step is one point and how often it is come to before the next step counts.
type step struct {
	name  string
	times int64
	stop  bool // the last step freezes the process instead of ending it
}

// steps are those that OUTBOX_RELAY_FAILPOINT names, none for nothing.
var steps = parseFailpoint(os.Getenv("OUTBOX_RELAY_FAILPOINT"))

// stepDue is the index of the step that counts, stepTimes how often it was come
// to.
var stepDue, stepTimes atomic.Int64

func parseFailpoint(s string) (parsed []step) {
	if s == "" {
		return nil
	}
	words := strings.Split(s, ",")
	for i, word := range words {
		parts := strings.Split(word, ":")
		last := i == len(words)-1
		stop := last && len(parts) == 3 && parts[2] == "stop"
		n := int64(0)
		if len(parts) == 2 || stop {
			n, _ = strconv.ParseInt(parts[1], 10, 64)
		}
		if n < 1 || !slices.Contains(Failpoints, parts[0]) {
			panic(fmt.Sprintf("relay: OUTBOX_RELAY_FAILPOINT=%q: want name:n, with commas between several, and :stop behind the last or not; the names are %v", s, Failpoints))
		}
		parsed = append(parsed, step{parts[0], n, stop})
	}
	return parsed
}

// failpoint counts towards the step that is due, and does what the last one
// wants when that is complete. Only the goroutine that completes a step moves
// on to the next.
func failpoint(name string) {
	at := int(stepDue.Load())
	if at >= len(steps) || steps[at].name != name || stepTimes.Add(1) != steps[at].times {
		return
	}
	stepTimes.Store(0)
	if stepDue.Add(1) < int64(len(steps)) {
		return
	}
	if steps[at].stop {
		freeze()
		return
	}
	// SIGKILL to ourselves is what a machine's end looks like to the rest.
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal is delivered
}

// freeze stops the whole process. The goroutine does not go on before the
// process is woken, even if the signal reaches another thread first.
func freeze() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-woken
}
