package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox-relay/decode"
)

// WriteBack is how an acknowledged row is shown in the outbox table.
type WriteBack string

// The write-backs. In each of them a refusal is durable, and the position row
// is committed, before the LSN passes.
const (
	WriteBackStatus WriteBack = "status" // READY -> SENT; the LSN waits for that commit
	WriteBackAsync  WriteBack = "async"  // the same, but the LSN waits for the acknowledgement only
	WriteBackDelete WriteBack = "delete" // the row is deleted; the LSN waits for that commit
	WriteBackOff    WriteBack = "off"    // nothing is written to the outbox
)

func (w WriteBack) settlesAtAck() bool { return w == WriteBackAsync || w == WriteBackOff }
func (w WriteBack) writesRows() bool   { return w != WriteBackOff }

// Config is what the stream path needs to know. Zero values are filled with
// the defaults named at each field.
type Config struct {
	Relay       string // name of this relay: the key of its position row
	Slot        string
	Publication string
	Schema      string // of the outbox table
	Table       string
	Mapping     decode.Mapping // RowKey is filled from the table's primary key at each start
	SentAt      string         // the column of that name, "" when there is none

	// OnMissing says what to do on the first start when the slot is not
	// there: "fail" (the default) or "create". A slot that is missing
	// although a position row exists is always an incident.
	OnMissing string
	Failover  bool // create the slot with the failover property (PostgreSQL 17 and later)

	WriteBack         WriteBack
	WriteBackRows     int           // rows in one settling transaction; default 500
	WriteBackInterval time.Duration // age at which fewer are written; default 50 ms

	SpanRows  int // rows received and not settled; default 20,000
	SpanBytes int // their bytes; default 32 MiB. A row larger than that travels alone

	LinesEvents int64 // events in all lines at which the stream stops; default 1,000,000
	LinesBytes  int64 // their bytes; default 1 GiB

	WALSenderTimeout time.Duration // pinned for our walsender; default 30 s
	Beat             time.Duration // status interval; default a third of WALSenderTimeout, at most 10 s
	Silence          time.Duration // a server silent for this long is gone; default 3 beats, at least 30 s
	ShutdownGrace    time.Duration // for open lanes at a wanted stop; default 30 s
	FactsEvery       time.Duration // slot facts; default 10 s
}

// withDefaults fills what is zero and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.OnMissing, "fail")
	setDefault(&c.WriteBack, WriteBackStatus)
	setDefault(&c.WriteBackRows, 500)
	setDefault(&c.WriteBackInterval, 50*time.Millisecond)
	setDefault(&c.SpanRows, 20_000)
	setDefault(&c.SpanBytes, 32<<20)
	setDefault(&c.LinesEvents, 1_000_000)
	setDefault(&c.LinesBytes, 1<<30)
	setDefault(&c.WALSenderTimeout, 30*time.Second)
	setDefault(&c.Beat, min(c.WALSenderTimeout/3, 10*time.Second))
	setDefault(&c.Silence, max(3*c.Beat, 30*time.Second))
	setDefault(&c.ShutdownGrace, 30*time.Second)
	setDefault(&c.FactsEvery, 10*time.Second)
	return c, c.validate()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(c.Relay != "" && c.Slot != "" && c.Publication != "" && c.Table != "" && c.Schema != "",
		"relay, slot, publication, schema and table must all be named")
	need(c.OnMissing == "fail" || c.OnMissing == "create", "on missing slot %q: want fail or create", c.OnMissing)
	need(c.WriteBackRows > 0 && c.SpanRows > 0 && c.SpanBytes > 0, "write-back rows, span rows and span bytes must be positive")
	need(c.Beat*2 <= c.WALSenderTimeout, "a beat of %v leaves no room in a wal_sender_timeout of %v: want at most half", c.Beat, c.WALSenderTimeout)
	switch c.WriteBack {
	case WriteBackStatus, WriteBackAsync:
		need(c.Mapping.Status != "", "write-back %q needs a status column; map one or choose off", c.WriteBack)
	case WriteBackDelete, WriteBackOff:
	default:
		need(false, "write-back %q: want status, async, delete or off", c.WriteBack)
	}
	return errors.Join(errs...)
}
