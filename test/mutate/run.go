package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// result is what became of one mutant.
type result struct {
	mutant  mutant
	deaths  []string // why each killer failed, in its words
	outputs []string
	seed    string // with -seeds: the first seed of the simulation that finds it
	took    time.Duration
	err     error // nil: killed by every killer
}

// errAlive is a mutant that its killer did not notice.
var errAlive = errors.New("SURVIVED")

// testTimeout is for one killer. Those that start servers take up to a minute.
const testTimeout = "3m"

// runner holds what the runs share.
type runner struct {
	root string
	dir  string // temporary files
	o    options

	mu    sync.Mutex
	clean map[string]func() error // by killer: whether it passes without a mutation, found out once
	built map[string]func() (string, error)
}

// runAll tries each mutant and returns what became of those that were tried.
func runAll(ctx context.Context, root string, chosen []mutant, o options) ([]result, error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &runner{root: root, dir: dir, o: o, clean: map[string]func() error{}, built: map[string]func() (string, error){}}
	show := newProgress(len(chosen))
	defer show.done()

	results := make([]result, len(chosen))
	next := make(chan int)
	var wg sync.WaitGroup
	for range o.parallel {
		wg.Go(func() {
			for i := range next {
				show.begin(chosen[i])
				results[i] = r.try(ctx, i, chosen[i])
				show.end(results[i])
			}
		})
	}
	for i := range chosen {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	results = slices.DeleteFunc(results, func(r result) bool { return r.mutant.law == "" })
	return results, ctx.Err()
}

// try builds the mutant's tests and runs its killers.
func (r *runner) try(ctx context.Context, n int, m mutant) (res result) {
	began := time.Now()
	res.mutant = m
	defer func() { res.took = time.Since(began) }()
	overlay, err := r.overlay(n, m)
	if err != nil {
		res.err = err
		return res
	}
	if r.o.seeds > 0 {
		res.seed = r.firstSeed(ctx, n, overlay)
		return res
	}
	binaries := map[string]string{}
	for _, k := range m.killers {
		if res.err = r.passesClean(ctx, k); res.err != nil {
			return res
		}
		binary, ok := binaries[k.pkg]
		if !ok {
			if binary, res.err = r.build(ctx, k.pkg, fmt.Sprintf("%d-%d", n, len(binaries)), overlay); res.err != nil {
				res.err = fmt.Errorf("the mutant does not build: %w", res.err)
				return res
			}
			binaries[k.pkg] = binary
			defer func() { _ = os.Remove(binary) }()
		}
		out, err := r.test(ctx, binary, k)
		if err == nil {
			res.deaths = append(res.deaths, errAlive.Error())
			res.err = errors.Join(res.err, fmt.Errorf("%w: %s passes", errAlive, k))
			continue
		}
		res.deaths, res.outputs = append(res.deaths, reason(out)), append(res.outputs, out)
	}
	return res
}

// overlay writes the mutated file and the go command's description of it.
func (r *runner) overlay(n int, m mutant) (string, error) {
	path := filepath.Join(r.root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mutated, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	base := filepath.Join(r.dir, fmt.Sprintf("%d", n))
	if err := os.WriteFile(base+".go", []byte(mutated), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: base + ".go"}})
	if err != nil {
		return "", err
	}
	return base + ".json", os.WriteFile(base+".json", replace, 0o600)
}

// build compiles a package's tests; overlay "" is the product as it is.
func (r *runner) build(ctx context.Context, pkg, name, overlay string) (string, error) {
	binary := filepath.Join(r.dir, name+".test")
	args := []string{"test", "-c", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return binary, nil
}

// passesClean says whether a killer runs and passes without a mutation.
func (r *runner) passesClean(ctx context.Context, k killer) error {
	r.mu.Lock()
	build, ok := r.built[k.pkg]
	if !ok {
		build = sync.OnceValues(func() (string, error) {
			return r.build(ctx, k.pkg, "clean-"+strings.NewReplacer("/", "_", ".", "").Replace(k.pkg), "")
		})
		r.built[k.pkg] = build
	}
	check, ok := r.clean[k.String()]
	if !ok {
		check = sync.OnceValue(func() error {
			binary, err := build()
			if err != nil {
				return err
			}
			out, err := r.test(ctx, binary, k)
			switch {
			case err != nil:
				return fmt.Errorf("%s fails without the mutation: %s", k, reason(out))
			case !strings.Contains(out, "--- PASS: "+k.printed()+" ("):
				return fmt.Errorf("%s does not run: is it skipped, or has it another name?", k)
			}
			return nil
		})
		r.clean[k.String()] = check
	}
	r.mu.Unlock()
	return check()
}

// test runs one killer and returns what it said.
func (r *runner) test(ctx context.Context, binary string, k killer, args ...string) (string, error) {
	args = append([]string{"-test.v", "-test.timeout", testTimeout, "-test.run", k.pattern()}, args...)
	if k.usesRapid(r.root) {
		args = append(args, "-rapid.nofailfile") // which would be kept beside the tests
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(r.root, k.pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return out.String(), ctx.Err()
	}
	return out.String(), err
}

var (
	testLine  = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+:\s+(.*)$`)
	panicLine = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)
	seedLine  = regexp.MustCompile(`seed (\d+): `)
)

// reason finds the words with which a test died.
func reason(out string) string {
	if m := panicLine.FindString(out); m != "" {
		return m
	}
	lines := testLine.FindAllStringSubmatch(out, -1)
	for _, line := range slices.Backward(lines) { // what came before may be a log
		if words := strings.TrimSpace(line[1]); words != "" && !strings.HasPrefix(words, "[rapid] draw") {
			return words
		}
	}
	return "no words"
}
