package outbox

import (
	"encoding/json"
	"fmt"
	"time"
)

// Header is one record header. Kafka allows a key more than once and keeps
// the order.
type Header struct {
	Key   string `json:"k"`
	Value []byte `json:"v"` // nil is a null value, which Kafka keeps apart from an empty one
}

// Record is an event in the form it has, or would have, on the wire.
type Record struct {
	Topic     string
	Timestamp time.Time // milliseconds on the wire
	Headers   []Header
	Key       []byte // nil: no key
	Value     []byte // nil: tombstone
}

// envelope is the stored form of what a Record has beside key and value. It
// is JSON in a bytea column: jsonb would refuse NUL and lone surrogates,
// which headers may hold.
type envelope struct {
	Version     int      `json:"version"`
	Topic       string   `json:"topic"`
	TimestampMS int64    `json:"timestamp_ms"`
	Headers     []Header `json:"headers"`
	// Source keeps the row's own columns when the record could not be
	// built from them, so that nothing of the row is lost.
	Source *source `json:"source,omitempty"`
}

type source struct {
	AggregateType string `json:"aggregate_type"`
	Type          string `json:"event_type"`
	Topic         string `json:"topic"`
	ContentType   string `json:"content_type"`
	Headers       []byte `json:"headers"` // bytes, since the text may not be valid JSON or UTF-8
}

const envelopeVersion = 1

// MarshalEnvelope encodes topic, timestamp and headers for the column
// line_event.record; key and value have columns of their own. When the event
// could not be encoded (defective is set) the row's columns go with it.
func (r *Record) MarshalEnvelope(e *Event, defective bool) []byte {
	env := envelope{Version: envelopeVersion, Topic: r.Topic, TimestampMS: r.Timestamp.UnixMilli(), Headers: r.Headers}
	if r.Timestamp.IsZero() {
		env.TimestampMS = 0
	}
	if defective {
		env.Source = &source{e.AggregateType, e.Type, e.Topic, e.ContentType, []byte(e.Headers)}
	}
	b, err := json.Marshal(env)
	if err != nil {
		panic(fmt.Sprintf("outbox: encoding an envelope of plain fields: %v", err))
	}
	return b
}

// UnmarshalEnvelope reads what MarshalEnvelope wrote; key and value are the
// caller's to add.
func UnmarshalEnvelope(b []byte) (Record, error) {
	var env envelope
	if err := json.Unmarshal(b, &env); err != nil {
		return Record{}, fmt.Errorf("reading a stored record: %w", err)
	}
	if env.Version != envelopeVersion {
		return Record{}, fmt.Errorf("reading a stored record: version %d, this program knows version %d", env.Version, envelopeVersion)
	}
	return Record{Topic: env.Topic, Timestamp: time.UnixMilli(env.TimestampMS).UTC(), Headers: env.Headers}, nil
}
