package main

import (
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
)

// progress shows how far the bench is: bars on a terminal, lines elsewhere.
type progress struct {
	out      *os.File
	terminal bool
}

func newProgress(out *os.File) *progress {
	return &progress{out: out, terminal: isatty.IsTerminal(out.Fd())}
}

// say prints a line.
func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// bar shows work of a known size. add is told of what was done, and what is
// done now; both may be called from one goroutine at a time.
func (p *progress) bar(total int, title string) (add func(n int), now func(string)) {
	if !p.terminal {
		p.say("%s", title)
		return func(int) {}, func(what string) { p.say("  %s %s", time.Now().Format(time.TimeOnly), what) }
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(24), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(p.out) }))
	return func(n int) { _ = bar.Add(n) }, func(what string) { bar.Describe(title + ": " + what) }
}
