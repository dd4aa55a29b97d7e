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
		"plain":            {run(4, 0, 1, 2, 3), Rules{}, "published=4 waiting=0 lost=0"},
		"replay":           {run(4, 0, 1, 2, 1, 2, 3), Rules{Restarts: 1}, "duplicates=2"},
		"replay of all":    {run(3, 0, 1, 2, 0, 1, 2), Rules{Restarts: 1}, "replays=1"},
		"keys interleave":  {run(4, 1, 0, 3, 2), Rules{}, "out_of_order=0"},
		"settled left out": {run(4, 0, 1, 2, 3, 0, 2), Rules{Restarts: 1, Settled: map[string]bool{"e1": true, "e3": true}}, "replays=1"},
		"nothing waits":    {run(2, 0, 1), Rules{NoLines: true}, "waiting=0"},
		"replay, skipped":  {run(4, 0, 1, 2, 0, 2, 3), Rules{Restarts: 1, SkipsSettled: true}, "duplicates=2"},
		"scheduled":        {scheduled, Rules{}, "published=3"},
		"keyless":          {keyless, Rules{}, "published=3"},
		"waiting":          {waiting, Rules{}, "waiting=1"},
		"row gone":         {vanished, Rules{}, "waiting=1"},
		"discarded":        {run(3, 0, 1), Rules{Discarded: map[string]bool{"e2": true}}, "lost=0"},
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
		"lost row":          {run(3, 0, 2), Rules{}, "lost=1"},
		"lost last row":     {run(3, 0, 1), Rules{}, "lost=1"},
		"line, none wanted": {change(run(3, 0, 1), line(nil)), Rules{NoLines: true}, "refused=1"},
		"gap, not settled":  {run(4, 0, 1, 2, 3, 0, 2, 3), Rules{Restarts: 1, Settled: map[string]bool{"e2": true}}, "bad_replays=1"},
		"end, not settled":  {run(4, 0, 1, 2, 3, 0, 1), Rules{Restarts: 1, Settled: map[string]bool{"e2": true}}, "bad_replays=1"},
		"line but READY":    {change(run(3, 0, 1), line(&ready)), Rules{}, "hidden=1"},
		"line but SENT":     {change(run(3, 0, 1), line(&sent)), Rules{}, "hidden=1"},
		"swapped pair":      {run(4, 0, 3, 2, 1), Rules{}, "out_of_order=1"},
		"late first copy":   {run(4, 0, 1, 3, 1, 2), Rules{Restarts: -1}, "bad_replays=1"},
		"second partition":  {change(run(4, 0, 1, 2, 3), func(e *Evidence) { e.Records[2].Partition = 1 }), Rules{}, "out_of_order=1"},
		"invented row":      {change(run(2, 0, 1), func(e *Evidence) { e.Rows = e.Rows[:1] }), Rules{}, "invented=1"},
		"no id":             {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Headers = nil }), Rules{}, "invented=1"},
		"gap in a replay":   {run(4, 0, 1, 2, 0, 2, 3), Rules{Restarts: 1}, "bad_replays=1"},
		"replay stops":      {run(4, 0, 1, 2, 3, 0, 1), Rules{Restarts: 1}, "bad_replays=1"},
		"too many replays":  {run(2, 0, 1, 0, 1, 0, 1), Rules{Restarts: 1}, "bad_replays=1"},
		"replay, no fault":  {run(2, 0, 1, 1), Rules{}, "bad_replays=1"},
		"wrong value":       {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Value = []byte("x") }), Rules{}, "altered=1"},
		"null for empty":    {change(run(2, 0, 1), func(e *Evidence) { e.Rows[1].Payload, e.Records[1].Value = []byte{}, nil }), Rules{}, "altered=1"},
		"wrong key":         {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Key = []byte("a") }), Rules{}, "altered=1"},
		"wrong topic":       {change(run(2, 0, 1), func(e *Evidence) { e.Records[1].Topic = "u" }), Rules{}, "altered=1"},
		"copy, other time":  {change(copied, func(e *Evidence) { e.Records = clone(e); e.Records[2].Timestamp = time.Unix(9, 0) }), Rules{Restarts: 1}, "altered=1"},
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

// wired is one row and its record as the wire contract wants it.
func wired() Evidence {
	e := run(1, 0)
	e.Rows[0].Wire = &Wire{Type: "placed", ContentType: "text/plain", Index: 2, From: 0x100, To: 0x200, Timestamp: time.UnixMilli(1_234),
		Headers: []kafkaserver.Header{{Key: "a", Value: []byte("x")}, {Key: "n"}}}
	e.Records[0].Timestamp = time.UnixMilli(1_234)
	e.Records[0].Headers = []kafkaserver.Header{{Key: HeaderID, Value: []byte("e0")}, {Key: "outbox-type", Value: []byte("placed")},
		{Key: "outbox-position", Value: []byte("1:0/1F0:2")}, {Key: "content-type", Value: []byte("text/plain")}, {Key: "a", Value: []byte("x")}, {Key: "n"}}
	return e
}

// Law: a record whose headers or time are not its row's is caught, whichever
// of them it is.
func TestCheckComparesTheWire(t *testing.T) {
	t.Parallel()
	if err := Check(wired(), Rules{}).Err(); err != nil {
		t.Fatal(err)
	}
	header := func(i int, value string) func(*Evidence) {
		return func(e *Evidence) { e.Records[0].Headers[i].Value = []byte(value) }
	}
	for name, change := range map[string]func(*Evidence){
		"type":              header(1, "shipped"),
		"content type":      header(3, "text/html"),
		"own header":        header(4, "y"),
		"empty for null":    header(5, ""),
		"place":             header(2, "1:0/1F0:1"),
		"place too early":   header(2, "1:0/FF:2"),
		"place too late":    header(2, "1:0/200:2"),
		"no timeline":       header(2, "0:0/1F0:2"),
		"no place":          header(2, "1:0/1F0"),
		"header missing":    func(e *Evidence) { e.Records[0].Headers = e.Records[0].Headers[:5] },
		"header of nobody":  func(e *Evidence) { e.Records[0].Headers = append(e.Records[0].Headers, kafkaserver.Header{Key: "b"}) },
		"headers turned":    func(e *Evidence) { h := e.Records[0].Headers; h[4], h[5] = h[5], h[4] },
		"time":              func(e *Evidence) { e.Records[0].Timestamp = time.UnixMilli(1_235) },
		"what no row sends": func(e *Evidence) { e.Rows[0].Wire.Bad = fmt.Errorf("no JSON") },
	} {
		e := wired()
		change(&e)
		if rep := Check(e, Rules{}); rep.Altered != 1 {
			t.Errorf("%s: passed: %v", name, rep)
		}
	}
	e := wired()
	e.Records[0].Timestamp = time.UnixMilli(9)
	if err := Check(e, Rules{BrokerTimes: map[string]bool{"t": true}}).Err(); err != nil {
		t.Error(err)
	}
}

// Law: the row's headers and time are read as the wire contract says them.
func TestWireIsReadFromTheRow(t *testing.T) {
	t.Parallel()
	headers, err := rowHeaders(`{"s": "\u2603", "b": {"base64": "AP8="}, "o": {"x": [1, 2.50]}, "n": null, "i": 12345678901234567890}`)
	if got := fmt.Sprintf("%q", headers); err != nil || got != `[{"s" "☃"} {"b" "\x00\xff"} {"o" "{\"x\":[1,2.50]}"} {"n" ""} {"i" "12345678901234567890"}]` || headers[3].Value != nil {
		t.Errorf("%s, %v", got, err)
	}
	for text, want := range map[string]string{
		"2026-03-29 02:30:00.123956+00": "2026-03-29T02:30:00.123Z", "1969-12-31 23:59:59.999+00": "commit", "infinity": "commit", "-infinity": "commit",
		"0044-03-15 12:00:00+00 BC": "commit", "294276-12-31 00:00:00+00": "commit", "2300-01-01 00:00:00+00": "commit", "17": "unknown", "2026-03-29 02:30:00": "unknown",
	} {
		at, commit := timestamp(value{text: text})
		got := at.UTC().Format(time.RFC3339Nano)
		if at.IsZero() {
			got = map[bool]string{true: "commit", false: "unknown"}[commit]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
