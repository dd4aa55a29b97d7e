package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// Law: files and functions fit into a head.
func TestLengths(t *testing.T) {
	t.Parallel()
	each(t, lengths)
}

// Law: an open end names its issue.
func TestOpenEndsNameAnIssue(t *testing.T) {
	t.Parallel()
	each(t, openEnds)
}

// Law: tests wait for conditions, not for time.
func TestNoSleepInTests(t *testing.T) {
	t.Parallel()
	each(t, sleeps)
}

// Law: every package says in doc.go what it is for.
func TestPackagesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, broken := range undocumented(repository(t)) {
		t.Error(broken)
	}
}

// Law: the list of sleepers has no entry that is not needed any more.
func TestSleepersExist(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	for _, s := range repository(t) {
		calls[s.path] = len(sleepCalls(s))
	}
	for name, n := range sleepers {
		if calls[name] < n {
			t.Errorf("%s calls time.Sleep %d times, the list allows %d", name, calls[name], n)
		}
	}
}

func lengths(s *source) (broken []string) {
	limit := longestFile
	if s.isTest() {
		limit = longestTestFile
	}
	if n := s.lines(); n > limit {
		broken = append(broken, fmt.Sprintf("%s: %d lines, at most %d", s.path, n, limit))
	}
	if s.isTest() {
		return broken
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
		if n > longestFunction {
			broken = append(broken, fmt.Sprintf("%s: function %s has %d lines, at most %d", s.at(f.Pos()), f.Name.Name, n, longestFunction))
		}
	}
	return broken
}

// The words are put together here so that this file keeps its own rule.
var (
	openEnd = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|X" + `XX)\b`)
	issued  = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|X" + `XX)\(#\d+\)`)
)

func openEnds(s *source) (broken []string) {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			rest := issued.ReplaceAllString(c.Text, "")
			if openEnd.MatchString(rest) {
				broken = append(broken, fmt.Sprintf("%s: an open end without an issue number", s.at(c.Pos())))
			}
		}
	}
	return broken
}

func sleeps(s *source) (broken []string) {
	if !s.isTest() || strings.Contains(s.text, `"testing/synctest"`) {
		return nil
	}
	calls := sleepCalls(s)
	if len(calls) <= sleepers[s.path] {
		return nil
	}
	for _, c := range calls {
		broken = append(broken, fmt.Sprintf("%s: time.Sleep in a test: wait for a signal, or poll with a deadline", c))
	}
	return broken
}

// sleepCalls gives the calls of time.Sleep outside the functions that may pause.
func sleepCalls(s *source) (at []string) {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == poller {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
				at = append(at, s.at(sel.Pos()))
			}
			return true
		})
	}
	return at
}

func undocumented(all []*source) (broken []string) {
	documented := map[string]bool{}
	for _, s := range all {
		if strings.HasSuffix(s.path, "/doc.go") && s.file.Doc != nil {
			documented[s.folder()] = true
		}
	}
	told := map[string]bool{}
	for _, s := range all {
		if folder := s.folder(); !documented[folder] && !told[folder] {
			told[folder] = true
			broken = append(broken, fmt.Sprintf("%s: no doc.go with a package comment", folder))
		}
	}
	return broken
}
