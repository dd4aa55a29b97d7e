package outbox

// Ticket stands for one event between the moment it was received and the
// moment its outcome is written. Tickets are dense and rise by one in the
// order of the log, within one session; 0 is no ticket.
type Ticket uint64

// Verdict is what became of an event. The zero value means nothing: a
// verdict that is not named below is never success.
type Verdict uint8

// The verdicts. Each ticket gets exactly one.
const (
	// Acked: all in-sync replicas have the record.
	Acked Verdict = iota + 1
	// Refused: this event's own fault, for good (too large, cannot be
	// encoded, cannot be routed, refused by the broker on its own). It is
	// parked in a line, whole, with its reason.
	Refused
	// Diverted: nothing is wrong with the event, but an earlier one of its
	// key waits in a line, so it waits behind it.
	Diverted
	// Scheduled: deliver_after lies in the future; it waits in a line of
	// its own.
	Scheduled
)

// String gives the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Acked:
		return "acked"
	case Refused:
		return "refused"
	case Diverted:
		return "diverted"
	case Scheduled:
		return "scheduled"
	default:
		return "unknown"
	}
}

// Class says whose fault a refusal is, in one word that policies, metrics and
// the line table use.
type Class string

// The classes of refusal. All of them are permanent: the event would be
// refused again.
const (
	ClassTooLarge      Class = "too_large"      // larger than its topic allows
	ClassInvalid       Class = "invalid"        // a value that no record can carry, or the broker calls it invalid
	ClassEncode        Class = "encode"         // headers or values cannot be encoded
	ClassRoute         Class = "route"          // no topic, a forbidden topic, an impossible name
	ClassBrokerRefused Class = "broker_refused" // the broker refused this record alone, for a reason of its own
)

// Refusal is why an event was refused.
type Refusal struct {
	Class  Class
	Code   string // the Kafka error's name, or a stable word of ours; "" when none applies
	Detail string // for people: what, how much, which limit; never a payload or a key
}

// Outcome is one event's end, as the sink reports it and the settler writes
// it. Every ticket that was published gets exactly one Outcome (I4), unless
// its session ended first: then it gets none, and the log brings the event
// again.
type Outcome struct {
	Ticket  Ticket
	Event   *Event
	Verdict Verdict

	// Holds says that later events of the same key must wait behind this
	// one. Set for Diverted, and for Refused under the policy hold.
	Holds bool
	// Refusal is set for Refused.
	Refusal Refusal
	// Record is what would have been sent: set for every verdict but
	// Acked. Its Topic is "" when no topic could be found, its Headers nil
	// when they could not be encoded.
	Record *Record
}
