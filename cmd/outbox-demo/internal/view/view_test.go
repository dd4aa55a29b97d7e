package view_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// Law: a bar is as high as its fraction, in eighths; nothing is blank, and
// anything above nothing shows.
func TestBars(t *testing.T) {
	t.Parallel()
	got := view.Bars([]float64{0, .0001, .25, .5, .5625, 1, 3, -1}, 2)
	want := []string{"    ▁██ ", " ▁▄████ "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Law: the linear scale ends at a round number at or above every value.
func TestLinear(t *testing.T) {
	t.Parallel()
	for value, top := range map[float64]float64{0: 1, 1: 1, 1.2: 1.5, 3: 3, 3.1: 4, 499: 500, 500: 500, 501: 600, 1200: 1500, 8001: 10000} {
		fractions, got := view.Linear([]float64{0, value})
		if got != top || fractions[1] != value/top {
			t.Errorf("%v: top %v and fraction %v, want top %v", value, got, fractions[1], top)
		}
	}
}

// Law: on the logarithmic scale a second is in the middle between a
// millisecond and a thousand seconds' decade, none is 0, and the shortest
// still shows.
func TestDecades(t *testing.T) {
	t.Parallel()
	fractions, top := view.Decades([]time.Duration{0, time.Microsecond, time.Millisecond, 100 * time.Millisecond, 7 * time.Second})
	if top != 10*time.Second {
		t.Errorf("top %v", top)
	}
	if fractions[0] != 0 || !(fractions[1] > 0) || !(fractions[2] > 0) || fractions[3] != .5 || fractions[4] > 1 || fractions[4] < .9 {
		t.Errorf("fractions %v", fractions)
	}
	if _, top := view.Decades(nil); top != time.Second {
		t.Errorf("top of nothing: %v", top)
	}
}

func frame(points, events int) view.Frame {
	f := view.Frame{
		Title: "Outbox Relay demo · PostgreSQL 15.18 · in-process Kafka", Elapsed: 23 * time.Second, Total: 45 * time.Second,
		Phase: view.Light{Word: "writing", Mood: view.Good},
		Relay: view.Light{Word: "streaming (pid 4242)", Mood: view.Good}, Broker: view.Light{Word: "stopped", Mood: view.Bad},
		Reading: meter.Reading{Counts: meter.Counts{Committed: 1234567, Arrived: 1234560}, InFlight: 7, Lag: 3 * time.Second},
		SlotLag: 48 << 10, Written: 500, Read: 498,
		Second: meter.Quantiles{P50: 3 * time.Millisecond, P99: 9 * time.Millisecond, N: 5},
		All:    meter.Quantiles{P50: 3 * time.Millisecond, P99: 4 * time.Second, N: 9},
	}
	for i := range points {
		p := view.Point{Rate: 500, Lag: 4 * time.Millisecond}
		if i%20 > 16 {
			p = view.Point{Lag: 3 * time.Second, Fault: view.BrokerDown}
		}
		f.Points = append(f.Points, p)
	}
	for i := range events {
		f.Events = append(f.Events, view.Event{At: time.Duration(i) * time.Second, Text: "something happened that takes quite a number of words to tell, more than a line", Mood: view.Uneasy})
	}
	return f
}

func plainText(line string) string {
	var b strings.Builder
	escape := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Law: no picture is wider or higher than the screen, with and without colour,
// and colour changes no character.
func TestPictureFitsAnyScreen(t *testing.T) {
	t.Parallel()
	for _, points := range []int{0, 60} {
		for _, events := range []int{0, 9} {
			f := frame(points, events)
			for width := 1; width < 200; width += 13 {
				for height := 1; height < 60; height += 6 {
					colour := view.Lines(f, view.Shape{Width: width, Height: height, Colour: true})
					plain := view.Lines(f, view.Shape{Width: width, Height: height})
					if len(plain) >= height && height > 1 || len(colour) != len(plain) {
						t.Fatalf("%dx%d: %d and %d lines", width, height, len(plain), len(colour))
					}
					for i := range plain {
						if n := utf8.RuneCountInString(plain[i]); n > width {
							t.Fatalf("%dx%d: line %d has %d columns: %q", width, height, i, n, plain[i])
						}
						if plainText(colour[i]) != plain[i] {
							t.Fatalf("%dx%d: colour changed %q to %q", width, height, plain[i], plainText(colour[i]))
						}
					}
				}
			}
		}
	}
}

// Law: at 80 columns and at a wide screen the picture is the one on file; it
// holds both plots, the marks of faults and the events.
func TestPictures(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]view.Shape{"80x24": {Width: 80, Height: 24}, "160x40": {Width: 160, Height: 40}} {
		got := strings.Join(view.Lines(frame(45, 3), shape), "\n") + "\n"
		file := "testdata/" + name + ".txt"
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs (-file +got); UPDATE_GOLDEN=1 rewrites it:\n%s", file, diff)
		}
	}
}

// Law: numbers are printed the same everywhere, with units a person reads.
func TestFormats(t *testing.T) {
	t.Parallel()
	got := strings.Join([]string{
		view.Count(0), view.Count(999), view.Count(1000), view.Count(12345678),
		view.Bytes(-1), view.Bytes(9000), view.Bytes(48 << 10), view.Bytes(99 << 20),
		view.Millis(0), view.Millis(1500 * time.Microsecond), view.Millis(12345 * time.Millisecond), view.Clock(83 * time.Second),
	}, "|")
	if want := "0|999|1,000|12,345,678|?|9,000 B|48 KiB|99 MiB|0|1.5|12,345|1:23"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Law: where there is no terminal each event is told once, in order, and there
// is one line for each second, however often a frame is shown.
func TestPlainTellsEverythingOnce(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	s := view.NewScreen(file, func() { t.Error("the file was lost") })
	f := frame(3, 0)
	for i := range 20 { // 0 to 3.8 s
		f.Elapsed = time.Duration(i) * 200 * time.Millisecond
		if i%5 == 2 {
			f.Events = append(f.Events, view.Event{At: f.Elapsed, Text: fmt.Sprint("event ", i)})
		}
		s.Show(f)
	}
	s.Leave()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for l := range strings.Lines(string(text)) {
		got = append(got, strings.Join(strings.Fields(l)[1:4], " "))
	}
	want := []string{"0:00 of 0:45", "0:00 event 2", "0:01 of 0:45", "0:01 event 7", "0:02 of 0:45", "0:02 event 12", "0:03 of 0:45", "0:03 event 17"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Law: a screen that nobody reads any more is reported, and does not end the
// process.
func TestLostScreenIsReported(t *testing.T) {
	t.Parallel()
	reads, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writes.Close() }()
	lost := 0
	s := view.NewScreen(writes, func() { lost++ })
	s.Line("heard")
	if err := reads.Close(); err != nil {
		t.Fatal(err)
	}
	if lost != 0 {
		t.Error("lost while somebody reads")
	}
	s.Line("unheard")
	if lost != 1 {
		t.Errorf("told %d times of one lost line", lost)
	}
}
