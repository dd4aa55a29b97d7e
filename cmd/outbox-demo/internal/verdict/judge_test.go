package verdict_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/verdict"
)

var here, there = verdict.Place{Topic: "t", Partition: 1}, verdict.Place{Topic: "t", Partition: 2}

func row(aggregate string, seq int64) verdict.Row {
	name := fmt.Sprint(aggregate, "/", seq)
	id := verdict.ID{}
	copy(id[:], name)
	return verdict.Row{ID: id, Aggregate: aggregate, Seq: seq, Sent: true, Payload: verdict.SumOf([]byte(name))}
}

func record(r verdict.Row, place verdict.Place) verdict.Record {
	return verdict.Record{Place: place, ID: r.ID, Key: r.Aggregate, Value: r.Payload}
}

// Law: each kind of fault is found, counted once, and makes the verdict bad;
// duplicates are counted and do not.
func TestJudgeFindsEachFault(t *testing.T) {
	t.Parallel()
	a1, a2, a3, b1 := row("a", 1), row("a", 2), row("a", 3), row("b", 1)
	all := []verdict.Row{a1, a2, a3, b1}
	unsent := a2
	unsent.Sent = false
	otherKey, otherValue := record(a2, here), record(a2, here)
	otherKey.Key = "b"
	otherValue.Value = verdict.SumOf([]byte("else"))
	clean := []verdict.Record{record(a1, here), record(a2, here), record(b1, there), record(a3, here)}
	cases := []struct {
		name    string
		rows    []verdict.Row
		records []verdict.Record
		want    verdict.Result
		good    bool
	}{
		{"clean", all, clean, verdict.Result{Rows: 4, Records: 4}, true},
		{"nothing at all", nil, nil, verdict.Result{}, false},
		{"lost in the middle", all, []verdict.Record{clean[0], clean[2], clean[3]}, verdict.Result{Rows: 4, Records: 3, Lost: 1}, false},
		{"lost altogether", all, nil, verdict.Result{Rows: 4, Lost: 4}, false},
		{
			"a session repeated", all, []verdict.Record{clean[0], clean[1], clean[0], clean[1], clean[3], clean[2]},
			verdict.Result{Rows: 4, Records: 6, Duplicates: 2}, true,
		},
		{
			"late first copy", all, []verdict.Record{clean[0], clean[3], clean[1], clean[2]},
			verdict.Result{Rows: 4, Records: 4, OutOfOrder: 1}, false,
		},
		{
			"a second copy does not heal the order", all, []verdict.Record{clean[3], clean[0], clean[1], clean[3], clean[2]},
			verdict.Result{Rows: 4, Records: 5, OutOfOrder: 2, Duplicates: 1}, false,
		},
		{
			"one aggregate on two partitions", all, []verdict.Record{clean[0], record(a2, there), clean[3], clean[2]},
			verdict.Result{Rows: 4, Records: 4, OutOfOrder: 1}, false,
		},
		{
			"rolled back and published", all, append([]verdict.Record{record(row("a", 4), here)}, clean...),
			verdict.Result{Rows: 4, Records: 5, Foreign: 1}, false,
		},
		{"other key", all, []verdict.Record{clean[0], otherKey, clean[2], clean[3]}, verdict.Result{Rows: 4, Records: 4, Altered: 1}, false},
		{"other value", all, []verdict.Record{clean[0], otherValue, clean[2], clean[3]}, verdict.Result{Rows: 4, Records: 4, Altered: 1}, false},
		{"not SENT", []verdict.Row{a1, unsent, a3, b1}, clean, verdict.Result{Rows: 4, Records: 4, NotSent: 1}, false},
		{"a hole in the source", []verdict.Row{a1, a3}, []verdict.Record{clean[0], clean[3]}, verdict.Result{Rows: 2, Records: 2, BadSource: 1}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := verdict.NewJudge()
			for _, r := range c.rows {
				j.Row(r)
			}
			for _, r := range c.records {
				j.Record(r)
			}
			got := j.Result()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Good() != c.good {
				t.Errorf("Good is %v, want %v", got.Good(), c.good)
			}
		})
	}
}
