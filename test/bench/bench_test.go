package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

// TestMain lets the test binary serve the hidden modes, as the program does.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == childArgument {
		os.Exit(childMain(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// TestBacklogIsMeasured is the thread through the whole: a small backlog is
// drained raw, by the null sink and by a relay into kfake, each run finds every
// row, and the file holds the promised keys.
func TestBacklogIsMeasured(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.PostgresMajor(major))
	out := filepath.Join(t.TempDir(), "bench.jsonl")
	o, err := parseOptions([]string{"--rows", "2000", "--repeat", "2", "--shape", "10", "--link", "tcp,unix",
		"--only", "raw,null,kfake", "--in-process", "--quiet", "0s", "--out", out}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{o: o, progress: newProgress(os.Stderr)}
	defer b.close()
	if err := b.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := writeLines(out, summarise(b.cells)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != 7 { // raw, null and kfake over two links, gulps over one
		t.Fatalf("%d lines, want 7", len(lines))
	}
	for _, line := range lines {
		checkLine(t, line)
	}
}

func checkLine(t *testing.T, line []byte) {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"scenario", "rows", "rows_per_s", "ratio_to_raw", "cpu_s_per_million", "peak_rss_mb", "p50_ms", "p99_ms"} {
		if _, there := r[k]; !there {
			t.Errorf("%v: no key %q", r["scenario"], k)
		}
	}
	if r["rows"] != 2000.0 || r["rows_per_s"] == nil || r["ratio_to_raw"] == nil || r["p50_ms"] != nil || len(r["samples"].([]any)) != 2 {
		t.Errorf("unexpected figures: %s", line)
	}
}

// TestMissingRowsAreAnError proves that a run which did not publish every row
// gives no figure: the null sink is asked for one row more than there is.
func TestMissingRowsAreAnError(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.PostgresMajor(major))
	o, err := parseOptions([]string{"--rows", "1000", "--shape", "1", "--quiet", "0s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{o: o, progress: newProgress(os.Stderr)}
	defer b.close()
	if b.dir, err = tempDir(); err != nil {
		t.Fatal(err)
	}
	if b.pg, err = startServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := loadBacklog(t.Context(), b, 1, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	l.rows++
	if _, err := runNull(t.Context(), b, l, nullRun{link: tcp}); err == nil || !strings.Contains(err.Error(), "1000 rows, want 1001") {
		t.Fatalf("got %v", err)
	}
}

// TestStalledRunIsGivenUp proves that a run which never ends costs its limit and
// its figure, and that the others go on.
func TestStalledRunIsGivenUp(t *testing.T) {
	t.Parallel()
	stalled := &cell{scenario: "stalled", run: func(ctx context.Context) (sample, error) {
		<-ctx.Done()
		return sample{}, context.Cause(ctx)
	}}
	other := &cell{scenario: "other", run: func(context.Context) (sample, error) { return sample{Rows: 1, Seconds: 1}, nil }}
	b := &bench{o: options{repeat: 2, limit: 10 * time.Millisecond}, progress: newProgress(os.Stderr)}
	b.rounds(t.Context(), []*cell{stalled, other})
	if stalled.err == nil || !strings.Contains(stalled.err.Error(), "not done within 10ms") || len(stalled.samples) != 0 {
		t.Errorf("stalled: %v, %d samples", stalled.err, len(stalled.samples))
	}
	if other.err != nil || len(other.samples) != 2 {
		t.Errorf("other: %v, %d samples", other.err, len(other.samples))
	}
}

// TestOptionsAreChecked proves that a mistake on the command line is named
// before anything is started.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--only raw,nul", `unknown scenario "nul"`},
		{"--link udp", `unknown link "udp"`},
		{"--shape 0", `"0" is not a positive number`},
		{"--rates x", `"x" is not a positive number`},
		{"--rows 10", "at least 1000 rows"},
		{"extra", `unexpected argument "extra"`},
	} {
		if _, err := parseOptions(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := parseOptions([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: got %v", err)
	}
}

// TestSummaryTakesMedians proves the figures of a line on samples whose answer
// is known, ratios and bars included.
func TestSummaryTakesMedians(t *testing.T) {
	t.Parallel()
	at := func(seconds, cpu float64) sample { return sample{Rows: 1000, Seconds: seconds, CPU: cpu, PeakRSS: 5e6} }
	cells := []*cell{
		{scenario: "raw", shape: 10, link: tcp, samples: []sample{at(1, .004), at(4, .004), at(2, .004)}, loads: []float64{1, 3, 2}},
		{scenario: "kafka-off", shape: 10, link: tcp, samples: []sample{at(2, .005), at(1, .007)}, loads: []float64{0, 0}},
		{scenario: "kafka-status", shape: 10, link: tcp, loads: nil}, // failed at once
	}
	all := summarise(cells)
	if len(all) != 2 {
		t.Fatalf("%d results, want 2", len(all))
	}
	raw, off := all[0], all[1]
	if *raw.RowsPerS != 500 || raw.RowsPerSSpread != [2]float64{250, 1000} || *raw.CPUPerMillion != 4 || *raw.PeakRSSMB != 5 || raw.Load1 != 3 {
		t.Errorf("raw: %+v", raw)
	}
	if *off.RowsPerS != 750 || *off.RatioToRaw != 1.5 || *off.CPUPerMillion != 6 || off.P50 != nil {
		t.Errorf("kafka-off: %+v", off)
	}
	verdicts := map[string]int{}
	for _, b := range bars(options{codec: "none", gulp: time.Second, rates: []int{200}, links: []string{tcp}}, all) {
		verdicts[b.verdict()]++
	}
	if verdicts["met"] != 2 || verdicts["MISSED"] != 0 || verdicts["not measured"] != 6 {
		t.Errorf("verdicts: %v", verdicts)
	}
}

// TestUnreachedRateIsNotJudged proves that a latency bar is left open when the
// writers did not reach the rate that it speaks of: two runs that are alike
// but for the rate differ in the verdict.
func TestUnreachedRateIsNotJudged(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{1: "met", 2: "rate not reached"} {
		run := []sample{{Rows: 200, Seconds: seconds, P50: 1, P99: 2}}
		cells := []*cell{
			{scenario: "floor-200", shape: 1, link: tcp, rate: 200, samples: run, loads: []float64{0}},
			{scenario: "latency-200", shape: 1, link: tcp, rate: 200, samples: run, loads: []float64{0}},
		}
		all := bars(options{rates: []int{200}, links: []string{tcp}}, summarise(cells))
		if got := all[len(all)-1].verdict(); got != want {
			t.Errorf("%v s: %s, want %s", seconds, got, want)
		}
	}
}

// TestCrowdIsSeen proves that work beside a run that should be alone shows, and
// that the bench's own writers in a latency run do not count as such.
func TestCrowdIsSeen(t *testing.T) {
	t.Parallel()
	if got := crowd([]result{{Scenario: "raw", RestCores: .2}, {Scenario: "kafka-off", RestCores: .7}, {Scenario: "latency-200", RestCores: 1.5}}); got != .7 {
		t.Errorf("crowd %v, want 0.7", got)
	}
}

// TestBarsAreMissed proves that a bar can be missed from either side.
func TestBarsAreMissed(t *testing.T) {
	t.Parallel()
	low, high := 1.0, 2.0
	for _, c := range []struct {
		bar  bar
		want string
	}{
		{bar{want: 1.5, got: &low}, "MISSED"}, {bar{want: 1.5, got: &high}, "met"},
		{bar{want: 1.5, most: true, got: &low}, "met"}, {bar{want: 1.5, most: true, got: &high}, "MISSED"},
		{bar{want: 1.5}, "not measured"},
	} {
		if got := c.bar.verdict(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.bar, got, c.want)
		}
	}
}

// TestQuantiles proves the ranks on values that name themselves.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	var rising []float64
	for i := range 100 {
		rising = append(rising, float64(i))
	}
	if p50, p99, none := quantile(rising, .5), quantile(rising, .99), quantile(nil, .5); p50 != 50 || p99 != 99 || none != 0 {
		t.Errorf("p50 %v, p99 %v, of none %v", p50, p99, none)
	}
	if got := whole(1234567.8); got != "1,234,568" {
		t.Errorf("whole: %s", got)
	}
}
