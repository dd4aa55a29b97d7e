package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/gate"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// polled asks until the answer is yes, for at most 20 s.
func polled(t *testing.T, what string, ask func() bool) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ask() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waiting for %s: not within 20 s", what)
		}
	}
}

// scripted makes a relay out of a shell script, with its scratch directory.
func scripted(t *testing.T, script string) *relay {
	t.Helper()
	s, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	binary := filepath.Join(s.dir, "relay.sh")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := newRelay(s, binary, &database{name: "n", dsn: "d"}, []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.log.Close() })
	r.pause = 10 * time.Millisecond
	return r
}

// obedient ends with 0 on SIGTERM; its log says that it is there to hear it.
const obedient = "trap 'exit 0' TERM\necho up $$\nwhile :; do sleep 0.02; done\n"

func startRun(t *testing.T, r *relay) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }() // stop waits for it
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// Law: a killed relay is started again, which counts as a restart and not as
// an end of its own; on SIGTERM it ends and that is no error.
func TestKilledRelayIsStartedAgain(t *testing.T) {
	t.Parallel()
	r := scripted(t, obedient)
	stop := startRun(t, r)
	polled(t, "the first process", func() bool { return r.Pid() != 0 })
	pid, err := r.Kill()
	if err != nil {
		t.Fatal(err)
	}
	polled(t, "the next process to take signals", func() bool {
		next := r.Pid()
		return next != 0 && next != pid && strings.Contains(r.Tail(), fmt.Sprintf("up %d", next))
	})
	if got := r.Counts(); got != (relayCounts{Restarts: 1}) {
		t.Errorf("%+v, want one restart and no death", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if r.Pid() != 0 {
		t.Errorf("pid %d runs after the end", r.Pid())
	}
}

// Law: a relay that ends by itself again and again is given up, and the end of
// its log is there to show.
func TestDyingRelayIsGivenUp(t *testing.T) {
	t.Parallel()
	r := scripted(t, "echo nothing works\nexit 3\n")
	told := 0
	r.hear(func(string) { told++ }) // called by Run's own goroutine
	err := r.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || r.Counts().Deaths != maxDeaths || told != maxDeaths-1 {
		t.Errorf("%v after %+v, told %d times", err, r.Counts(), told)
	}
	if !strings.Contains(r.Tail(), "nothing works") {
		t.Errorf("tail %q", r.Tail())
	}
}

// Law: a relay that ends otherwise than with 0 after SIGTERM is reported.
func TestUncleanEndIsReported(t *testing.T) {
	t.Parallel()
	r := scripted(t, "trap 'exit 7' TERM\necho up\nwhile :; do sleep 0.02; done\n")
	stop := startRun(t, r)
	polled(t, "the process to take signals", func() bool { return strings.Contains(r.Tail(), "up") })
	if err := stop(); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("got %v", err)
	}
}

// Law: a fault that met nothing does not count: no relay to kill, no connection
// to cut.
func TestFaultWithoutVictimDoesNotCount(t *testing.T) {
	t.Parallel()
	r := scripted(t, obedient)
	if _, err := r.Kill(); err == nil {
		t.Error("killing a relay that was never started is no error")
	}
	door, err := gate.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	d := &director{broker: &broker{gate: door}, relay: r, ledger: meter.NewLedger(), tell: func(view.Mood, string) {}}
	ended, end := context.WithCancel(t.Context())
	end()
	d.stopBroker(ended, time.Now(), time.Second)
	d.killRelay(ended, time.Now())
	for _, f := range d.List() {
		if f.Bitten {
			t.Errorf("counted: %+v", f)
		}
	}
	if n := len(d.List()); n != 2 {
		t.Errorf("%d faults on the list, want both", n)
	}
}

const helperEnv = "OUTBOX_DEMO_TEST_HELPER"

// TestHelper is no test: it is the process that TestNothingOutlivesAKill kills.
func TestHelper(t *testing.T) {
	if os.Getenv(helperEnv) == "" {
		t.Skip("only the helper of another test")
	}
	s, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	s.hold(1 << 22) // an older one, forgotten by the next note
	s.hold(child.Process.Pid)
	fmt.Printf("%s %d\n", s.dir, child.Process.Pid)
	_ = child.Wait()
}

// Law: when the demo is killed with SIGKILL, its scratch directory goes, and
// the relay that was noted ends.
func TestNothingOutlivesAKill(t *testing.T) {
	t.Parallel()
	helper := exec.Command(os.Args[0], "-test.run=^TestHelper$")
	helper.Env = append(os.Environ(), helperEnv+"=1")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	var dir, pid string
	_, errScan := fmt.Fscan(out, &dir, &pid)
	errKill := helper.Process.Kill()
	_ = helper.Wait()
	if errScan != nil || errKill != nil {
		t.Fatal(errScan, errKill)
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	polled(t, "the directory to go", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
	polled(t, "the child to end", func() bool { return gone(n) })
}

// gone says whether a process has ended; one that nobody waited for yet counts.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}
