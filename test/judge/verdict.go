package judge

import (
	"context"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// Verdict reads the truth to its end, judges, logs the counts, and fails the
// test when a promise was broken.
func Verdict(t testing.TB, truth *Truth, topics [][]kafkaserver.Record, lines []Line, journal *Journal, rules Rules) Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	if err := truth.Read(ctx); err != nil {
		t.Fatal(err)
	}
	e := Evidence{Rows: truth.Rows(), Lines: lines, Journal: journal}
	for _, records := range topics {
		e.Records = append(e.Records, records...)
	}
	report := Check(e, rules)
	t.Log(report.String())
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	return report
}
