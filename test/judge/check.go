package judge

import (
	"bytes"
	"slices"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// HeaderID carries the event id of a record.
const HeaderID = "outbox-id"

// Headers by which a record says that it keeps no order, or that it is not the
// first attempt. Copies may differ in them.
const (
	headerOutOfOrder = "outbox-out-of-order"
	headerAttempt    = "outbox-attempt"
	headerReplay     = "outbox-replay"
)

// place is where a partition's log is.
type place struct {
	topic     string
	partition int32
}

// copyOf is one record with the row it carries.
type copyOf struct {
	row    Row
	record kafkaserver.Record
}

// trial is the state of one judgement.
type trial struct {
	rules  Rules
	report Report
	typed  bool               // the relay sends content types
	rows   map[string]Row     // by event id
	first  map[string]copyOf  // first copy, by event id
	logs   map[place][]copyOf // ordered records, first and further copies
	homes  map[keyOf]place    // where a key's records are
	tops   map[keyOf]Row      // the newest first copy of a key
}

// keyOf names an ordering key within a topic.
type keyOf struct{ topic, key string }

// Check judges a run. It is a pure function of its arguments.
func Check(e Evidence, rules Rules) Report {
	if rules.ID == nil {
		rules.ID = headerID
	}
	t := &trial{
		rules: rules, rows: map[string]Row{}, first: map[string]copyOf{},
		logs: map[place][]copyOf{}, homes: map[keyOf]place{}, tops: map[keyOf]Row{},
	}
	t.typed = typed(e.Records)
	t.report.Rows, t.report.Records = len(e.Rows), len(e.Records)
	for _, r := range e.Rows {
		t.rows[r.EventID] = r
	}
	for _, r := range e.Records {
		t.record(r)
	}
	t.losses(e)
	for at, log := range t.logs {
		t.replays(at, log)
	}
	if e.Journal != nil {
		t.journal(*e.Journal)
	}
	slices.Sort(t.report.Problems)
	return t.report
}

func headerID(r kafkaserver.Record) string {
	for _, h := range r.Headers {
		if h.Key == HeaderID {
			return string(h.Value)
		}
	}
	return ""
}

// record judges one record as it comes in the order of its log.
func (t *trial) record(r kafkaserver.Record) {
	id := t.rules.ID(r)
	row, ok := t.rows[id]
	if !ok {
		t.report.problem(&t.report.Invented, "invented: %s/%d@%d carries %q, which never committed", r.Topic, r.Partition, r.Offset, id)
		return
	}
	t.compareWithRow(row, r)
	t.compareWire(row, r)
	c := copyOf{row: row, record: r}
	ordered := keepsOrder(c)
	if ordered {
		at := place{r.Topic, r.Partition}
		t.logs[at] = append(t.logs[at], c)
	}
	first, again := t.first[id]
	if again {
		t.report.Duplicates++
		t.compareCopies(first.record, r)
		return
	}
	t.first[id] = c
	t.report.Published++
	if ordered {
		t.order(c)
	}
}

// keepsOrder says whether the record was promised a place: it has a key, and
// neither its row nor itself says otherwise.
func keepsOrder(c copyOf) bool {
	if c.row.Scheduled || c.record.Key == nil {
		return false
	}
	return !slices.ContainsFunc(c.record.Headers, func(h kafkaserver.Header) bool {
		return h.Key == headerOutOfOrder || h.Key == headerReplay
	})
}

// compareWithRow wants the row's own bytes in the row's own topic.
func (t *trial) compareWithRow(row Row, r kafkaserver.Record) {
	switch {
	case row.Topic != nil && *row.Topic != r.Topic:
		t.report.problem(&t.report.Altered, "altered: row %s belongs into topic %s, stands in %s", row.EventID, *row.Topic, r.Topic)
	case !same(row.Key, r.Key):
		t.report.problem(&t.report.Altered, "altered: %s/%d@%d has another key than row %s", r.Topic, r.Partition, r.Offset, row.EventID)
	case !same(row.Payload, r.Value):
		t.report.problem(&t.report.Altered, "altered: %s/%d@%d has another value than row %s", r.Topic, r.Partition, r.Offset, row.EventID)
	}
}

// same tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// compareCopies wants a copy to equal the first one.
func (t *trial) compareCopies(first, again kafkaserver.Record) {
	equal := first.Topic == again.Topic && same(first.Key, again.Key) && same(first.Value, again.Value) &&
		first.Timestamp.Equal(again.Timestamp) &&
		slices.EqualFunc(stable(first), stable(again), func(a, b kafkaserver.Header) bool {
			return a.Key == b.Key && same(a.Value, b.Value)
		})
	if !equal {
		t.report.problem(&t.report.Altered, "altered: the copies %s/%d@%d and %s/%d@%d differ", first.Topic, first.Partition, first.Offset, again.Topic, again.Partition, again.Offset)
	}
}

// stable leaves out the headers that tell of this attempt only.
func stable(r kafkaserver.Record) []kafkaserver.Header {
	return slices.DeleteFunc(slices.Clone(r.Headers), func(h kafkaserver.Header) bool {
		return h.Key == headerOutOfOrder || h.Key == headerAttempt || h.Key == headerReplay
	})
}

// losses wants each row in a topic, or in a line and visible.
func (t *trial) losses(e Evidence) {
	lines := map[string]Line{}
	for _, l := range e.Lines {
		lines[l.EventID] = l
	}
	for _, row := range e.Rows {
		if _, ok := t.first[row.EventID]; ok || t.rules.Discarded[row.EventID] {
			continue
		}
		line, ok := lines[row.EventID]
		if !ok {
			t.report.problem(&t.report.Lost, "lost: row %s (id %s, transaction %s, place %d)", row.EventID, row.ID, row.Commit, row.Index)
			continue
		}
		t.report.Waiting++
		if t.rules.NoLines {
			t.report.problem(&t.report.Refused, "refused: row %s waits (%s), and none should", row.EventID, line.Reason)
		}
		if !line.visible() {
			t.report.problem(&t.report.Hidden, "hidden: row %s waits (%s) while its status is %d", row.EventID, line.Reason, *line.Status)
		}
	}
}

// journal compares what the writers know with the truth: a guard against a
// judge that looks at nothing.
func (t *trial) journal(j Journal) {
	for _, id := range j.Committed {
		if _, ok := t.rows[id]; !ok && !t.rules.MayLose[id] {
			t.report.problem(&t.report.Disagreeing, "disagreeing: row %s was committed, the truth does not know it", id)
		}
	}
	for _, id := range j.Aborted {
		if _, ok := t.rows[id]; ok {
			t.report.problem(&t.report.Disagreeing, "disagreeing: row %s was rolled back, the truth knows it", id)
		}
	}
}
