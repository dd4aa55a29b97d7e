package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

func cpus() int { return runtime.NumCPU() }

// prefetch downloads what the tiers need and are allowed to, so that no test
// waits for it. A tier that cannot be fetched comes back as missing.
func prefetch(ctx context.Context, tiers []tier) []tier {
	tiers = slices.Clone(tiers)
	todo := 0
	for _, t := range tiers {
		if t.fetch != nil && t.missing == nil {
			todo++
		}
	}
	if todo == 0 {
		return tiers
	}
	show := newProgress(todo)
	defer show.done()
	for i, t := range tiers {
		if t.fetch == nil || t.missing != nil {
			continue
		}
		show.begin(t.name)
		tiers[i].missing = t.fetch(ctx)
		show.end()
	}
	return tiers
}

// progress is a bar on a terminal and a line per part elsewhere.
type progress struct {
	bar   *progressbar.ProgressBar // nil without a terminal
	name  string
	start time.Time
}

func newProgress(parts int) *progress {
	p := &progress{}
	if isatty.IsTerminal(os.Stderr.Fd()) {
		p.bar = progressbar.NewOptions(parts, progressbar.OptionSetWriter(os.Stderr),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionFullWidth())
	}
	return p
}

func (p *progress) begin(name string) {
	p.name, p.start = name, time.Now()
	if p.bar != nil {
		p.bar.Describe("fetching " + name)
		_ = p.bar.RenderBlank()
		return
	}
	fmt.Fprintf(os.Stderr, "fetching %s ...\n", name)
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Add(1)
		return
	}
	fmt.Fprintf(os.Stderr, "fetching %s: %.1f s\n", p.name, time.Since(p.start).Seconds())
}

func (p *progress) done() {
	if p.bar != nil {
		fmt.Fprintln(os.Stderr)
	}
}

// test runs the tests of the chosen tier. Packages run side by side, at most
// four and at most one per CPU, because real servers need the rest.
func test(ctx context.Context, o options) error {
	args := []string{"tool", "gotestsum", "--format", "pkgname", "--format-hide-empty-pkg", "--",
		"-timeout", o.timeout, "-p", strconv.Itoa(min(4, cpus()))}
	if o.race {
		args = append(args, "-race")
	}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	cmd := command(ctx, append(args, o.packages...)...)
	cmd.Env = append(os.Environ(), harness.EnvTier+"="+o.tier)
	return cmd.Run()
}

// testContainers runs the smoke test of the Docker tier.
func testContainers(ctx context.Context) error {
	cmd := command(ctx, "test", "-count=1", "-tags", "containers", "-run", "TestContainer", "./test/harness")
	cmd.Env = append(os.Environ(), harness.EnvContainers+"=1")
	return cmd.Run()
}

// command is go with this terminal. On Ctrl-C it is asked, not killed, so that
// tests can clean up.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}
