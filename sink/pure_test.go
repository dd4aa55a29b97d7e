package sink

import (
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// A key's partition is the one the Java client chooses. The vectors are those
// of the Java client's and librdkafka's own tests; the partitions are compared
// with an implementation that is not ours.
// Case F36 of docs/guarantees.md.
func TestPartitionsAreThoseOfTheJavaClient(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc":               479470107,
		"":                  0x106e08d9,
		"kafka":             math.MinInt32 + 0x5067cf64, // 0xd067cf64: the sign bit is set
		"giberish123456789": math.MinInt32 + 0x0f552b0c,
	} {
		if got := int32(murmur2(key)); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(rapid.String(), rapid.StringN(0, 3, -1), rapid.Just("100:48069"), rapid.Just("schlüssel-ключ-鍵")).Draw(t, "key")
		n := rapid.IntRange(1, 50).Draw(t, "partitions")
		other := kgo.StickyKeyPartitioner(nil).ForTopic("t")
		want := other.Partition(&kgo.Record{Key: append([]byte{}, key...)}, n)
		if got := partitionOf(key, n); got != want {
			t.Fatalf("partition of %q among %d is %d, want %d", key, n, got, want)
		}
	})
}

// A queue gives back what was put in, in order, also when part of it was put
// back to the front.
func TestQueueKeepsOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []outbox.Ticket
		var next outbox.Ticket
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 6000).Draw(t, "n") {
					next++
					q.push(entry{ticket: next})
					model = append(model, next)
				}
			},
			"pop and put back": func(t *rapid.T) {
				n := rapid.IntRange(0, len(model)).Draw(t, "n")
				var out []entry
				for i := range n {
					e := q.pop()
					if e.ticket != model[i] {
						t.Fatalf("popped %d, want %d", e.ticket, model[i])
					}
					out = append(out, e)
				}
				back := rapid.IntRange(0, n).Draw(t, "back")
				q.unshift(out[n-back:])
				model = model[n-back:]
			},
			"": func(t *rapid.T) {
				if q.len() != len(model) {
					t.Fatalf("%d entries, want %d", q.len(), len(model))
				}
			},
		})
	})
}

// What cannot work is refused by New with the key to correct, and what is not
// built yet says so.
func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	good := func() Config { return Config{Brokers: []string{"127.0.0.1:1"}} }
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no brokers", func(c *Config) { c.Brokers = nil }, "kafka.brokers"},
		{"codec", func(c *Config) { c.Codec = "brotli" }, "kafka.codec"},
		{"record bytes", func(c *Config) { c.RecordBytes = 5 }, "limits.record_bytes"},
		{"missing topic", func(c *Config) { c.Route.OnMissingTopic = "create" }, "on_missing_topic"},
		{"template", func(c *Config) { c.Route.Template = "a.${b}" }, "route.template"},
		{"open template", func(c *Config) { c.Route.Template = "a.${event_type" }, "route.template"},
		{"pattern", func(c *Config) { c.Route.Allow = []string{"a[bc]*"} }, "route.allow"},
		{"route to internal", func(c *Config) { c.Route.Topics = map[string]string{"x": "__consumer_offsets"} }, "__"},
		{"route past allow", func(c *Config) { c.Route = Route{Topics: map[string]string{"x": "b"}, Allow: []string{"a"}} }, "route.allow"},
		{"stop", func(c *Config) { c.Policy.Default = "stop" }, "does not have yet"},
		{"hold_until_parked", func(c *Config) {
			c.Policy.Topics = map[string]map[outbox.Class]Action{"t": {outbox.ClassRoute: "hold_until_parked"}}
		}, "does not have yet"},
		{"unknown action", func(c *Config) { c.Policy.Default = "drop" }, "policy.default"},
		{"unknown class", func(c *Config) {
			c.Policy.Topics = map[string]map[outbox.Class]Action{"t": {"odd": ActionSkip}}
		}, "class"},
	} {
		config := good()
		c.change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	for name := range codecs {
		config := good()
		config.Codec = name
		if _, err := New(config); err != nil {
			t.Errorf("codec %s: %v", name, err)
		}
	}
}

// The policy is the topic's for the class, else the default; an event without
// a key never holds.
func TestPolicyDecidesWhoHolds(t *testing.T) {
	t.Parallel()
	skips := Policy{Topics: map[string]map[outbox.Class]Action{"a": {outbox.ClassTooLarge: ActionSkip}}}
	inverse := Policy{Default: ActionSkip, Topics: map[string]map[outbox.Class]Action{"a": {outbox.ClassTooLarge: ActionHold}}}
	for _, c := range []struct {
		policy Policy
		topic  string
		class  outbox.Class
		keyed  bool
		want   bool
	}{
		{Policy{}, "a", outbox.ClassTooLarge, true, true},
		{Policy{}, "a", outbox.ClassTooLarge, false, false},
		{skips, "a", outbox.ClassTooLarge, true, false},
		{skips, "a", outbox.ClassEncode, true, true},
		{skips, "b", outbox.ClassTooLarge, true, true},
		{inverse, "a", outbox.ClassTooLarge, true, true},
		{inverse, "a", outbox.ClassTooLarge, false, false},
		{inverse, "b", outbox.ClassTooLarge, true, false},
	} {
		if got := c.policy.holds(c.topic, c.class, c.keyed); got != c.want {
			t.Errorf("%+v: %s %s keyed=%v holds=%v", c.policy, c.topic, c.class, c.keyed, got)
		}
	}
}

// The topic is the column's, else the map's by event type, else by aggregate
// type, else the template's.
func TestRouteGoesByColumnThenMapThenTemplate(t *testing.T) {
	t.Parallel()
	r, err := newRouter(Route{
		Topics:   map[string]string{"order.created": "orders-new", "order": "orders"},
		Template: "x.${aggregate_type}.${event_type}",
		Allow:    []string{"orders*", "x.*", "exact", "bad"},
	})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 250)
	for _, c := range []struct {
		topic, aggregate, kind string
		want                   string
		refused                string
	}{
		{"exact", "order", "order.created", "exact", ""},
		{"", "order", "order.created", "orders-new", ""},
		{"", "order", "order.paid", "orders", ""},
		{"", "bill", "bill.paid", "x.bill.bill.paid", ""},
		{"", "bill", "", "", "empty"},
		{"other", "", "", "other", "route.allow"},
		{"exactly", "", "", "exactly", "route.allow"},
		{"__consumer_offsets", "", "", "__consumer_offsets", "__"},
		{"Dont care", "", "", "Dont care", "letters"},
		{".", "", "", ".", ". or .."},
		{"..", "", "", "..", ". or .."},
		{"a/b", "", "", "a/b", "letters"},
		{"ünï", "", "", "ünï", "letters"},
		{long, "", "", long, "249"},
	} {
		name, refusal := r.topic(&outbox.Event{Topic: c.topic, AggregateType: c.aggregate, Type: c.kind})
		if name != c.want {
			t.Errorf("%+v: topic %q", c, name)
		}
		switch {
		case c.refused == "" && refusal != nil:
			t.Errorf("%+v: refused: %s", c, refusal.Detail)
		case c.refused != "" && (refusal == nil || refusal.Class != outbox.ClassRoute || !strings.Contains(refusal.Detail, c.refused)):
			t.Errorf("%+v: refusal %+v", c, refusal)
		}
	}
	open, err := newRouter(Route{})
	if err != nil {
		t.Fatal(err)
	}
	if name, refusal := open.topic(&outbox.Event{AggregateType: "order"}); name != "outbox.event.order" || refusal != nil {
		t.Errorf("default route: %q, %v", name, refusal)
	}
	if _, refusal := open.topic(&outbox.Event{Topic: "__transaction_state"}); refusal == nil {
		t.Error("an internal topic passed an empty allow-list")
	}
}

// A varint's size is what the encoding takes.
func TestVarintSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    int64
		want int
	}{{0, 1}, {-1, 1}, {63, 1}, {-64, 1}, {64, 2}, {8191, 2}, {8192, 3}, {math.MaxInt64, 10}, {math.MinInt64, 10}} {
		if got := varintSize(c.v); got != c.want {
			t.Errorf("%d: %d, want %d", c.v, got, c.want)
		}
	}
}
