package judge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// Wire is what a record carries of its row beside key and value.
type Wire struct {
	Type        string               // event_type
	ContentType string               // "" = null or no such column
	Headers     []kafkaserver.Header // the row's own, in the order of the column
	Bad         error                // why the row's headers cannot be sent; nil while they can
	Timestamp   time.Time            // zero: not known
	Index       int                  // place among all rows that its transaction inserted, READY or not
	From, To    lsn                  // its commit record lies in [From, To)
	commitTime  bool                 // Timestamp is the commit's
}

// The headers that the relay itself adds, beside HeaderID.
const (
	headerType        = "outbox-type"
	headerPosition    = "outbox-position"
	headerContentType = "content-type"
)

// wire reads what an insert says about its record.
func (t *Truth) wire(columns map[string]value, index int) *Wire {
	w := &Wire{Type: columns[t.columns.EventType].text, ContentType: columns[t.columns.ContentType].text, Index: index}
	w.Headers, w.Bad = rowHeaders(columns[t.columns.Headers].text)
	if created, ok := columns[t.columns.CreatedAt]; ok {
		w.Timestamp, w.commitTime = timestamp(created)
	}
	return w
}

// committed completes what only the commit record knows.
func (w *Wire) committed(from, to lsn, at time.Time) {
	w.From, w.To = from, to
	if w.commitTime {
		w.Timestamp = at.Truncate(time.Millisecond)
	}
}

// PostgreSQL's way to write a time, in UTC.
const pgTime = "2006-01-02 15:04:05.999999-07"

// timestamp is what a record carries for created_at: to the millisecond, or
// the commit's time where Kafka knows no such time. Zero without that is no
// answer: a column of another type.
func timestamp(created value) (at time.Time, commitTime bool) {
	at, err := time.Parse(pgTime, created.text)
	years, _, _ := strings.Cut(created.text, "-")
	switch {
	case created.null, strings.HasSuffix(created.text, "infinity"), strings.HasSuffix(created.text, " BC"), len(years) > 4:
		return time.Time{}, true
	case err != nil:
		return time.Time{}, false
	case at.Year() < 1970 || at.Year() >= 2262:
		return time.Time{}, true
	default:
		return at.Truncate(time.Millisecond), false
	}
}

// rowHeaders reads the headers column: a string is its text, {"base64": "..."}
// is bytes, null is a null value, all else compact JSON.
func rowHeaders(text string) ([]kafkaserver.Header, error) {
	if text == "" || text == "null" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("the headers are not one JSON object")
	}
	var headers []kafkaserver.Header
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("reading a header's name: %w", err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, fmt.Errorf("reading the header %v: %w", name, err)
		}
		v, err := headerValue(raw)
		if err != nil {
			return nil, fmt.Errorf("reading the header %v: %w", name, err)
		}
		headers = append(headers, kafkaserver.Header{Key: fmt.Sprint(name), Value: v})
	}
	return headers, nil
}

func headerValue(raw json.RawMessage) ([]byte, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text), nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil && len(members) == 1 && json.Unmarshal(members["base64"], &text) == nil {
		return base64.StdEncoding.DecodeString(text)
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, raw)
	return compact.Bytes(), err
}

// compareWire wants the headers of the wire contract and the timestamp of the
// row. Headers that only some records have are left to keepsOrder.
func (t *trial) compareWire(row Row, r kafkaserver.Record) {
	if row.Wire == nil {
		return
	}
	if want := row.Wire.Timestamp; !want.IsZero() && !t.rules.BrokerTimes[r.Topic] && !r.Timestamp.Equal(want) {
		t.report.problem(&t.report.Altered, "altered: %s/%d@%d has the time %v, row %s has %v", r.Topic, r.Partition, r.Offset, r.Timestamp.UTC(), row.EventID, want.UTC())
	}
	if err := t.headers(*row.Wire, row.EventID, r); err != nil {
		t.report.problem(&t.report.Altered, "altered: %s/%d@%d, row %s: %v", r.Topic, r.Partition, r.Offset, row.EventID, err)
	}
}

// headers compares them in their order: the relay's own, then the row's.
func (t *trial) headers(w Wire, id string, r kafkaserver.Record) error {
	if w.Bad != nil {
		return w.Bad
	}
	var own []kafkaserver.Header
	for _, h := range []kafkaserver.Header{{Key: HeaderID, Value: []byte(id)}, {Key: headerType, Value: []byte(w.Type)}, {Key: headerPosition},
		{Key: headerContentType, Value: []byte(w.ContentType)}} {
		if h.Key == headerPosition || len(h.Value) > 0 && (h.Key != headerContentType || t.typed) {
			own = append(own, h)
		}
	}
	want, got := append(own, w.Headers...), stable(r)
	if len(got) != len(want) {
		return fmt.Errorf("%d headers, want %d", len(got), len(want))
	}
	for i, h := range want {
		if h.Key == headerPosition && got[i].Key == headerPosition {
			if err := w.position(string(got[i].Value)); err != nil {
				return err
			}
			continue
		}
		if got[i].Key != h.Key || !same(got[i].Value, h.Value) {
			return fmt.Errorf("header %d is %s with %q, want %s with %q", i, got[i].Key, got[i].Value, h.Key, h.Value)
		}
	}
	return nil
}

// position wants timeline:commit:index to be this row's.
func (w Wire) position(text string) error {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return fmt.Errorf("position %q has not three parts", text)
	}
	timeline, errTimeline := strconv.ParseUint(parts[0], 10, 32)
	commit, errCommit := parseLSN(parts[1])
	index, errIndex := strconv.Atoi(parts[2])
	if err := errors.Join(errTimeline, errCommit, errIndex); err != nil {
		return fmt.Errorf("position %q: %w", text, err)
	}
	if timeline == 0 || commit < w.From || commit >= w.To || index != w.Index {
		return fmt.Errorf("position %q: the row is number %d of the transaction that committed in [%v, %v)", text, w.Index, w.From, w.To)
	}
	return nil
}

// typed says whether any record has the header content-type: where none has,
// the relay was told of no such column.
func typed(records []kafkaserver.Record) bool {
	return slices.ContainsFunc(records, func(r kafkaserver.Record) bool {
		return slices.ContainsFunc(r.Headers, func(h kafkaserver.Header) bool { return h.Key == headerContentType })
	})
}
