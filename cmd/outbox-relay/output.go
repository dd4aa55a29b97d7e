package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// The two forms of output.
const (
	formatTable = "table"
	formatJSON  = "json"
)

// documentVersion is schema_version of every JSON document. Members are added
// without a new number; unknown ones are to be ignored by readers.
const documentVersion = 1

// document is the head of every JSON answer.
type document struct {
	SchemaVersion int `json:"schema_version"`
}

func newDocument() document { return document{documentVersion} }

// writeJSON prints one document, indented, for programs and eyes.
func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// table aligns cells in columns. The zero value has no heading.
type table struct {
	head []string
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	all := t.rows
	if t.head != nil {
		all = append([][]string{t.head}, all...)
	}
	for _, cells := range all {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// bytesText prints a number of bytes for people, with one decimal.
func bytesText(n int64) string {
	const unit = 1024
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	if n < unit {
		return fmt.Sprintf("%s%d B", sign, n)
	}
	value, exponent := float64(n)/unit, 0
	for value >= unit && exponent < 4 {
		value, exponent = value/unit, exponent+1
	}
	return fmt.Sprintf("%s%.1f %ciB", sign, value, "KMGTP"[exponent])
}

// agoText prints how long ago a moment was, by the given clock.
func agoText(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	d := max(0, now.Sub(then))
	if d < time.Minute {
		return d.Round(time.Second).String() + " ago"
	}
	return d.Round(time.Minute).String() + " ago"
}

// yesNo prints a bool for people.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
