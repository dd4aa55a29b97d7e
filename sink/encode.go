package sink

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// The headers of the wire contract. Their order on the wire is this order,
// then the row's own headers in theirs.
const (
	headerID          = "outbox-id"
	headerType        = "outbox-type"
	headerPosition    = "outbox-position"
	headerContentType = "content-type"
	// reservedPrefix is ours: a row may not name a header that begins so.
	reservedPrefix = "outbox-"
)

// arena holds the bytes and headers of many records, so that a record costs no
// allocation of its own. Growing it leaves what was handed out in place.
type arena struct {
	bytes   []byte
	headers []kgo.RecordHeader
}

// keptArenaBytes is the largest buffer kept for reuse: keys and headers of a
// full chunk of usual rows.
const keptArenaBytes = 256 << 10

func (a *arena) reset() {
	if a.bytes == nil || cap(a.bytes) > keptArenaBytes {
		a.bytes = make([]byte, 0, 1024) // never nil: an empty key must not become a null one
	}
	a.bytes = a.bytes[:0]
	clear(a.headers)
	a.headers = a.headers[:0]
}

// copyOf returns a copy of s in the arena, never nil.
func (a *arena) copyOf(s string) []byte {
	start := len(a.bytes)
	a.bytes = append(a.bytes, s...)
	return a.bytes[start:len(a.bytes):len(a.bytes)]
}

// encode fills a record's key, value, timestamp and headers from an event. The
// topic and partition are the caller's. On a refusal the record has no headers
// and must not be sent.
func (a *arena) encode(e *outbox.Event, r *kgo.Record) *outbox.Refusal {
	r.Key = nil
	if key, ok := e.Key(); ok {
		r.Key = a.copyOf(key)
	}
	r.Value = e.Payload
	r.Timestamp = timestamp(e)
	r.Headers = nil
	if e.Defect != "" {
		return &outbox.Refusal{Class: outbox.ClassInvalid, Code: "bad_value", Detail: e.Defect}
	}
	start := len(a.headers)
	a.header(headerID, e.ID)
	a.header(headerType, e.Type)
	if e.Position != (outbox.Position{}) {
		from := len(a.bytes)
		a.bytes = e.Position.Append(a.bytes)
		a.headers = append(a.headers, kgo.RecordHeader{Key: headerPosition, Value: a.bytes[from:len(a.bytes):len(a.bytes)]})
	}
	a.header(headerContentType, e.ContentType)
	if e.Headers != "" && e.Headers != "{}" {
		if err := a.rowHeaders(e.Headers); err != nil {
			a.headers = a.headers[:start]
			return &outbox.Refusal{Class: outbox.ClassEncode, Code: "bad_headers", Detail: err.Error()}
		}
	}
	r.Headers = a.headers[start:len(a.headers):len(a.headers)]
	return nil
}

// header appends a header, or none when the event has no such value.
func (a *arena) header(name, value string) {
	if value != "" {
		a.headers = append(a.headers, kgo.RecordHeader{Key: name, Value: a.copyOf(value)})
	}
}

// The range of timestamps that reach the wire unharmed: brokers refuse times
// before 1970, and the client's nanoseconds end in 2262.
var (
	firstTimestamp = time.Unix(0, 0)
	lastTimestamp  = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// timestamp is created_at, or the commit time when created_at is absent,
// infinite, or outside what a record can carry.
func timestamp(e *outbox.Event) time.Time {
	t := e.CreatedAt
	if t.IsZero() || t.Before(firstTimestamp) || t.After(lastTimestamp) {
		t = e.CommitTime
	}
	return t.Truncate(time.Millisecond)
}

// newRecord builds what would be sent, owning all its memory except the
// payload. Its Headers are nil when they cannot be encoded, and its Topic is
// whatever the route found.
func newRecord(e *outbox.Event, topic string) *outbox.Record {
	var (
		a arena
		r kgo.Record
	)
	a.reset()
	refusal := a.encode(e, &r)
	out := &outbox.Record{Topic: topic, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	if refusal != nil {
		return out
	}
	out.Headers = make([]outbox.Header, len(r.Headers))
	for i, h := range r.Headers {
		out.Headers[i] = outbox.Header{Key: h.Key, Value: h.Value}
	}
	return out
}

// sizeLimit is a bound on the size of one record, and whose it is.
type sizeLimit struct {
	bytes int
	from  string // for people, such as "max.message.bytes of the topic"
}

// tooLarge judges the batch that would hold this record alone.
func tooLarge(r *kgo.Record, limits ...sizeLimit) *outbox.Refusal {
	size := batchOverhead + recordSize(r, 0, 0)
	for _, limit := range limits {
		if size <= limit.bytes {
			continue
		}
		return &outbox.Refusal{
			Class: outbox.ClassTooLarge, Code: "MESSAGE_TOO_LARGE",
			Detail: fmt.Sprintf("a batch of this record alone has %d bytes uncompressed, %s allows %d; nothing was sent", size, limit.from, limit.bytes),
		}
	}
	return nil
}
