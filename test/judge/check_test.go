package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// run is a small world: rows 0..n-1 of alternating keys a and b, and a topic
// that holds them as the plan says.
func run(n int, plan ...int) Evidence {
	var e Evidence
	topic := "t"
	for i := range n {
		e.Rows = append(e.Rows, Row{
			Rank: i, ID: fmt.Sprint(i), EventID: fmt.Sprintf("e%d", i), Topic: &topic,
			Key: []byte{"ab"[i%2]}, Payload: fmt.Append(nil, "payload ", i),
		})
	}
	for at, i := range plan {
		e.Records = append(e.Records, recordOf(e.Rows[i], int64(at)))
	}
	return e
}

func recordOf(r Row, offset int64) kafkaserver.Record {
	return kafkaserver.Record{
		Topic: *r.Topic, Offset: offset, Key: r.Key, Value: r.Payload, Timestamp: time.Unix(int64(r.Rank), 0),
		Headers: []kafkaserver.Header{{Key: HeaderID, Value: []byte(r.EventID)}},
	}
}

// Law: the judge lets a right history pass: in order, with a replay from any
// point, with a waiting row, a scheduled row and a row without a key.
func TestCheckPassesRightHistories(t *testing.T) {
	t.Parallel()
	failed := 3
	scheduled := run(3, 1, 2, 0)
	scheduled.Rows[0].Scheduled = true
	keyless := run(3, 1, 2, 0)
	keyless.Rows[0].Key, keyless.Records[2].Key = nil, nil
	waiting := run(3, 0, 1)
	waiting.Lines = []Line{{EventID: "e2", Reason: "refused", Status: &failed}}
	vanished := run(3, 0, 1)
	vanished.Lines = []Line{{EventID: "e2", Reason: "refused"}}
	for name, c := range map[string]struct {
		evidence Evidence
		rules    Rules
		want     string
	}{
		"plain":           {run(4, 0, 1, 2, 3), Rules{}, "published=4 waiting=0 lost=0"},
		"replay":          {run(4, 0, 1, 2, 1, 2, 3), Rules{Restarts: 1}, "duplicates=2"},
		"replay of all":   {run(3, 0, 1, 2, 0, 1, 2), Rules{Restarts: 1}, "replays=1"},
		"keys interleave": {run(4, 1, 0, 3, 2), Rules{}, "out_of_order=0"},
		"replay, skipped": {run(4, 0, 1, 2, 0, 2, 3), Rules{Restarts: 1, SkipsSettled: true}, "duplicates=2"},
		"scheduled":       {scheduled, Rules{}, "published=3"},
		"keyless":         {keyless, Rules{}, "published=3"},
		"waiting":         {waiting, Rules{}, "waiting=1"},
		"row gone":        {vanished, Rules{}, "waiting=1"},
		"discarded":       {run(3, 0, 1), Rules{Discarded: map[string]bool{"e2": true}}, "lost=0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Check(c.evidence, c.rules)
			if err := report.Err(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(report.String(), c.want) {
				t.Errorf("report %s, want %s", report, c.want)
			}
		})
	}
}

// Law: each kind of wrong history is caught, by its own count.
func TestCheckCatches(t *testing.T) {
	t.Parallel()
	ready, sent := 0, 2
	change := func(e Evidence, f func(*Evidence)) Evidence { f(&e); return e }
	line := func(status *int) func(*Evidence) {
		return func(e *Evidence) { e.Lines = []Line{{EventID: "e2", Reason: "refused", Status: status}} }
	}
	copied := run(2, 0, 1, 0, 1)
	for name, c := range map[string]struct {
		evidence Evidence
		rules    Rules
		want     string
	}{
		"lost row":         {run(3, 0, 2), Rules{}, "lost=1"},
		"lost last row":    {run(3, 0, 1), Rules{}, "lost=1"},
		"line but READY":   {change(run(3, 0, 1), line(&ready)), Rules{}, "hidden=1"},
		"line but SENT":    {change(run(3, 0, 1), line(&sent)), Rules{}, "hidden=1"},
		"swapped pair":     {run(4, 0, 3, 2, 1), Rules{}, "out_of_order=1"},
		"late first copy":  {run(4, 0, 1, 3, 1, 2), Rules{Restarts: -1}, "bad_replays=1"},
		"second partition": {change(run(4, 0, 1, 2, 3), func(e *Evidence) { e.Records[2].Partition = 1 }), Rules{}, "out_of_order=1"},
		"invented row":     {change(run(2, 0, 1), func(e *Evidence) { e.Rows = e.Rows[:1] }), Rules{}, "invented=1"},
		"no id":            {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Headers = nil }), Rules{}, "invented=1"},
		"gap in a replay":  {run(4, 0, 1, 2, 0, 2, 3), Rules{Restarts: 1}, "bad_replays=1"},
		"replay stops":     {run(4, 0, 1, 2, 3, 0, 1), Rules{Restarts: 1}, "bad_replays=1"},
		"too many replays": {run(2, 0, 1, 0, 1, 0, 1), Rules{Restarts: 1}, "bad_replays=1"},
		"replay, no fault": {run(2, 0, 1, 1), Rules{}, "bad_replays=1"},
		"wrong value":      {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Value = []byte("x") }), Rules{}, "altered=1"},
		"null for empty":   {change(run(2, 0, 1), func(e *Evidence) { e.Rows[1].Payload, e.Records[1].Value = []byte{}, nil }), Rules{}, "altered=1"},
		"wrong key":        {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Key = []byte("a") }), Rules{}, "altered=1"},
		"wrong topic":      {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Topic = "u" }), Rules{}, "altered=1"},
		"copy, other time": {change(copied, func(e *Evidence) { e.Records = clone(e); e.Records[2].Timestamp = time.Unix(9, 0) }), Rules{Restarts: 1}, "altered=1"},
		"copy, more header": {change(copied, func(e *Evidence) {
			e.Records = clone(e)
			e.Records[3].Headers = append(clone(e)[3].Headers, kafkaserver.Header{Key: "x"})
		}), Rules{Restarts: 1}, "altered=1"},
		"journal, unknown": {change(run(1, 0), func(e *Evidence) { e.Journal = &Journal{Committed: []string{"e0", "e9"}} }), Rules{}, "disagreeing=1"},
		"journal, aborted": {change(run(1, 0), func(e *Evidence) { e.Journal = &Journal{Aborted: []string{"e0"}} }), Rules{}, "disagreeing=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Check(c.evidence, c.rules)
			if report.Err() == nil {
				t.Fatalf("passed: %s", report)
			}
			if !strings.Contains(report.String(), c.want) {
				t.Errorf("report %s\nwant %s", report, c.want)
			}
			if len(report.Problems) == 0 {
				t.Error("a failing report names no problem")
			}
		})
	}
}

func clone(e *Evidence) []kafkaserver.Record {
	return append([]kafkaserver.Record(nil), e.Records...)
}

// Law: a thousand problems are counted in full and a few are spelled out.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	report := Check(run(1000), Rules{})
	if report.Lost != 1000 || len(report.Problems) != shown {
		t.Errorf("lost %d, spelled out %d", report.Lost, len(report.Problems))
	}
}
