package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is where a value came from: a position in a file, an environment
// variable, a flag, or the defaults (the zero Place).
type Place struct {
	Source       string // file name, "environment NAME" or "flag --name"; "" for the default
	Line, Column int    // from 1; 0 outside files
}

// String gives file:line:column, or the source alone.
func (p Place) String() string {
	switch {
	case p.Source == "":
		return "default"
	case p.Line == 0:
		return p.Source
	default:
		return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
	}
}

// Mistake is one thing wrong with the configuration. Its text never holds a
// value of a key that may hold a secret.
type Mistake struct {
	Place Place
	Key   string // dotted path; "" when no key is meant
	Text  string // what is wrong
	Hint  string // what to do; "" when Text says it
}

// String gives the place, the key, what is wrong, and the hint on a line of
// its own.
func (m Mistake) String() string {
	var b strings.Builder
	if m.Place.Source != "" {
		b.WriteString(m.Place.String() + ": ")
	}
	if m.Key != "" {
		b.WriteString(m.Key + ": ")
	}
	b.WriteString(m.Text)
	if m.Hint != "" {
		b.WriteString("\n    hint: " + m.Hint)
	}
	return b.String()
}

// Mistakes is the error that Load returns: all that is wrong, sorted by
// place. It is never empty.
type Mistakes []Mistake

// Error gives one mistake per line, hints below.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i := range m {
		lines[i] = m[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders mistakes by source, then position.
func (m Mistakes) sorted() Mistakes {
	slices.SortStableFunc(m, func(a, b Mistake) int {
		return cmp.Or(
			cmp.Compare(a.Place.Source, b.Place.Source),
			cmp.Compare(a.Place.Line, b.Place.Line),
			cmp.Compare(a.Place.Column, b.Place.Column))
	})
	return m
}
