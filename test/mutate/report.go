package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
)

// document has the table between two markers.
const (
	document    = "docs/guarantees.md"
	markerBegin = "<!-- mutants: begin (go run ./test/mutate -md) -->"
	markerEnd   = "<!-- mutants: end -->"
)

func printList(w io.Writer, all []mutant) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LAW\tMUTANT\tIN\tKILLED BY")
	for _, m := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", m.law, m.what, m.file, m.killerNames(", "))
	}
	_ = table.Flush()
}

// longestReason is how much of a test's last words a line has room for.
const longestReason = 90

func printResults(w io.Writer, results []result, o options) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if o.seeds > 0 {
		fmt.Fprintln(table, "LAW\tMUTANT\tFIRST SEED")
		for _, r := range results {
			fmt.Fprintf(table, "%s\t%s\t%s\n", r.mutant.law, r.mutant.what, r.seed)
		}
		_ = table.Flush()
		return
	}
	fmt.Fprintln(table, "LAW\tMUTANT\tKILLED BY\tWITH THE WORDS\tS")
	for _, r := range results {
		for i, k := range r.mutant.killers {
			death := "-"
			if i < len(r.deaths) {
				death = r.deaths[i]
			}
			law, what, took := r.mutant.law, r.mutant.what, fmt.Sprintf("%.1f", r.took.Seconds())
			if i > 0 {
				law, what, took = "", "", ""
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", law, what, k, cut(death), took)
		}
	}
	_ = table.Flush()
	if o.verbose {
		for _, r := range results {
			for _, out := range r.outputs {
				fmt.Fprintf(w, "\n=== %s, %s\n%s", r.mutant.law, r.mutant.what, out)
			}
		}
	}
}

func cut(text string) string {
	if r := []rune(text); len(r) > longestReason {
		return string(r[:longestReason]) + "..."
	}
	return text
}

// markdown is the table as the document has it.
func markdown(all []mutant) string {
	var b strings.Builder
	b.WriteString("| law | the mutant | in | dies by |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", m.law, m.what, m.file, m.killerNames("<br>"))
	}
	return b.String()
}

// splice puts the table between the document's markers.
func splice(text, table string) (string, error) {
	before, rest, ok := strings.Cut(text, markerBegin)
	_, after, ok2 := strings.Cut(rest, markerEnd)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s lacks the markers %s and %s", document, markerBegin, markerEnd)
	}
	return before + markerBegin + "\n" + table + markerEnd + after, nil
}

func writeDocument(root string, all []mutant) error {
	path := filepath.Join(root, document)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	next, err := splice(string(text), markdown(all))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(next), 0o644)
}

// progress is a bar on a terminal and a line per mutant elsewhere.
type progress struct {
	mu    sync.Mutex
	bar   *progressbar.ProgressBar // nil without a terminal
	under []string                 // what is being tried
}

func newProgress(n int) *progress {
	p := &progress{}
	if isatty.IsTerminal(os.Stderr.Fd()) {
		p.bar = progressbar.NewOptions(n, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(24), progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond))
	}
	return p
}

func (p *progress) begin(m mutant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under = append(p.under, m.law)
	if p.bar != nil {
		p.bar.Describe(strings.Join(p.under, " "))
	}
}

func (p *progress) end(r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.under, r.mutant.law); i >= 0 {
		p.under = slices.Delete(p.under, i, i+1)
	}
	if p.bar != nil {
		p.bar.Describe(strings.Join(p.under, " "))
		_ = p.bar.Add(1)
		return
	}
	word := "killed"
	if r.err != nil {
		word = "NOT KILLED"
	}
	fmt.Fprintf(os.Stderr, "%-4s %-10s %5.1f s  %s\n", r.mutant.law, word, r.took.Seconds(), r.mutant.what)
}

func (p *progress) done() {
	if p.bar != nil {
		fmt.Fprintln(os.Stderr)
	}
}
