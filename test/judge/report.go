package judge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// Evidence is all that a verdict is made from.
type Evidence struct {
	Rows    []Row                // Truth.Rows
	Records []kafkaserver.Record // dumps of all topics, one after the other, each in offset order
	Lines   []Line               // what waits
	Journal *Journal             // what the writers know; nil when they kept none
}

// Rules say what this run promised. The zero value is the strictest.
type Rules struct {
	// ID gives the event id of a record; nil = header outbox-id.
	ID func(kafkaserver.Record) string
	// Restarts bounds the replays that one partition may show: crashes,
	// restarts and broken connections of the run. Any replay is a problem
	// when it is 0; a negative number is no bound.
	Restarts int
	// SkipsSettled allows a replay to leave out rows that were settled before
	// it, as write-back does, and so to be no contiguous slice.
	SkipsSettled bool
	// Settled is the same where the test knows those rows, by event id: it
	// reads them after each death, once the server has let go of the dead
	// relay. A replay may leave out these and no others.
	Settled map[string]bool
	// NoLines wants every committed row in a topic and none in a line. A test
	// whose faults must not cost a row sets it instead of looking at Waiting:
	//
	//	s.Judge(t, tr, nil, judge.Rules{NoLines: true})
	NoLines bool
	// BrokerTimes are topics whose records carry the broker's time
	// (message.timestamp.type=LogAppendTime), not the row's.
	BrokerTimes map[string]bool
	// Discarded are event ids that a person gave up on.
	Discarded map[string]bool
	// MayLose are event ids that the journal calls committed and the truth
	// does not know, after a failover to an asynchronous standby.
	MayLose map[string]bool
}

// Report is what Check found. The problems list at most a few of each kind;
// the counts are whole.
type Report struct {
	Rows        int // committed rows
	Published   int // of them, in a topic
	Waiting     int // of them, in a line and in no topic
	Lost        int // of them, nowhere
	Refused     int // waiting in a line although the run promised that none would
	Hidden      int // waiting in a line, but the row does not say so
	Records     int // records in the topics
	Duplicates  int // records beyond the first copy
	OutOfOrder  int // first copies behind a later one of their key, or in a second partition
	Invented    int // records without a committed row
	Altered     int // records whose topic, key, value, headers or timestamp are not the row's, or that differ from their first copy
	Replays     int // steps back, over all partitions
	BadReplays  int // runs that are no contiguous slice, or too many of them
	Disagreeing int // rows on which the writers' journal and the truth differ
	Problems    []string
}

// shown bounds the problems of one kind that are spelled out.
const shown = 5

// problem counts one and spells out the first few.
func (r *Report) problem(count *int, format string, args ...any) {
	*count++
	if *count <= shown {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Err is nil when the relay kept its promises.
func (r Report) Err() error {
	bad := r.Lost + r.Refused + r.Hidden + r.OutOfOrder + r.Invented + r.Altered + r.BadReplays + r.Disagreeing
	if bad == 0 {
		return nil
	}
	return errors.New("judging the run: " + r.String())
}

// String gives the counts in one line, and each problem on its own.
func (r Report) String() string {
	head := fmt.Sprintf("rows=%d published=%d waiting=%d lost=%d refused=%d hidden=%d records=%d duplicates=%d "+
		"out_of_order=%d invented=%d altered=%d replays=%d bad_replays=%d disagreeing=%d",
		r.Rows, r.Published, r.Waiting, r.Lost, r.Refused, r.Hidden, r.Records, r.Duplicates,
		r.OutOfOrder, r.Invented, r.Altered, r.Replays, r.BadReplays, r.Disagreeing)
	return strings.Join(append([]string{head}, r.Problems...), "\n  ")
}
