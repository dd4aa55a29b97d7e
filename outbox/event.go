package outbox

import "time"

// Status is the state an outbox row shows. The codes are stored in the
// application's table, so they are part of the contract: they are never
// renumbered and never compared by size.
type Status int16

// The six states of a row (the state chart is in docs/architecture.md).
const (
	StatusReady      Status = 0 // inserted; the log has not passed it, or pending_status knows
	StatusInProgress Status = 1 // its line is claimed and it is the head
	StatusSent       Status = 2 // acknowledged by the brokers
	StatusFailed     Status = 3 // refused, or waiting behind a refused event, in a line
	StatusConsumed   Status = 4 // a consumer has finished with it
	StatusConsuming  Status = 5 // a consumer works on it
)

// String gives the state's name as the documents and commands print it.
func (s Status) String() string {
	switch s {
	case StatusReady:
		return "READY"
	case StatusInProgress:
		return "INPROGRESS"
	case StatusSent:
		return "SENT"
	case StatusFailed:
		return "FAILED"
	case StatusConsumed:
		return "CONSUMED"
	case StatusConsuming:
		return "CONSUMING"
	default:
		return "UNKNOWN"
	}
}

// Event is one outbox row as it came out of the log.
//
// It owns all its memory: nothing in it aliases the connection's buffer
// (invariant I7). After it is built nobody writes to it, so it may be read
// from any goroutine. An absent or NULL text column is the empty string
// except where a Has field or nil says otherwise.
type Event struct {
	Position   Position
	CommitTime time.Time // of the transaction, by the database's clock

	// RowKey names the row: a JSON array of its key columns' texts as the
	// server's output functions print them, for example ["42"].
	RowKey string

	ID            string // event_id as text; "" when the table has none
	AggregateType string
	AggregateID   string
	HasAggregate  bool // aggregate_id is not NULL
	Type          string
	Topic         string // the topic column; "" lets the route decide
	MessageKey    string
	HasMessageKey bool // message_key is not NULL
	ContentType   string

	Payload []byte // nil for NULL (a tombstone), empty for ''
	Headers string // the headers column's JSON text as the server wrote it; "" for none

	CreatedAt    time.Time // zero when absent, or when infinite
	DeliverAfter time.Time // zero when NULL
	Status       Status    // as inserted; a row inserted with another status than READY is not ours

	// Defect says why this row's values cannot become a record, in words
	// for an operator; "" when they can. Such an event is refused, never
	// sent and never dropped.
	Defect string
}

// Key returns the record key and whether there is one: message_key, else
// aggregate_id, else none (the record then has a null key and no order).
func (e *Event) Key() (key string, ok bool) {
	if e.HasMessageKey {
		return e.MessageKey, true
	}
	return e.AggregateID, e.HasAggregate
}

// eventOverheadBytes is what an Event costs beside its text and payload:
// the struct itself (about 300 bytes), its ticket, and the client's record.
// It is rounded up, so that the span limit errs on the small side.
const eventOverheadBytes = 640

// Bytes is the memory that the event retains, in bytes, as the span limit
// counts it.
func (e *Event) Bytes() int {
	return eventOverheadBytes + len(e.RowKey) + len(e.ID) + len(e.AggregateType) + len(e.AggregateID) +
		len(e.Type) + len(e.Topic) + len(e.MessageKey) + len(e.ContentType) + len(e.Payload) + len(e.Headers)
}
