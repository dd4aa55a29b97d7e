package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Law: settings are written in a stable order with quotes doubled.
func TestConf(t *testing.T) {
	t.Parallel()
	got := conf(map[string]string{"b": "it's", "a": "1"})
	if got != "a = '1'\nb = 'it''s'\n" {
		t.Error(got)
	}
}

// Law: a variable that names the wrong directory is an error, never passed over.
func TestEnvironmentIsBelieved(t *testing.T) {
	t.Setenv(EnvName(16), t.TempDir())
	if _, _, err := Find(16); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), EnvName(16)) {
		t.Errorf("Find gave %v", err)
	}
}

// Law: an archive whose digest is pinned must have it.
func TestVerifyPinned(t *testing.T) {
	t.Parallel()
	for name := range digests {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := verify(file); err == nil {
			t.Errorf("a changed %s passed", name)
		}
	}
}

// Law: majors that the product does not support are refused.
func TestMajors(t *testing.T) {
	t.Parallel()
	for major, ok := range map[int]bool{0: true, 13: false, 14: true, 18: true, 19: false} {
		if err := (Options{Major: major}).check(); (err == nil) != ok {
			t.Errorf("major %d: %v", major, err)
		}
	}
}
