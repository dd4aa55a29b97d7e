package view

import (
	"strings"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
)

type quantiles = meter.Quantiles

// palette paints, or does not.
type palette bool

func (p palette) paint(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) bold(s string) string { return p.paint("1", s) }
func (p palette) dim(s string) string  { return p.paint("2", s) }

func (p palette) mood(s string, m Mood) string {
	switch m {
	case Good:
		return p.paint("32", s)
	case Uneasy:
		return p.paint("33", s)
	case Bad:
		return p.paint("31", s)
	default:
		return s
	}
}

func (p palette) light(l Light) string { return p.mood(l.Word, l.Mood) }

// dot puts a sign before the word, full when things are well.
func (p palette) dot(l Light) string {
	sign := "● "
	if l.Mood == Bad || l.Mood == Uneasy {
		sign = "○ "
	}
	return p.mood(sign+l.Word, l.Mood)
}

// faults paints the marks and leaves the axis dim.
func (p palette) faults(axis string) string {
	if !p {
		return axis
	}
	var b strings.Builder
	for _, r := range axis {
		if r == '─' {
			b.WriteString(p.dim("─"))
		} else {
			b.WriteString(p.paint("31", string(r)))
		}
	}
	return b.String()
}
