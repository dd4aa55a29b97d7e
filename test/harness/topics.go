package harness

import (
	"context"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// Record is what a topic holds, with all its bytes.
type Record = kafkaserver.Record

// Header is one header of a Record.
type Header = kafkaserver.Header

// topics is what real and fake clusters have in common. brokers gives the
// bootstrap addresses of the plain listener.
type topics struct {
	brokers func() []string
}

// Brokers gives the bootstrap addresses of the plain listener.
func (k topics) Brokers() []string { return k.brokers() }

// CreateTopic makes a topic and waits until every partition has a leader. The
// settings are those of the topic, for example max.message.bytes; the one named
// replication.factor is not a setting of Kafka's but the number of copies.
func (k topics) CreateTopic(t testing.TB, name string, partitions int, settings map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
	defer cancel()
	if err := kafkaserver.CreateTopic(ctx, k.Brokers(), name, partitions, settings); err != nil {
		t.Fatal(err)
	}
}

// Dump reads a topic with a fresh client from its beginning to the ends that
// stood when the call began, partition by partition in offset order. Records of
// open and aborted transactions are shown.
func (k topics) Dump(t testing.TB, topic string) []Record {
	t.Helper()
	return k.dump(t, topic, kafkaserver.All)
}

// DumpCommitted is Dump as a consumer with isolation read_committed sees it.
func (k topics) DumpCommitted(t testing.TB, topic string) []Record {
	t.Helper()
	return k.dump(t, topic, kafkaserver.Committed)
}

func (k topics) dump(t testing.TB, topic string, isolation kafkaserver.Isolation) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
	defer cancel()
	records, err := kafkaserver.Dump(ctx, k.Brokers(), topic, isolation)
	if err != nil {
		t.Fatal(err)
	}
	return records
}
