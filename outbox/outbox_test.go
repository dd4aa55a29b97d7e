package outbox

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLSNsCompareAsNumbers proves the pairs that a comparison of texts gets
// wrong, around the border of the two halves among them.
// Case F31 of docs/guarantees.md.
func TestLSNsCompareAsNumbers(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"0/9", "0/10"}, {"F/FFFFFFFF", "10/0"}, {"7FFFFFFF/0", "80000000/0"}, {"0/FFFFFFFF", "1/0"}, {"0/0", "0/1"},
	} {
		a, errA := ParseLSN(pair[0])
		b, errB := ParseLSN(pair[1])
		if errA != nil || errB != nil || a >= b {
			t.Errorf("%s < %s: got %d and %d (%v, %v)", pair[0], pair[1], a, b, errA, errB)
		}
	}
}

// TestLSNRoundTrip proves that what is printed is read back, and that it is
// printed as the server prints it.
func TestLSNRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lsn := LSN(rapid.Uint64().Draw(t, "lsn"))
		if want := fmt.Sprintf("%X/%X", uint64(lsn)>>32, uint64(lsn)&math.MaxUint32); lsn.String() != want {
			t.Fatalf("printed %s, the server prints %s", lsn, want)
		}
		if got, err := ParseLSN(lsn.String()); err != nil || got != lsn {
			t.Fatalf("read back %v (%v), want %v", got, err, lsn)
		}
	})
}

// TestLSNRefusesWhatIsNone proves that nothing but two halves of hexadecimal
// digits is a position.
func TestLSNRefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "/", "0", "0/", "/0", "0/0/0", "+1/0", "0/-1", "0/1_0", " 0/1", "0/1 ", "0/123456789", "G/0", "0x1/0"} {
		if got, err := ParseLSN(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}

// TestPositionWireForm pins the header outbox-position and proves the round
// trip.
func TestPositionWireForm(t *testing.T) {
	t.Parallel()
	if got := (Position{Timeline: 1, Commit: 0x16B3748, Index: 3}).String(); got != "1:0/16B3748:3" {
		t.Fatalf("printed %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Position{Timeline: rapid.Uint32().Draw(t, "timeline"), Commit: LSN(rapid.Uint64().Draw(t, "commit")), Index: rapid.IntRange(0, math.MaxInt32).Draw(t, "index")}
		if got, err := ParsePosition(p.String()); err != nil || got != p {
			t.Fatalf("read back %v (%v), want %v", got, err, p)
		}
	})
	for _, s := range []string{"", "1", "1:0/1", ":0/1:0", "1:0/1:", "1:0/1:-1", "x:0/1:0", "1:01:0", "1:0/1:0:0"} {
		if got, err := ParsePosition(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}

// TestPositionsOfTwoTimelinesDoNotCompare proves that the comparison which
// would need the fork point is refused.
func TestPositionsOfTwoTimelinesDoNotCompare(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Fatal("positions of two timelines were compared")
		}
	}()
	_ = Position{Timeline: 1}.Less(Position{Timeline: 2})
}

// TestProgressCoversStrictly proves the rule of the replay: a transaction
// whose commit record stands exactly at the position is the next one, not the
// last, and inside it the rows below the index are done.
func TestProgressCoversStrictly(t *testing.T) {
	t.Parallel()
	g := Progress{Timeline: 1, LSN: 100, NextCommit: 100, NextIndex: 2}
	for p, want := range map[Position]bool{
		{1, 99, 7}: true, {1, 100, 0}: true, {1, 100, 1}: true, {1, 100, 2}: false, {1, 101, 0}: false,
	} {
		if got := g.Covers(p); got != want {
			t.Errorf("covers %v: %v, want %v", p, got, want)
		}
	}
	if (Progress{LSN: 100}).Covers(Position{Commit: 100}) {
		t.Error("the transaction that begins at the position is covered")
	}
}

// TestProgressOrder proves that progress is ordered by its parts in turn.
func TestProgressOrder(t *testing.T) {
	t.Parallel()
	rising := []Progress{{LSN: 1}, {LSN: 1, NextCommit: 5, NextIndex: 1}, {LSN: 1, NextCommit: 5, NextIndex: 2}, {LSN: 1, NextCommit: 6, NextIndex: 1}, {LSN: 2}}
	for i := range rising {
		for j := range rising {
			if got := rising[i].Before(rising[j]); got != (i < j) {
				t.Errorf("%+v before %+v: %v", rising[i], rising[j], got)
			}
		}
	}
}

// TestStatusCodesArePinned proves that the numbers in the application's table
// keep their meaning.
func TestStatusCodesArePinned(t *testing.T) {
	t.Parallel()
	want := []string{"READY", "INPROGRESS", "SENT", "FAILED", "CONSUMED", "CONSUMING"}
	for code, name := range want {
		if got := Status(code).String(); got != name {
			t.Errorf("status %d is %s, want %s", code, got, name)
		}
	}
	if got := Status(6).String(); got != "UNKNOWN" {
		t.Errorf("status 6 is %s", got)
	}
}

// TestUnknownVerdictIsNoSuccess proves that the zero verdict, and any that is
// not named, is not Acked.
func TestUnknownVerdictIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, v := range []Verdict{0, 5, 255} {
		if v == Acked || v.String() != "unknown" {
			t.Errorf("verdict %d is %s", v, v)
		}
	}
}

// TestEnvelopeRoundTrip proves that a stored record comes back byte for byte,
// with headers that JSON text could not hold.
func TestEnvelopeRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Record{Topic: rapid.String().Draw(t, "topic"), Timestamp: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "ms")).UTC()}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			h := Header{Key: rapid.String().Draw(t, "key")}
			if rapid.Bool().Draw(t, "value") {
				h.Value = rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
				if h.Value == nil {
					h.Value = []byte{}
				}
			}
			r.Headers = append(r.Headers, h)
		}
		got, err := UnmarshalEnvelope(r.MarshalEnvelope(&Event{}, false))
		if err != nil {
			t.Fatal(err)
		}
		same := func(a, b Header) bool {
			return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
		}
		if got.Topic != r.Topic || !got.Timestamp.Equal(r.Timestamp) || !slices.EqualFunc(got.Headers, r.Headers, same) {
			t.Fatalf("came back as %+v, was %+v", got, r)
		}
	})
	if _, err := UnmarshalEnvelope([]byte(`{"version":2}`)); err == nil {
		t.Error("an envelope of another version was read")
	}
}

// TestKeyOfAnEvent proves the wire contract: message_key, else aggregate_id,
// else none; an empty key is a key.
func TestKeyOfAnEvent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    Event
		key  string
		have bool
	}{
		{Event{MessageKey: "m", HasMessageKey: true, AggregateID: "a", HasAggregate: true}, "m", true},
		{Event{HasMessageKey: true, AggregateID: "a", HasAggregate: true}, "", true},
		{Event{AggregateID: "a", HasAggregate: true}, "a", true},
		{Event{HasAggregate: true}, "", true},
		{Event{}, "", false},
	} {
		if key, have := c.e.Key(); key != c.key || have != c.have {
			t.Errorf("%+v: key %q %v, want %q %v", c.e, key, have, c.key, c.have)
		}
	}
}

// TestPinnedSettingsAreFresh proves that a caller may change the map it gets.
func TestPinnedSettingsAreFresh(t *testing.T) {
	t.Parallel()
	PinnedSettings()["synchronous_commit"] = "off"
	if got := PinnedSettings()["synchronous_commit"]; got != "on" {
		t.Fatalf("synchronous_commit is pinned to %q", got)
	}
}

// TestPinLateFollowsTheVersion proves that a setting is named only to
// servers that know it, however their version is written.
func TestPinLateFollowsTheVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"14.23": false, "16.14 (Debian 16.14-1)": false, "17.0": true, "18beta1": true, "": false, "EnterpriseDB": false} {
		got := false
		if err := PinLate(version, func(string) error { got = true; return nil }); err != nil || got != want {
			t.Errorf("version %q: %t, %v, want %t", version, got, err, want)
		}
	}
}
