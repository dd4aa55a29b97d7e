package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// cluster is what real and fake clusters share.
type cluster interface {
	Brokers() []string
	CreateTopic(testing.TB, string, int, map[string]string)
	Dump(testing.TB, string) []Record
}

func produce(t *testing.T, brokers []string, records []*kgo.Record, options ...kgo.Opt) error {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(50 * time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return c.ProduceSync(ctx, records...).FirstErr()
}

// Law: Dump gives back every byte of every record in offset order, on real and
// on fake clusters: null and empty values, headers, times of long ago.
func TestDumpIsExact(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) cluster{
		"kafka": func(t *testing.T) cluster { return SharedKafka(t) },
		"kfake": func(t *testing.T) cluster { return StartKfake(t, KfakeOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := start(t)
			k.CreateTopic(t, "exact", 3, map[string]string{"max.message.bytes": "100000"})
			if got := k.Dump(t, "exact"); len(got) != 0 {
				t.Fatalf("an empty topic holds %d records", len(got))
			}
			old := time.Date(1999, 12, 31, 23, 59, 59, 1e6, time.UTC)
			sent := []*kgo.Record{
				{Topic: "exact", Key: []byte("k"), Value: nil, Timestamp: old},
				{Topic: "exact", Key: []byte("k"), Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0, 255}}}},
				{Topic: "exact", Key: []byte("k"), Value: []byte("x")},
			}
			if err := produce(t, k.Brokers(), sent); err != nil {
				t.Fatal(err)
			}
			got := k.Dump(t, "exact")
			if len(got) != 3 || got[0].Value != nil || got[1].Value == nil || string(got[2].Value) != "x" {
				t.Fatalf("dump: %+v", got)
			}
			if !got[0].Timestamp.Equal(old) || got[1].Headers[0].Key != "h" || !slices.Equal(got[1].Headers[0].Value, []byte{0, 255}) {
				t.Errorf("time or headers: %+v", got)
			}
		})
	}
}

// Law: a dump of committed records leaves an aborted transaction out, and ends
// although the last record of the log is a marker.
func TestDumpCommittedLeavesAbortedOut(t *testing.T) {
	t.Parallel()
	k := SharedKafka(t)
	k.CreateTopic(t, "tx", 1, nil)
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("tx"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for value, end := range map[string]kgo.TransactionEndTry{"kept": kgo.TryCommit, "aborted": kgo.TryAbort} {
		err := errors.Join(c.BeginTransaction(), c.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(),
			c.EndTransaction(t.Context(), end))
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := k.DumpCommitted(t, "tx"); len(got) != 1 || string(got[0].Value) != "kept" {
		t.Errorf("committed: %+v", got)
	}
	if got := k.Dump(t, "tx"); len(got) != 2 {
		t.Errorf("all: %+v", got)
	}
}

// Law: every listener works with its means and refuses the wrong ones.
func TestListeners(t *testing.T) {
	t.Parallel()
	k := StartKafka(t, KafkaOptions{Listeners: []kafkaserver.Listener{TLS, SASL, SASLTLS}})
	k.CreateTopic(t, "in", 1, nil)
	user := kafkaserver.DefaultUser
	config := k.ClientTLS(t, "")
	withPlain := kgo.SASL(plain.Auth{User: user.Name, Pass: user.Password}.AsMechanism())
	scram256 := scram.Auth{User: user.Name, Pass: user.Password}.AsSha256Mechanism()
	var wrong sasl.Mechanism = scram.Auth{User: user.Name, Pass: "wrong"}.AsSha512Mechanism()
	for name, c := range map[string]struct {
		listener kafkaserver.Listener
		options  []kgo.Opt
		refused  bool
	}{
		"plain":              {listener: Plain},
		"tls":                {listener: TLS, options: []kgo.Opt{kgo.DialTLSConfig(config)}},
		"tls, client cert":   {listener: TLS, options: []kgo.Opt{kgo.DialTLSConfig(k.ClientTLS(t, "app"))}},
		"sasl plain":         {listener: SASL, options: []kgo.Opt{withPlain}},
		"sasl scram":         {listener: SASL, options: []kgo.Opt{kgo.SASL(scram256)}},
		"sasl tls scram":     {listener: SASLTLS, options: []kgo.Opt{kgo.DialTLSConfig(config), kgo.SASL(scram256)}},
		"sasl without":       {listener: SASL, refused: true},
		"sasl wrong":         {listener: SASL, options: []kgo.Opt{kgo.SASL(wrong)}, refused: true},
		"tls without the CA": {listener: TLS, options: []kgo.Opt{kgo.DialTLS()}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := append(c.options, kgo.RecordDeliveryTimeout(20*time.Second))
			if c.refused {
				options = append(options, kgo.RecordDeliveryTimeout(time.Second))
			}
			err := produce(t, k.BrokersOf(c.listener), []*kgo.Record{{Topic: "in", Value: []byte(name)}}, options...)
			if refused := err != nil; refused != c.refused {
				t.Errorf("refused %v (%v), want %v", refused, err, c.refused)
			}
		})
	}
}

// Law: acknowledged records survive kill -9 and a clean stop of a single node.
func TestSingleNodeSurvivesKill(t *testing.T) {
	t.Parallel()
	k := StartKafka(t, KafkaOptions{})
	k.CreateTopic(t, "kept", 1, nil)
	for i, stop := range []func(){func() { k.Kill(t, 1) }, func() { k.Stop(t, 1) }} {
		if err := produce(t, k.Brokers(), []*kgo.Record{{Topic: "kept", Value: fmt.Append(nil, i)}}); err != nil {
			t.Fatal(err)
		}
		stop()
		k.Start(t, 1)
	}
	if got := k.Dump(t, "kept"); len(got) != 2 {
		t.Errorf("%d records, want 2", len(got))
	}
}

// Law: three nodes go on when one is killed, and when one is frozen; nothing
// that was acknowledged is missing, doubled or out of order. Not parallel: three
// nodes are all that two cores carry.
func TestThreeNodesOutliveOne(t *testing.T) {
	k := StartKafka(t, KafkaOptions{Nodes: 3})
	k.CreateTopic(t, "three", 3, map[string]string{"min.insync.replicas": "2"})
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RequestTimeoutOverhead(2*time.Second), kgo.ProduceRequestTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := 0
	send := func(when string) {
		t.Helper()
		for range 20 {
			r := &kgo.Record{Topic: "three", Key: []byte("one key"), Value: fmt.Append(nil, sent)}
			if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatalf("record %d %s: %v", sent, when, err)
			}
			sent++
		}
	}
	send("before")
	k.Kill(t, 1)
	send("with node 1 killed")
	k.Start(t, 1)
	k.Pause(t, 2)
	send("with node 2 frozen")
	k.Resume(t, 2)
	send("after")
	got := k.Dump(t, "three")
	if len(got) != sent {
		t.Fatalf("%d records, want %d", len(got), sent)
	}
	for i, r := range got {
		if string(r.Value) != fmt.Sprint(i) {
			t.Fatalf("record %d holds %s", i, r.Value)
		}
	}
}
