package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// Law: the demo, run whole with both faults and the real relay, ends with a
// good verdict as one line of JSON, both faults seen to bite, and leaves
// nothing in the temporary directory.
func TestDemoEndsGood(t *testing.T) {
	harness.Need(t, harness.PostgresMajor(pgserver.DefaultMajor))
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(dsnEnv, "")
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stderr.Close() }()
	var stdout bytes.Buffer
	code := run(time.Now(), []string{"--for", "6s", "--output", "json"}, &stdout, stderr)
	if text, err := os.ReadFile(stderr.Name()); err != nil || code != exitGood {
		t.Fatalf("exit code %d, %v\n%s\n%s", code, err, text, stdout.String())
	}
	fields := promised(t, stdout.Bytes())
	for name, want := range map[string]any{
		"ok": true, "lost": 0.0, "out_of_order": 0.0, "not_sent": 0.0, "restarts": 1.0, "broker_stops": 1.0, "relay_kills": 1.0,
	} {
		if fields[name] != want {
			t.Errorf("%s is %v, want %v", name, fields[name], want)
		}
	}
	if rows := fields["rows_committed"].(float64); rows < 200 || fields["records_published"].(float64) < rows {
		t.Errorf("%v rows and %v records, want up to 3000", rows, fields["records_published"])
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}
