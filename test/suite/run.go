package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// alone are the packages whose tests start several servers each and wait for
// what a loaded machine does late: they run one after the other, last.
var alone = []string{"/test/e2e", "/test/chaos", "/test/chaos/broker"}

// test runs the tests of the chosen tier: first all packages side by side, at
// most four and at most one per CPU, because real servers need the rest; then
// those that want the machine for themselves.
func test(ctx context.Context, o options) error {
	together, single, err := split(ctx, o.packages, o.everything)
	if err != nil {
		return err
	}
	err = gotestsum(ctx, o, min(4, cpus()), together)
	err = errors.Join(err, gotestsum(ctx, o, 1, single))
	if o.everything {
		fmt.Println("NOT PART OF THIS: the fault campaign under test/chaos (make chaos)")
	}
	return err
}

// campaign is in the path of packages that run only when they are named: a
// quarter of an hour of faults, for which make test has no time.
const campaign = "/test/chaos"

// split lists the packages and parts those that run alone from the rest.
func split(ctx context.Context, patterns []string, everything bool) (together, single []string, err error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list"}, patterns...)...).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("listing packages: %w", err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		if everything && strings.Contains(pkg, campaign) {
			continue
		}
		if slices.ContainsFunc(alone, func(suffix string) bool { return strings.HasSuffix(pkg, suffix) }) {
			single = append(single, pkg)
		} else {
			together = append(together, pkg)
		}
	}
	return together, single, nil
}

// gotestsum runs packages, so many at a time, and prints the runner's summary.
func gotestsum(ctx context.Context, o options, atOnce int, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	args := []string{"tool", "gotestsum", "--format", "pkgname", "--format-hide-empty-pkg", "--",
		"-timeout", o.timeout, "-p", strconv.Itoa(atOnce)}
	if o.race {
		args = append(args, "-race")
	}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	cmd := command(ctx, append(args, packages...)...)
	cmd.Env = append(os.Environ(), harness.EnvTier+"="+o.tier)
	return cmd.Run()
}

// testContainers runs the smoke tests of the Docker tier.
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
