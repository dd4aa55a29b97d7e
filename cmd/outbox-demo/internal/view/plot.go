package view

import (
	"math"
	"slices"
	"strings"
	"time"
)

var blocks = []rune(" ▁▂▃▄▅▆▇█")

// Bars draws fractions (0 to 1) as columns of eighths of a block, one column
// each, in height lines from the top. A fraction of 0 is blank; anything above
// shows at least one eighth.
func Bars(fractions []float64, height int) []string {
	lines := make([]string, height)
	for i := range lines {
		below := (height - 1 - i) * 8 // eighths under this line
		var b strings.Builder
		for _, f := range fractions {
			b.WriteRune(blocks[min(max(eighths(f, height)-below, 0), 8)])
		}
		lines[i] = b.String()
	}
	return lines
}

func eighths(f float64, height int) int {
	if !(f > 0) { // NaN too
		return 0
	}
	return max(1, int(math.Round(min(f, 1)*float64(height*8))))
}

// niceTop gives a round number at or above v: one digit and zeros, or 1.5.
func niceTop(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 1) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if v <= m*p*(1+1e-9) {
			return m * p
		}
	}
	return 10 * p
}

// Linear gives each value's fraction of a round top, and the top.
func Linear(values []float64) (fractions []float64, top float64) {
	top = 0
	for _, v := range values {
		top = max(top, v)
	}
	top = niceTop(top)
	fractions = make([]float64, len(values))
	for i, v := range values {
		fractions[i] = v / top
	}
	return fractions, top
}

// lagFloor is where the logarithmic plot begins: less than that is nothing to
// a reader.
const lagFloor = time.Millisecond

// Decades gives each duration's place between lagFloor and a power of ten that
// is at least a second, on a logarithmic scale, so that a quiet stream and an
// outage show in one picture; and that power.
func Decades(values []time.Duration) (fractions []float64, top time.Duration) {
	top = time.Second
	if len(values) > 0 {
		for longest := slices.Max(values); top < longest && top < time.Hour; {
			top *= 10
		}
	}
	span := math.Log(float64(top) / float64(lagFloor))
	fractions = make([]float64, len(values))
	for i, v := range values {
		if v > 0 {
			// What is below the floor still shows that there was a row.
			fractions[i] = max(math.Log(float64(v)/float64(lagFloor))/span, 1e-9)
		}
	}
	return fractions, top
}

// marks draws the faults under a plot: a letter where one begins and a line
// for as long as it lasts.
func marks(points []Point) string {
	var b strings.Builder
	last := NoFault
	for _, p := range points {
		switch {
		case p.Fault == NoFault:
			b.WriteRune('─')
		case p.Fault != last:
			b.WriteByte(byte(p.Fault))
		default:
			b.WriteRune('━')
		}
		last = p.Fault
	}
	return b.String()
}
