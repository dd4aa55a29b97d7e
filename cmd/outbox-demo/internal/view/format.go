package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Count prints a number with thousands set apart.
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Bytes prints a size; a negative one is unknown.
func Bytes(n int64) string {
	switch {
	case n < 0:
		return "?"
	case n < 10<<10:
		return fmt.Sprintf("%s B", Count(uint64(n)))
	case n < 10<<20:
		return fmt.Sprintf("%s KiB", Count(uint64(n>>10)))
	default:
		return fmt.Sprintf("%s MiB", Count(uint64(n>>20)))
	}
}

// Millis prints a duration in ms with as many digits as mean something.
func Millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d == 0:
		return "0"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	default:
		return Count(uint64(ms + .5))
	}
}

// Clock prints minutes and seconds.
func Clock(d time.Duration) string {
	s := max(0, int(d/time.Second))
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Seconds prints seconds with one digit.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// clip cuts a line to a number of columns. Escape sequences take none; they
// all are kept, so that colours end.
func clip(line string, width int) string {
	var b strings.Builder
	columns, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
			b.WriteRune(r)
			continue
		case columns == width:
			continue
		default:
			columns++
		}
		b.WriteRune(r)
	}
	return b.String()
}

// columns counts what clip would.
func columns(line string) int {
	n, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}

// pad fills a line up to a number of columns.
func pad(line string, width int) string {
	return line + strings.Repeat(" ", max(0, width-columns(line)))
}
