package kafkaserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Law: a directory of jars passes only with each recorded jar unchanged and no
// other file.
func TestVerifyWantsTheRecordedJars(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := verify(dir); err == nil {
		t.Error("an empty directory passed")
	}
	_, name, _ := strings.Cut(strings.SplitN(digests, "\n", 2)[0], "  ")
	if err := os.WriteFile(filepath.Join(dir, name), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify(dir); err == nil || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("a changed jar gave %v", err)
	}
}

// Law: the version of Java is read from all forms in use.
func TestJavaMajor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`openjdk version "17.0.15" 2025-04-15`: 17, `openjdk version "21" 2023-09-19`: 21,
		`java version "1.8.0_392"`: 1, "nonsense": 0,
	} {
		if got := javaMajor(text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
