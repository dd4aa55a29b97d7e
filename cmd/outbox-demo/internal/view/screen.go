package view

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// Screen shows frames, one after the other, and lines of progress before and
// after them. Use it from one goroutine.
type Screen struct {
	out    io.Writer
	lost   func() // called at each error of writing
	shape  func() Shape
	live   bool
	drawn  int // lines of the picture that stands now
	width  int // when it was drawn
	second int // of the last progress line, where there is no picture
	told   Event
}

// NewScreen shows on f: a picture where it is a terminal, lines elsewhere. It
// honours NO_COLOR and TERM=dumb. lost is called when nobody sees the screen
// any more.
func NewScreen(f *os.File, lost func()) *Screen {
	live := term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	return &Screen{out: f, lost: lost, live: live, second: -1, shape: func() Shape {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		return Shape{Width: width, Height: height, Colour: os.Getenv("NO_COLOR") == ""}
	}}
}

// Line prints one line of progress, below the picture if one stands.
func (s *Screen) Line(format string, args ...any) {
	s.Leave()
	s.write(fmt.Sprintf("demo: "+format+"\n", args...))
}

// Print prints text as it is, below the picture if one stands.
func (s *Screen) Print(text string) {
	s.Leave()
	s.write(text)
}

func (s *Screen) write(text string) {
	if _, err := io.WriteString(s.out, text); err != nil {
		s.lost()
	}
}

// Show draws the frame in the place of the last one. Where there is no
// terminal it prints one line a second.
func (s *Screen) Show(f Frame) {
	if !s.live {
		s.plain(f)
		return
	}
	shape := s.shape()
	lines := Lines(f, shape)
	var b strings.Builder
	switch {
	case s.drawn == 0:
		b.WriteString("\x1b[?25l") // hide the cursor
	case s.width != shape.Width:
		// The terminal has broken the old lines anew; nobody knows where.
		b.WriteString("\x1b[H\x1b[J")
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r", s.drawn)
	}
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\n")
	}
	b.WriteString("\x1b[J") // a shorter picture leaves nothing of a longer one
	s.drawn, s.width = len(lines), shape.Width
	s.write(b.String())
}

// Leave lets the picture stand and gives the cursor back.
func (s *Screen) Leave() {
	if s.drawn > 0 {
		s.write("\x1b[?25h\n")
		s.drawn = 0
	}
}

// plain prints what happened since the last call, and one line a second.
func (s *Screen) plain(f Frame) {
	for _, e := range f.Events[slices.Index(f.Events, s.told)+1:] {
		s.write(fmt.Sprintf("demo: %s %s\n", Clock(e.At), e.Text))
		s.told = e
	}
	second := int(f.Elapsed / time.Second)
	if second == s.second {
		return
	}
	s.second = second
	r := f.Reading
	s.write(fmt.Sprintf("demo: %s of %s %s: relay %s, broker %s, committed %d, published %d (%.0f/s), in flight %d, lag %s ms, slot lag %s, p50/p99 %s\n",
		Clock(f.Elapsed), Clock(f.Total), f.Phase.Word, f.Relay.Word, f.Broker.Word,
		r.Committed, r.Arrived, f.Read, r.InFlight, Millis(r.Lag), Bytes(f.SlotLag), pair(f.Second)))
}
