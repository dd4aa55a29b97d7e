package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Every error of the protocol has a judgement with a reason, and the table
// holds no code that the protocol does not have.
func TestEveryKafkaErrorIsJudged(t *testing.T) {
	t.Parallel()
	known := map[int16]bool{}
	for code := math.MinInt16; code <= math.MaxInt16; code++ {
		err := kerr.TypedErrorForCode(int16(code))
		if err == nil || (err == kerr.UnknownServerError && code != -1) {
			continue
		}
		known[int16(code)] = true
		j, ok := kafkaErrors[int16(code)]
		switch {
		case !ok:
			t.Errorf("%d %s has no judgement", code, err.Message)
		case j.blame < blameRecord || j.blame > blameSession || j.why == "":
			t.Errorf("%d %s: incomplete judgement %+v", code, err.Message, j)
		case (j.blame == blameRecord || j.blame == blameSuspect) != (j.class != ""):
			t.Errorf("%d %s: blame %s with class %q", code, err.Message, j.blame, j.class)
		}
		if got := judge(err); got.code != err.Message || got.blame != j.blame {
			t.Errorf("%d: judged %+v", code, got)
		}
	}
	for code := range kafkaErrors {
		if !known[code] {
			t.Errorf("code %d is not in the protocol", code)
		}
	}
	if len(known) < 137 {
		t.Errorf("only %d codes seen: the walk over the table is broken", len(known))
	}
}

// The errors that decide most are pinned: charging a row for an outage, or
// settling what is unknown, would lose or block events.
func TestJudgementsThatMatter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want blame
	}{
		{fmt.Errorf("%w (uncompressed_bytes=1)", kerr.MessageTooLarge), blameRecord},
		{kerr.RecordListTooLarge, blameRecord},
		{kerr.InvalidRecord, blameRecord},
		{kerr.InvalidTimestamp, blameRecord},
		{kerr.CorruptMessage, blameSuspect},
		{kerr.UnknownServerError, blameSuspect},
		{errors.New("something new"), blameSuspect},
		{kerr.UnknownTopicOrPartition, blameLine},
		{kerr.UnknownTopicID, blameLine},
		{errors.New("invalid record partitioning choice of 3 from 1 available"), blameLine},
		{errors.New("unable to partition record due to no usable partitions"), blameLine},
		{kgo.ErrMaxBuffered, blameLine},
		{kgo.ErrRecordRetries, blameLine},
		{fmt.Errorf("reading: %w", io.EOF), blameLine},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, blameLine},
		{context.DeadlineExceeded, blameLine},
		{kerr.TopicAuthorizationFailed, blameConfig},
		{kerr.ClusterAuthorizationFailed, blameConfig},
		{kerr.SaslAuthenticationFailed, blameConfig},
		{kerr.UnsupportedCompressionType, blameConfig},
		{kerr.NotEnoughReplicas, blameClient},
		{kerr.NotLeaderForPartition, blameClient},
		{kerr.RequestTimedOut, blameClient},
		{kerr.OutOfOrderSequenceNumber, blameSession},
		{kerr.UnknownProducerID, blameSession},
		{kerr.InvalidProducerEpoch, blameSession},
		{kerr.ProducerFenced, blameSession},
		{kgo.ErrClientClosed, blameSession},
	} {
		if got := judge(c.err); got.blame != c.want || got.why == "" || got.code == "" {
			t.Errorf("%v: judged %s (%+v), want %s", c.err, got.blame, got, c.want)
		}
	}
	if !judge(kerr.UnknownTopicID).renew {
		t.Error("a topic created anew must renew the client")
	}
}

// The fifth record in a row with the same suspect error blames the line; any
// other error starts the count anew.
func TestSuspectRunBlamesTheLine(t *testing.T) {
	t.Parallel()
	var r suspectRun
	for range suspectRunLimit - 1 {
		if r.hit("A") {
			t.Fatal("blamed too early")
		}
	}
	if r.hit("B") {
		t.Fatal("another error must start anew")
	}
	for i := range suspectRunLimit {
		if got := r.hit("A"); got != (i == suspectRunLimit-1) {
			t.Fatalf("hit %d: %v", i, got)
		}
	}
}
