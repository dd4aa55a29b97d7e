package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, spelled 64MiB, 1GiB or 1048576.
type Size int64

// sizeUnits from large to small; the decimal ones are read but never printed.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// ParseSize reads what String prints, and decimal units too. It refuses
// signs, fractions and what does not fit 63 bits.
func ParseSize(s string) (Size, error) {
	digits := strings.TrimLeft(s, "0123456789")
	n, err := strconv.ParseInt(s[:len(s)-len(digits)], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("want a whole number of bytes such as 64MiB or 1048576")
	}
	unit := strings.TrimSpace(digits)
	for _, u := range sizeUnits {
		if u.name != unit {
			continue
		}
		if n > math.MaxInt64/u.bytes {
			return 0, fmt.Errorf("too large")
		}
		return Size(n * u.bytes), nil
	}
	return 0, fmt.Errorf("unknown unit; want one of B, KiB, MiB, GiB, TiB")
}

// String prints the size in the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// formatDuration prints a duration without the zero parts that Go adds: 1m,
// not 1m0s.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseDuration reads a Go duration. A bare number is refused: nobody can
// tell seconds from milliseconds.
func parseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("a duration needs a unit, such as 30s, 500ms or 5m")
	}
	if strings.HasSuffix(s, "d") {
		return 0, fmt.Errorf("days are written in hours, such as 168h for a week")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("want a duration such as 30s, 500ms or 5m")
	}
	if d < 0 {
		return 0, fmt.Errorf("a duration is never negative")
	}
	return d, nil
}

// Choice is yes, no, or left to the program. The zero value is left to it.
type Choice struct {
	Set bool // somebody chose
	On  bool // what they chose
}

// Or gives the choice, or fallback when nobody chose.
func (c Choice) Or(fallback bool) bool {
	if c.Set {
		return c.On
	}
	return fallback
}
