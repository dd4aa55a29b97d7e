package sink

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Config is what the sink needs to know. The zero value of every field but
// Brokers has a meaning.
type Config struct {
	Brokers  []string       // host:port of some brokers; at least one
	ClientID string         // "" is outbox-relay
	TLS      *tls.Config    // nil is plain text
	SASL     sasl.Mechanism // nil is none
	Codec    string         // none, gzip, snappy, lz4 (also for ""), zstd

	Route  Route
	Policy Policy

	// RecordBytes bounds the uncompressed size of a batch that holds one
	// record, in bytes, beside each topic's max.message.bytes. 0 is 64 MiB.
	RecordBytes int
	// MaxTopics bounds the values of the label topic; further topics are
	// counted under _other. 0 is 200.
	MaxTopics int

	Logger     zerolog.Logger
	Registerer prometheus.Registerer // nil registers nothing
	Slot       string                // the label slot of every metric

	// ClientOptions are added last, for tests.
	ClientOptions []kgo.Opt
}

const (
	defaultClientID    = "outbox-relay"
	defaultMaxTopics   = 200
	defaultRecordBytes = 64 << 20
	// The client refuses requests beyond 1 GiB, and brokers by default
	// beyond 100 MiB (socket.request.max.bytes).
	maxRecordBytes = 1 << 29
	// Below this not even headers of a usual record fit.
	minRecordBytes = 1 << 10
)

// withDefaults fills the zero values and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("configuring the sink: kafka.brokers is empty; name at least one host:port")
	}
	if c.ClientID == "" {
		c.ClientID = defaultClientID
	}
	if c.Codec == "" {
		c.Codec = "lz4"
	}
	if c.MaxTopics == 0 {
		c.MaxTopics = defaultMaxTopics
	}
	if c.RecordBytes == 0 {
		c.RecordBytes = defaultRecordBytes
	}
	if c.RecordBytes < minRecordBytes || c.RecordBytes > maxRecordBytes {
		return c, fmt.Errorf("configuring the sink: limits.record_bytes is %d, want %d to %d", c.RecordBytes, minRecordBytes, maxRecordBytes)
	}
	return c, nil
}

// codecs are the names of the codecs as Kafka spells them.
var codecs = map[string]func() kgo.CompressionCodec{
	"none":   kgo.NoCompression,
	"gzip":   kgo.GzipCompression,
	"snappy": kgo.SnappyCompression,
	"lz4":    kgo.Lz4Compression,
	"zstd":   kgo.ZstdCompression,
}

func codec(name string) (kgo.CompressionCodec, error) {
	make, ok := codecs[name]
	if !ok {
		return kgo.CompressionCodec{}, fmt.Errorf("configuring the sink: kafka.codec is %q, want none, gzip, snappy, lz4 or zstd", name)
	}
	return make(), nil
}

// Action says what later events of a refused event's key do.
type Action string

// The actions. The zero value takes the default: ActionHold for an event with
// a key, ActionSkip for one without, which keeps no order anyway.
const (
	ActionHold Action = "hold" // they wait behind it
	ActionSkip Action = "skip" // they pass it
)

// classes are the classes of refusal that a policy may name.
var classes = []outbox.Class{
	outbox.ClassTooLarge, outbox.ClassInvalid, outbox.ClassEncode, outbox.ClassRoute, outbox.ClassBrokerRefused,
}

// Policy says which Action applies: the one of the topic and class, else
// Default.
type Policy struct {
	Default Action
	Topics  map[string]map[outbox.Class]Action
}

func (p Policy) check() error {
	if err := p.Default.check("policy.default"); err != nil {
		return err
	}
	for topic, byClass := range p.Topics {
		for class, action := range byClass {
			if !slices.Contains(classes, class) {
				return fmt.Errorf("configuring the sink: policy.topics.%s names the class %q, want one of %v", topic, class, classes)
			}
			if err := action.check(fmt.Sprintf("policy.topics.%s.%s", topic, class)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a Action) check(key string) error {
	switch a {
	case "", ActionHold, ActionSkip:
		return nil
	case "hold_until_parked", "stop":
		return fmt.Errorf("configuring the sink: %s is %q, which this version does not have yet; use hold or skip", key, string(a))
	default:
		return fmt.Errorf("configuring the sink: %s is %q, want hold or skip", key, string(a))
	}
}

// holds says whether a refusal of this class makes the key wait. An event
// without a key never does: it has no order to keep.
func (p Policy) holds(topic string, class outbox.Class, keyed bool) bool {
	if !keyed {
		return false
	}
	action := p.Topics[topic][class]
	if action == "" {
		action = p.Default
	}
	return action != ActionSkip
}

// pace holds the sink's times and sizes. Tests make them smaller.
type pace struct {
	nudge        time.Duration // between repeated flushes while something is in flight
	refresh      time.Duration // between two readings of a used topic's metadata and settings
	backoffFirst time.Duration // before the first try to heal
	backoffLast  time.Duration // the longest pause between tries
	stalled      time.Duration // a chunk unanswered for so long is reported as blocked
	request      time.Duration // limit of one request for metadata, settings or a producer id
	chunkBytes   int           // largest chunk; a larger record travels alone
	chunkRecords int           // most records in a chunk
}

func defaultPace() pace {
	return pace{
		nudge:        50 * time.Millisecond,
		refresh:      time.Minute,
		backoffFirst: 200 * time.Millisecond,
		backoffLast:  30 * time.Second,
		stalled:      10 * time.Second,
		request:      10 * time.Second,
		chunkBytes:   1 << 20,
		chunkRecords: 4096,
	}
}
