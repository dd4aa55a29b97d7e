package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// show prints what was measured, and the bars. It says whether every bar that
// was measured is met.
func (b *bench) show(out *os.File, results []result) (met bool) {
	b.showMachine(out)
	showTable(out, results)
	if b.o.peer != "" {
		showPeer(out, b.o.peerJars)
	}
	if c := crowd(results); c > busyCores {
		fmt.Fprintf(out, "\nThe machine was not idle: up to %.1f cores went to something else in runs that should have been alone. Rates, ratios and bars say little.\n", c)
	}
	return showBars(out, bars(b.o, results))
}

// busyCores is how many cores may go elsewhere before the figures are doubted.
const busyCores = 0.3

func (b *bench) showMachine(out io.Writer) {
	fmt.Fprintf(out, "\n%s · %s, %d cores · %s\n", time.Now().Format("2006-01-02 15:04"), cpuModel(), runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(out, "PostgreSQL %d.%d, fsync on", b.pg.Version()/10000, b.pg.Version()%10000)
	if b.kafka != nil {
		fmt.Fprintf(out, " · Kafka %s, one node, %d partitions, codec %s", kafkaserver.Version, b.o.partitions, b.o.codec)
	}
	fmt.Fprintf(out, "\n%d rows of %d bytes · median of %d · latency with write-back %s\n", b.o.rows, b.o.payload, b.o.repeat, b.o.writeBack)
	fmt.Fprintln(out, "null: the relay's stream, decoder and tracker into a sink that acknowledges at once, without settler and position row")
	if b.o.inProcess {
		fmt.Fprintln(out, "the relay ran inside a child of the bench, not as the binary")
	}
	fmt.Fprintln(out)
}

func showTable(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\trows/tx\tlink\truns\trows/s\tleast\tmost\tx raw\tCPU us/row\twalsender\tbroker\tRSS MB\tp50 ms\tp99 ms\trest cores\tload\t")
	for _, r := range results {
		shape := "-"
		if r.Shape > 0 {
			shape = strconv.Itoa(r.Shape)
		}
		least, most := "-", "-"
		if r.RowsPerS != nil {
			least, most = whole(r.RowsPerSSpread[0]), whole(r.RowsPerSSpread[1])
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.1f\t\n", r.Scenario, shape, r.Link, r.Runs,
			cellText(r.RowsPerS, whole), least, most, cellText(r.RatioToRaw, hundredths),
			cellText(r.CPUPerMillion, hundredths), cellText(r.WalsenderCPUPerMillion, hundredths), cellText(r.BrokerCPUPerMillion, hundredths),
			cellText(r.PeakRSSMB, whole), cellText(r.P50, hundredths), cellText(r.P99, hundredths), r.RestCores, r.Load1)
	}
	_ = w.Flush() // an output that is gone is nobody's loss
}

func cellText(v *float64, format func(float64) string) string {
	if v == nil {
		return "-"
	}
	return format(*v)
}

func hundredths(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// whole parts thousands, as people read them.
func whole(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func showBars(out io.Writer, all []bar) (met bool) {
	met = true
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nbar\twanted\tmeasured\t")
	for _, b := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.text, b.limit(), cellText(b.got, hundredths), b.verdict())
		met = met && (b.got == nil || b.met())
	}
	_ = w.Flush()
	return met
}
