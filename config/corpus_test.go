package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// directives reads the comments "# name: text" at the top of a corpus file.
func directives(t *testing.T, name string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "# ") {
			break
		}
		key, text, _ := strings.Cut(strings.TrimSpace(line[2:]), ": ")
		all[key] = append(all[key], text)
	}
	return all
}

func loadCorpus(t *testing.T, name string) (*Loaded, map[string][]string, error) {
	t.Helper()
	d := directives(t, name)
	_, complete := d["complete"]
	l, err := Load(LoadOptions{Files: []string{name}, Env: d["env"], Incomplete: !complete})
	return l, d, err
}

// Every mistake of a file is reported, and nothing that is none: the number
// of mistakes is the number of texts that the file says it must cause, and
// each text is in the mistake of its turn. A text after "|" must be there too.
// No error repeats a value that may be secret (CANARY).
func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) < 90 {
		t.Fatalf("found %d bad files (%v), want at least 90", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			_, d, err := loadCorpus(t, name)
			var mistakes Mistakes
			if !errors.As(err, &mistakes) {
				t.Fatalf("Load gave %v, want mistakes", err)
			}
			if strings.Contains(err.Error(), "CANARY") {
				t.Errorf("the error shows a secret:\n%v", err)
			}
			if len(mistakes) != len(d["want"]) {
				t.Fatalf("%d mistakes, want %d:\n%v", len(mistakes), len(d["want"]), err)
			}
			for _, want := range d["want"] {
				if !anyContains(mistakes, strings.Split(want, "|")) {
					t.Errorf("no mistake holds %q:\n%v", want, err)
				}
			}
		})
	}
}

func anyContains(mistakes Mistakes, parts []string) bool {
	for _, m := range mistakes {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(m.String(), part)
		}
		if all {
			return true
		}
	}
	return false
}

// A right file loads, and warns of what it says it must warn of, no more.
func TestGoodFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d good files (%v)", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			l, d, err := loadCorpus(t, name)
			if err != nil {
				t.Fatal(err)
			}
			got, want := strings.Join(l.Warnings, "\n"), strings.Join(d["warn"], "\n")
			if got != want {
				t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
