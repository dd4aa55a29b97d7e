package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTableFitsTheTree proves that no entry has gone stale: every text is
// found exactly once, every killer is there, every law has a mutant, and the
// document shows the table as it is.
func TestTableFitsTheTree(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTable(root, mutants); err != nil {
		t.Error(err)
	}
	laws, words := map[int]int{}, map[string]bool{}
	for _, m := range mutants {
		if m.law != fmt.Sprintf("I%d", m.number()) || words[m.what] || m.old == m.new || len(m.killers) == 0 {
			t.Errorf("a bad entry: %s, %s", m.law, m.what)
		}
		laws[m.number()]++
		words[m.what] = true
		for _, k := range m.killers {
			if !k.exists(root) {
				t.Errorf("%s: there is no %s", m.what, k)
			}
		}
	}
	for n := 1; n <= 14; n++ {
		if laws[n] == 0 {
			t.Errorf("I%d has no mutant", n)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	if fresh, err := splice(string(text), markdown(mutants)); err != nil || fresh != string(text) {
		t.Errorf("%s shows another table: go run ./test/mutate -list -md (%v)", document, err)
	}
}

// exists finds the test function in the killer's package, and a found seed by
// its name.
func (k killer) exists(root string) bool {
	name, sub, _ := strings.Cut(k.test, "/")
	sources := k.sources(root)
	if name == "TestSimulationFoundSeeds" && !strings.Contains(sources, `, "`+sub+`"}`) {
		return false
	}
	return regexp.MustCompile(`(?m)^func ` + name + `\(`).MatchString(sources)
}

// TestStaleEntriesAreRefused proves that a text that is not there, or there
// twice, is an error and mutates nothing.
func TestStaleEntriesAreRefused(t *testing.T) {
	t.Parallel()
	m := mutant{old: "b", new: "x"}
	for text, want := range map[string]string{"abc": "axc", "ac": "", "abcb": ""} {
		if got, err := m.apply(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// TestReasonIsTheTestsOwnWord proves that a death is told in the words of the
// panic, or of the last line that a test wrote.
func TestReasonIsTheTestsOwnWord(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"    x_test.go:1: a log line\n    x_test.go:9: confirmed 5\n--- FAIL: TestX": "confirmed 5",
		"    x_test.go:1: a log line\npanic: ticket 3 [recovered]\n":                 "panic: ticket 3 [recovered]",
		"FAIL": "no words",
	} {
		if got := reason(out); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestOneKillerIsOneTest proves that a killer's pattern matches no other test.
func TestOneKillerIsOneTest(t *testing.T) {
	t.Parallel()
	if got := (killer{"relay", "TestX/15 filtered"}).pattern(); got != "^TestX$/^15_filtered$" {
		t.Error(got)
	}
}

// TestChoose proves that -only takes laws, and words.
func TestChoose(t *testing.T) {
	t.Parallel()
	all := []mutant{{law: "I1", what: "one thing"}, {law: "I12", what: "another thing"}}
	for only, want := range map[string]int{"": 2, "I1": 1, "i12": 1, "another": 1, "thing": 2, "I1,I12": 2, "I3": 0} {
		if got := choose(all, only); len(got) != want {
			t.Errorf("-only %q chooses %d, want %d", only, len(got), want)
		}
	}
}
