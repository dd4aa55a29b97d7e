package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// line is one line of the table: a name, a value, and a remark.
type line struct{ name, value, remark string }

// table is the report for people.
func (r *report) table() string {
	var b strings.Builder
	b.WriteString("\n" + r.headline() + "\n")
	lines := append(r.counts(), r.times()...)
	width := 0
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l.value))
	}
	for _, l := range lines {
		text := fmt.Sprintf("  %-20s  %*s  %s", l.name, width, l.value, l.remark)
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	b.WriteString("\n")
	for _, f := range r.Faults {
		bite := ""
		if !f.Bitten {
			bite = " (it did not bite, and does not count)"
		}
		fmt.Fprintf(&b, "  %5s  %s, %.1f s: %s%s\n", view.Clock(seconds(f.AtS)), f.Name, f.LastedS, f.Detail, bite)
	}
	for _, p := range r.Problems {
		b.WriteString("  WRONG  " + p + "\n")
	}
	return b.String()
}

func (r *report) headline() string {
	if !r.OK {
		return "  VERDICT: BAD\n"
	}
	under := "nothing was disturbed."
	if r.BrokerStops+r.RelayKills > 0 {
		under = fmt.Sprintf("the broker was stopped %s and the relay killed %s.", times(r.BrokerStops), times(r.RelayKills))
	}
	return "  VERDICT: GOOD\n  Nothing lost, nothing out of order, every row SENT;\n  " + under + "\n"
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	default:
		return fmt.Sprintf("%d times", n)
	}
}

func (r *report) counts() []line {
	n := func(v int) string { return view.Count(uint64(max(v, 0))) }
	return []line{
		{"rows committed", n(r.RowsCommitted), "in the table; " + view.Count(uint64(r.RolledBack)) + " more rolled back"},
		{"records published", n(r.RecordsPublished), "in the topics, read from their start"},
		{"lost", n(r.Lost), "committed, and in no topic"},
		{"out of order", n(r.OutOfOrder), "first copies behind a later one"},
		{"duplicates", n(r.Duplicates), "further copies, which may be"},
		{"not SENT", n(r.NotSent), "by the table's status"},
		{"not committed", n(r.NotCommitted), "published, yet rolled back or unknown"},
		{"altered", n(r.Altered), "key or value is not the row's"},
		{"restarts", n(r.Restarts), "of the relay"},
	}
}

func (r *report) times() []line {
	slot := "NOT passed"
	if r.Slot.Passed {
		slot = "passed"
	}
	lines := []line{
		{"p50 / p99", millis(r.P50MS) + " / " + millis(r.P99MS) + " ms", "commit to reader; longest " + millis(r.MaxMS) + " ms"},
	}
	if len(r.Faults) > 0 {
		calm := millis(r.CalmP50MS) + " / " + millis(r.CalmP99MS) + " ms"
		lines = append(lines, line{"without faults", calm, "the " + view.Count(r.CalmRows) + " rows that met none"})
	}
	return append(lines,
		line{"first record", millis(r.FirstRecordMS) + " ms", "after the demo's own start"},
		line{"slot", slot, "confirmed " + r.Slot.Confirmed + ", last " + r.Slot.LastCommit},
	)
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

func millis(v float64) string { return view.Millis(time.Duration(v * float64(time.Millisecond))) }
