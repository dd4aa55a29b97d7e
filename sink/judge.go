package sink

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// blame says whose fault an error is, and so what is done.
type blame uint8

const (
	// blameRecord: some record of the batch. Smaller chunks find it; the one
	// that is refused alone is Refused.
	blameRecord blame = iota + 1
	// blameSuspect: perhaps a record. As blameRecord, but the same error on
	// several records in a row is taken for a fault of the line.
	blameSuspect
	// blameLine: the topic or the cluster. Nothing is charged; the topic is
	// blocked, and tried again with growing pauses.
	blameLine
	// blameConfig: as blameLine, but a person has to change something.
	blameConfig
	// blameClient: the client repeats it by itself without limit, so it does
	// not reach us; if it does, it is treated as blameLine.
	blameClient
	// blameSession: what was stored is unknown, or the producer is dead. The
	// session ends and the log brings the events again.
	blameSession
)

func (b blame) String() string {
	return [...]string{"nothing", "record", "suspect", "line", "configuration", "client", "session"}[b]
}

// judgement is what the sink makes of an error.
type judgement struct {
	blame blame
	code  string       // the Kafka error's name, or a stable word of ours
	class outbox.Class // for blameRecord and blameSuspect
	why   string       // the reason for the blame, for people
	renew bool         // healing needs a new client: this one holds a dead topic
}

// judge classifies the error of a record. Unknown is never success and never
// the line's fault at once: a re-send alone decides.
func judge(err error) judgement {
	if errors.Is(err, kgo.ErrClientClosed) {
		return judgement{blame: blameSession, code: "CLIENT_CLOSED", why: "the client was closed under its records; what was stored is unknown"}
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		if j, ok := kafkaErrors[known.Code]; ok {
			j.code = known.Message
			return j
		}
	}
	if j, ok := judgeClient(err); ok {
		return j
	}
	return judgement{blame: blameSuspect, code: "UNKNOWN", class: outbox.ClassBrokerRefused, why: "an error this program does not know"}
}

// clientWords are errors of the client that have no exported value.
var clientWords = []string{
	"invalid record partitioning choice", // fewer partitions in the client's view than in ours
	"unable to partition record",         // no usable partition
	"topic purged while buffered",
	"metadata update is missing a partition",
	"metadata request did not return topics",
	"unable to initialize a producer ID",
}

// judgeClient recognises what the client says by itself.
func judgeClient(err error) (judgement, bool) {
	line := judgement{blame: blameLine, code: "CLIENT", why: "the client's view of the cluster is out of date, or it cannot reach it"}
	for _, known := range []error{
		kgo.ErrMaxBuffered, kgo.ErrRecordTimeout, kgo.ErrRecordRetries, kgo.ErrAborting,
		context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	} {
		if errors.Is(err, known) {
			return line, true
		}
	}
	var network net.Error
	if errors.As(err, &network) {
		return line, true
	}
	for _, word := range clientWords {
		if strings.Contains(err.Error(), word) {
			return line, true
		}
	}
	return judgement{}, false
}

// suspectRun counts the same suspect error on records refused alone in a row.
type suspectRun struct {
	code string
	n    int
}

// suspectRunLimit is the length at which the line is blamed: that many
// different records with the same mysterious error are no coincidence.
const suspectRunLimit = 5

// hit counts one more and says whether the line is to blame.
func (r *suspectRun) hit(code string) bool {
	if r.code != code {
		*r = suspectRun{code: code}
	}
	r.n++
	return r.n >= suspectRunLimit
}
