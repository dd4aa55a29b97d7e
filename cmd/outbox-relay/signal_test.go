package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

// program starts the program as a process, and kills it when the test ends.
func program(t *testing.T, env []string, args ...string) (*exec.Cmd, *buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	c := exec.Command(self, args...)
	c.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	c.Stderr = log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c, log
}

// seen waits until the log holds a text.
func seen(t *testing.T, log *buffer, text string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", log.String())
		}
	})
	harness.Eventually(t, time.Minute, fmt.Sprintf("%q in the log", text), func() bool { return strings.Contains(log.String(), text) })
}

// page gives the metrics; "" while there is no answer.
func page(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func codeOf(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

func signalTo(t *testing.T, c *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// The first signal ends run gracefully with 0, whichever of the two it is.
func TestFirstSignalIsGraceful(t *testing.T) {
	t.Parallel()
	dead := writeConfig(t, "postgres: {replication: \"host=127.0.0.1 port=1 user=u dbname=d\"}\nkafka: {brokers: [localhost:1]}\nlisten: {probes: \"127.0.0.1:0\"}\n")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		c, log := program(t, nil, "run", "-c", dead)
		seen(t, log, "cannot look at the schema yet")
		signalTo(t, c, s)
		if code := codeOf(t, c); code != exitOK || !strings.Contains(log.String(), `"msg":"stopped"`) {
			t.Errorf("%v ended it with %d:\n%s", s, code, log.String())
		}
	}
}

// While the first signal waits for a record that no broker acknowledges, the
// second ends the program at once with 130; nothing is lost by it.
func TestSecondSignalIsForced(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shutdown: {grace: 1h}\nlisten: {probes: \"127.0.0.1:0\"}\nroute: {template: t}\n")
	s.must(t, "setup", "--apply", "--yes")
	s.Exec(t, `insert into public.outbox (aggregate_type, event_type, payload) values ('a', 'b', 'c')`)
	c, log := program(t, nil, "run", "-c", s.file)
	seen(t, log, `"address":"`)
	_, rest, _ := strings.Cut(log.String(), `"address":"`)
	address, _, _ := strings.Cut(rest, `"`)
	held := `outbox_relay_inflight_records{slot="` + s.slot + `"} 1`
	harness.Eventually(t, time.Minute, "the row in flight", func() bool { return strings.Contains(page(t, address), held) })
	signalTo(t, c, syscall.SIGTERM)
	signalTo(t, c, syscall.SIGINT) // another one: two equal signals may arrive as one
	if code := codeOf(t, c); code != exitForced {
		t.Errorf("ended with %d:\n%s", code, log.String())
	}
	if status := s.Query1(t, "select status from public.outbox"); status != "0" {
		t.Errorf("the row says %s", status)
	}
}
