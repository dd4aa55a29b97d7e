package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is one way to break a law.
type mutant struct {
	law     string
	what    string // what the broken product does, in words
	file    string // from the module's root
	old     string // found there exactly once
	new     string
	killers []killer // each of them must fail
}

// number is the law's, 5 of I5.
func (m mutant) number() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(m.law, "I")) // TestTable checks it
	return n
}

// killer is a test that must notice.
type killer struct {
	pkg  string // folder from the module's root
	test string // "TestX" or "TestX/case"
}

func (k killer) String() string { return k.pkg + " " + k.test }

// printed is the test's name as the testing package prints it.
func (k killer) printed() string { return strings.ReplaceAll(k.test, " ", "_") }

// pattern is what -test.run wants.
func (k killer) pattern() string {
	return "^" + strings.ReplaceAll(k.printed(), "/", "$/^") + "$"
}

// usesRapid says whether the tests of the package know that library's flags.
func (k killer) usesRapid(root string) bool {
	return strings.Contains(k.sources(root), `"pgregory.net/rapid"`)
}

// sources are the texts of the package's tests, "" when they cannot be read.
func (k killer) sources(root string) string {
	files, _ := filepath.Glob(filepath.Join(root, k.pkg, "*_test.go")) // the pattern is right
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return ""
		}
		all.Write(text)
	}
	return all.String()
}

// killerNames lists the killers' tests.
func (m mutant) killerNames(between string) string {
	names := make([]string, len(m.killers))
	for i, k := range m.killers {
		names[i] = "`" + k.test + "`"
	}
	return strings.Join(names, between)
}

// apply mutates the file's text.
func (m mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("%s: the text of the mutant %q is found %d times, want once:\n%s", m.file, m.what, n, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// checkTable finds every text, without running anything.
func checkTable(root string, all []mutant) error {
	var errs []error
	for _, m := range all {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err == nil {
			_, err = m.apply(string(text))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// moduleRoot is the folder with go.mod, above this one or here.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above: run it inside the module")
		}
		dir = up
	}
}
