//go:build containers

package harness

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// containers ends a test that no variable asked for, and names the image where
// the variable for that is not set.
func containers(t *testing.T, name, image string) {
	t.Helper()
	if os.Getenv(EnvContainers) != "1" {
		t.Skip("NOT RUN: " + EnvContainers + " is not 1")
	}
	if os.Getenv(name) == "" {
		t.Setenv(name, image)
	}
}

// Law: where variables ask for it, the same call gives a server in a container.
func TestContainerServesDatabases(t *testing.T) {
	containers(t, envImage, "postgres:17")
	d := StartPostgres(t, PostgresOptions{}).CreateDatabase(t)
	d.Exec(t, "select pg_create_logical_replication_slot('s', 'pgoutput')")
	if got := d.Query1(t, "show wal_level"); got != "logical" {
		t.Errorf("wal_level is %s", got)
	}
	if err := d.Server().Server.Start(t.Context()); err == nil {
		t.Error("a server that belongs to a container was started")
	}
}

// Law: the same holds for Kafka. Records are acknowledged and read through the
// port that the node names itself, and survive kill -9, a clean stop and a pause.
func TestContainerServesKafka(t *testing.T) {
	containers(t, EnvKafkaImage, KafkaImage)
	k := StartKafka(t, KafkaOptions{Settings: map[string]string{"message.max.bytes": "2000000"}})
	k.CreateTopic(t, "kept", 2, nil)
	for i, stop := range []func(){func() { k.Kill(t, 1) }, func() { k.Stop(t, 1) }} {
		r := &kgo.Record{Topic: "kept", Key: []byte("one key"), Value: bytes.Repeat([]byte{byte(i)}, 1_500_000)}
		if err := produce(t, k.Brokers(), []*kgo.Record{r}, kgo.ProducerBatchMaxBytes(2_000_000), kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
			t.Fatal(err)
		}
		stop()
		if pid := k.Pid(1); pid != 0 {
			t.Errorf("pid %d lives after its end", pid)
		}
		k.Start(t, 1)
	}
	k.Pause(t, 1)
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := kafkaserver.Dump(short, k.Brokers(), "kept", kafkaserver.All); err == nil {
		t.Error("a frozen node answered")
	}
	k.Resume(t, 1)
	got := k.Dump(t, "kept")
	if len(got) != 2 {
		t.Fatalf("%d records, want 2", len(got))
	}
	for i, r := range got {
		if string(r.Key) != "one key" || len(r.Value) != 1_500_000 || r.Value[0] != byte(i) {
			t.Errorf("record %d has key %q and %d bytes that begin with %d", i, r.Key, len(r.Value), r.Value[0])
		}
	}
}

// Law: tests that overlap share one container, and the last of them removes it.
func TestContainerIsShared(t *testing.T) {
	containers(t, EnvKafkaImage, KafkaImage)
	var broker string
	t.Run("users", func(t *testing.T) {
		k := SharedKafka(t)
		broker = k.Brokers()[0]
		t.Run("second", func(t *testing.T) {
			if other := SharedKafka(t); other != k {
				t.Errorf("a second node at %v", other.Brokers())
			}
		})
		k.CreateTopic(t, "after-the-second", 1, nil)
	})
	if c, err := net.Dial("tcp", broker); err == nil {
		t.Errorf("something listens at %s after the last test", broker)
		_ = c.Close()
	}
}

// Law: a container that ends instead of serving is reported with its exit code
// and its last words, long before the time is up.
func TestContainerThatEndsIsNamed(t *testing.T) {
	containers(t, EnvKafkaImage, KafkaImage)
	o := kafkaserver.Options{Settings: map[string]string{"message.max.bytes": "many"}}
	_, _, err := tryKafkaContainer(t.Context(), os.Getenv(EnvKafkaImage), o)
	for _, want := range []string{"exit code 1", "message.max.bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}
