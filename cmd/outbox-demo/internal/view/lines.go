package view

import (
	"fmt"
	"strings"
	"time"
)

// Shape is what the screen is like.
type Shape struct {
	Width, Height int // columns and lines
	Colour        bool
}

// label is the width of a plot's scale, with the axis after it.
const label = 11

// sideBySide is the width from which both plots stand in one row: a scale and
// a minute each, and a gap between.
const sideBySide = 2*(label+Minute) + 4

// Lines draws a frame. No line is wider than the shape, and there are fewer
// lines than its height: parts that have no room are left out, the plots
// first.
func Lines(f Frame, s Shape) []string {
	p := palette(s.Colour)
	lines := header(f, s, p)
	lines = append(lines, numbers(f, s, p)...)
	room := s.Height - 1 - len(lines)
	events := min(len(f.Events), 4)
	if height := plotHeight(s, room-events-1); height > 0 {
		lines = append(lines, "")
		lines = append(lines, plots(f, s, p, height)...)
	}
	lines = append(lines, eventLines(f, s.Height-1-len(lines), p)...)
	for i, l := range lines {
		lines[i] = clip(l, s.Width)
	}
	return lines[:max(0, min(len(lines), s.Height-1))]
}

// plotHeight is how high each plot may be when both take room lines with their
// titles and axes; 0 is not at all.
func plotHeight(s Shape, room int) int {
	rows := 2
	if s.Width >= sideBySide {
		rows = 1
	}
	height := (room - 1 - 2*rows) / rows
	if height < 2 {
		return 0
	}
	return min(height, 6)
}

func header(f Frame, s Shape, p palette) []string {
	state := fmt.Sprintf("%s of %s  %s", Clock(f.Elapsed), Clock(f.Total), p.light(f.Phase))
	left := " " + p.bold(f.Title)
	if room := s.Width - columns(state) - 2; columns(left) > room {
		left = " " + p.bold("Outbox Relay")
	}
	first := pad(left, s.Width-columns(state)-1) + state
	lights := fmt.Sprintf(" relay %s   broker %s", p.dot(f.Relay), p.dot(f.Broker))
	return []string{first, lights, " " + p.dim(progress(f, s.Width-2))}
}

// progress is a rule that fills as time passes.
func progress(f Frame, width int) string {
	width = max(width, 0)
	full := 0
	if f.Total > 0 {
		full = min(width, int(int64(width)*int64(f.Elapsed)/int64(f.Total)))
	}
	return strings.Repeat("━", max(full, 0)) + strings.Repeat("─", width-max(full, 0))
}

// half is the width of the left column of numbers.
const half = 37

// numbers are two columns where there is room, one below the other where not.
func numbers(f Frame, s Shape, p palette) []string {
	r := f.Reading
	left := []string{
		written("rows committed", p.bold(Count(r.Committed)), perSecond(f.Written)),
		written("records published", p.bold(Count(r.Arrived)), perSecond(f.Read)),
		written("in flight", p.bold(Count(uint64(r.InFlight))), ""),
		"",
	}
	last := measured("overall", pair(f.All), "so far")
	if f.All.N != f.Calm.N {
		last = measured("without faults", pair(f.Calm), "so far")
	}
	right := []string{
		measured("lag", p.light(Light{Millis(r.Lag) + " ms", lagMood(r.Lag)}), "unread"),
		measured("slot lag", Bytes(f.SlotLag), "unconfirmed"),
		measured("p50 / p99", pair(f.Second), "last second"),
		last,
	}
	if s.Width < 78 {
		return append(left[:3], right...)
	}
	for i := range left {
		left[i] = strings.TrimRight(pad(left[i], half)+right[i], " ")
	}
	return left
}

// written is a number of the left column.
func written(name, value, remark string) string {
	return fmt.Sprintf(" %-17s %s  %s", name, right(value, 9), remark)
}

// measured is a number of the right column.
func measured(name, value, remark string) string {
	return fmt.Sprintf(" %-14s %s  %s", name, right(value, 14), remark)
}

func right(value string, width int) string {
	return strings.Repeat(" ", max(0, width-columns(value))) + value
}

func pair(q quantiles) string {
	if q.N == 0 {
		return "–"
	}
	return Millis(q.P50) + " / " + Millis(q.P99) + " ms"
}

func perSecond(r float64) string { return Count(uint64(r+.5)) + "/s" }

func lagMood(d time.Duration) Mood {
	switch {
	case d > 2*time.Second:
		return Bad
	case d > 250*time.Millisecond:
		return Uneasy
	default:
		return Plain
	}
}

// plots draws the rate and the lag of the last minute.
func plots(f Frame, s Shape, p palette, height int) []string {
	points := f.Points
	room := min(Minute, max(1, s.Width-label-1))
	points = points[max(0, len(points)-room):]
	rates, lags := make([]float64, len(points)), make([]time.Duration, len(points))
	for i, pt := range points {
		rates[i], lags[i] = pt.Rate, pt.Lag
	}
	fractions, top := Linear(rates)
	rate := plot{"rows/s, last minute", Bars(fractions, height), Count(uint64(top)), "0", Good}
	fractions, longest := Decades(lags)
	lag := plot{"lag, last minute, logarithmic", Bars(fractions, height), duration(longest), "1 ms", Uneasy}
	one, two := rate.draw(points, room, p), lag.draw(points, room, p)
	if s.Width < sideBySide {
		return append(one, two...)
	}
	for i := range one {
		one[i] = pad(one[i], label+Minute+4) + two[i]
	}
	return one
}

func duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

type plot struct {
	title       string
	bars        []string
	top, bottom string
	mood        Mood
}

// draw puts scale, bars and axis together; the newest point is at the right.
func (g plot) draw(points []Point, room int, p palette) []string {
	gap := strings.Repeat(" ", room-len(points))
	lines := []string{" " + p.dim(g.title)}
	for i, bar := range g.bars {
		scale := ""
		switch i {
		case 0:
			scale = g.top
		case len(g.bars) - 1:
			scale = g.bottom
		}
		lines = append(lines, fmt.Sprintf("%*s ", label-2, scale)+p.dim("│")+gap+p.mood(strings.TrimRight(bar, " "), g.mood))
	}
	axis := p.dim("└"+strings.Repeat("─", len([]rune(gap)))) + p.faults(marks(points))
	return append(lines, strings.Repeat(" ", label-1)+axis)
}

// eventLines shows the newest events that fit into room, with an empty line
// before them.
func eventLines(f Frame, room int, p palette) []string {
	if room < 2 || len(f.Events) == 0 {
		return nil
	}
	lines := []string{""}
	for _, e := range f.Events[max(0, len(f.Events)-(room-1)):] {
		lines = append(lines, fmt.Sprintf(" %5s  %s", Clock(e.At), p.mood(e.Text, e.Mood)))
	}
	return lines
}
