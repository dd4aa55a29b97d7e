package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example shows every key, and loading it gives the defaults: what is
// printed can never drift from what is meant.
func TestExampleLoadsToTheDefaults(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "example.yaml")
	if err := os.WriteFile(name, []byte(Example()), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(LoadOptions{Files: []string{name}, Incomplete: true})
	if err != nil {
		t.Fatalf("the example has mistakes:\n%v", err)
	}
	if diff := cmp.Diff(Default(), l.Config); diff != "" {
		t.Errorf("the example is not the defaults (-default +example):\n%s", diff)
	}
	for _, k := range reference() {
		if l.Origin(k.path).Line == 0 {
			t.Errorf("the example does not hold %s", k.path)
		}
	}
}

// The example's text is a golden file: a change of a default or of a help
// shows in review.
func TestExampleGolden(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/example.yaml", Example())
}

// golden compares got with a file; with UPDATE_GOLDEN=1 it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-file +got); UPDATE_GOLDEN=1 rewrites it:\n%s", name, diff)
	}
}
