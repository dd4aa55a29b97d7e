package kafkaserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// ReplicationFactor is the name in a topic's settings that gives the number of
// copies; without it there is one per node, at most three.
const ReplicationFactor = "replication.factor"

// Record is what a topic holds, with all its bytes.
type Record struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte // nil is null, empty is not
	Headers    []Header
	Timestamp  time.Time // milliseconds
}

// Header is one header of a Record.
type Header struct {
	Key   string
	Value []byte
}

// client makes a client for one short job.
func client(brokers []string, options ...kgo.Opt) (*kgo.Client, error) {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.MetadataMinAge(50 * time.Millisecond), // the default of 5 s makes every leader change cost that
		kgo.MetadataMaxAge(time.Second),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("making a Kafka client: %w", err)
	}
	return c, nil
}

// CreateTopic makes a topic and waits until every partition has a leader.
func CreateTopic(ctx context.Context, brokers []string, name string, partitions int, settings map[string]string) error {
	c, err := client(brokers)
	if err != nil {
		return err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	copies, configs, err := copies(ctx, admin, settings)
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	if _, err := admin.CreateTopic(ctx, int32(partitions), copies, configs, name); err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	return guard.Poll(ctx, "leaders of topic "+name, nil, func() (bool, error) {
		m, err := admin.Metadata(ctx, name)
		if err != nil {
			return false, err
		}
		return led(m.Topics[name], partitions), nil
	})
}

// copies takes ReplicationFactor out of the settings.
func copies(ctx context.Context, admin *kadm.Client, settings map[string]string) (int16, map[string]*string, error) {
	var factor int16
	configs := map[string]*string{}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		v := settings[k]
		if k != ReplicationFactor {
			configs[k] = &v
			continue
		}
		if _, err := fmt.Sscanf(v, "%d", &factor); err != nil {
			return 0, nil, fmt.Errorf("reading %s %q: %w", ReplicationFactor, v, err)
		}
	}
	if factor == 0 {
		m, err := admin.BrokerMetadata(ctx)
		if err != nil {
			return 0, nil, fmt.Errorf("counting the brokers: %w", err)
		}
		factor = int16(min(3, len(m.Brokers)))
	}
	return factor, configs, nil
}

func led(t kadm.TopicDetail, partitions int) bool {
	if t.Err != nil || len(t.Partitions) != partitions {
		return false
	}
	for _, p := range t.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return true
}

// Isolation says which records a Dump shows.
type Isolation int

// All shows open and aborted transactions too; Committed is what a consumer
// with isolation.level=read_committed sees.
const (
	All Isolation = iota
	Committed
)

// Dump reads a topic with a fresh client from its start to the ends that stood
// when the call began, and gives it partition by partition in offset order.
func Dump(ctx context.Context, brokers []string, topic string, isolation Isolation) ([]Record, error) {
	// Control records are read and left out below: an end may stand behind one.
	options := []kgo.Opt{kgo.KeepControlRecords()}
	if isolation == Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c, err := client(brokers, options...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	list := admin.ListEndOffsets
	if isolation == Committed {
		list = admin.ListCommittedOffsets
	}
	starts, errStart := admin.ListStartOffsets(ctx, topic)
	ends, errEnd := list(ctx, topic)
	if err := errors.Join(errStart, errEnd, starts.Error(), ends.Error()); err != nil {
		return nil, fmt.Errorf("listing offsets of topic %s: %w", topic, err)
	}
	left := map[int32]int64{} // partition: end, while not reached
	from := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, o.Partition)
		if start.Offset < o.Offset {
			left[o.Partition], from[o.Partition] = o.Offset, kgo.NewOffset().At(start.Offset)
		}
	})
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	records, err := consume(ctx, c, left)
	if err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", topic, err)
	}
	slices.SortStableFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// consume reads until every partition in left has come to its end.
func consume(ctx context.Context, c *kgo.Client, left map[int32]int64) ([]Record, error) {
	var records []Record
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if !ok || r.Offset >= end {
				return
			}
			if !r.Attrs.IsControl() {
				records = append(records, record(r))
			}
			if r.Offset == end-1 {
				delete(left, r.Partition)
			}
		})
	}
	return records, nil
}

func record(r *kgo.Record) Record {
	out := Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{Key: h.Key, Value: h.Value})
	}
	return out
}
