package broker

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestQuotaMakesSlowerAndNothingElse proves that a relay which exceeds its quota
// of bytes is slowed down by the broker, and neither loses, repeats nor refuses
// a row for it, nor the walsender, whose patience is 3 s; when the quota is
// lifted it is fast again.
// Case F44 of docs/guarantees.md.
func TestQuotaMakesSlowerAndNothingElse(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s, a := newSite(t, k), admin(t, k.Brokers())
	s.Set("kafka", "client_id", s.Kind) // a quota of its own
	s.Set("slot", "wal_sender_timeout", "3s")
	const bytesPerSecond = 60_000
	quota := func(op kadm.AlterClientQuotaOp) {
		t.Helper()
		setQuota(t, a, s.Kind, op)
	}
	// rows commits 1,000 rows that no codec makes much smaller, looks at the
	// cluster, and gives the time until they are settled.
	rows := func(look func()) time.Duration {
		t.Helper()
		began := time.Now()
		s.DB.Exec(t, `insert into public.outbox (aggregate_id, payload)
			select 'k' || i % 20, (select decode(string_agg(md5(random()::text || i || j), ''), 'hex') from generate_series(1, 32) j) from generate_series(1, 1000) i`)
		look()
		s.drained(t)
		return time.Since(began)
	}
	tr := s.Truth(t)
	s.streaming(t)
	before := s.walsender(t)
	free := rows(func() {})
	quota(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: bytesPerSecond})
	slow := rows(func() { throttled(t, a, k.Brokers(), s.Kind) })
	quota(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
	rows(func() {}) // works off what the broker still holds against us
	lifted := rows(func() {})
	t.Logf("%v without a quota, %v with %d bytes a second, %v after it", free, slow, bytesPerSecond, lifted)
	// A quota looks at ten seconds: the rows pass at once, and the one that
	// drained writes waits until the mean is right again.
	if slow < 3*time.Second || lifted > slow {
		t.Fatal("the fault has not bitten")
	}
	if after := s.walsender(t); after != before {
		t.Errorf("walsender %s before, %s after: the connection was lost", before, after)
	}
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, nil, judge.Rules{}))
}

// setQuota changes what a client may do.
func setQuota(t *testing.T, a *kadm.Client, id string, op kadm.AlterClientQuotaOp) {
	t.Helper()
	done, err := a.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}}, Ops: []kadm.AlterClientQuotaOp{op}}})
	must(t, err)
	for _, d := range done {
		must(t, d.Err)
	}
}

// throttled waits until the brokers tell a client of the same name as the
// relay, which shares its quota, to wait.
func throttled(t *testing.T, a *kadm.Client, brokers []string, id string) {
	t.Helper()
	var told throttles
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID(id), kgo.WithHooks(&told))
	must(t, err)
	defer c.Close()
	topic := id + ".probe"
	_, err = a.CreateTopic(t.Context(), 1, 1, nil, topic)
	must(t, err)
	rig.Eventually(t, patience, "the broker to throttle", func() bool {
		must(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("probe")}).FirstErr())
		return told.n.Load() > 0
	})
}

// throttles counts the answers that tell a client to wait.
type throttles struct{ n atomic.Int64 }

func (h *throttles) OnBrokerThrottle(kgo.BrokerMetadata, time.Duration, bool) { h.n.Add(1) }

// TestPartitionsAreTheJavaClients proves that a key goes where the console
// producer of Apache Kafka itself, which is the Java client, sends it: so
// consumers that join topics of both find each key in the same partition.
// Case F36 of docs/guarantees.md.
func TestPartitionsAreTheJavaClients(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	ours, theirs := s.Topic+".ours", s.Topic+".theirs"
	const count = 12
	k.CreateTopic(t, ours, count, nil)
	k.CreateTopic(t, theirs, count, nil)
	keys := someKeys()
	s.streaming(t)
	for _, key := range keys {
		s.DB.Exec(t, `insert into public.outbox (aggregate_id, message_key, topic, payload) values ('another', $1, $2, 'v')`, key, ours)
	}
	s.drained(t)
	consoleProducer(t, k.Brokers(), theirs, keys)

	want, got := homes(t, k, theirs), homes(t, k, ours)
	if len(want) != len(keys) || len(got) != len(keys) {
		t.Fatalf("%d keys sent, %d arrived by Java and %d by the relay", len(keys), len(want), len(got))
	}
	used := map[int32]bool{}
	for _, key := range keys {
		if got[key] != want[key] {
			t.Errorf("key %q: partition %d, Java chooses %d", key, got[key], want[key])
		}
		used[want[key]] = true
	}
	if len(used) != count {
		t.Errorf("only %d of %d partitions used: the keys say little", len(used), count)
	}
	t.Logf("%d keys compared", len(keys))
}

// someKeys are keys that other clients were seen to place differently, and 200
// of random runes.
func someKeys() []string {
	keys := []string{"100:48069", "", " ", "0", "kafka", "giberish123456789", "schlüssel", "ключ", "鍵", "\U0001F511", "é", "e\u0301", strings.Repeat("long", 1000)}
	random := rand.New(rand.NewPCG(81, 0))
	for range 200 {
		key := make([]rune, 1+random.IntN(40))
		for i := range key {
			switch random.IntN(4) {
			case 0:
				key[i] = rune(0x4E00 + random.IntN(0x5000)) // three bytes each
			case 1:
				key[i] = rune(0x1F300 + random.IntN(0x200)) // four bytes each
			default:
				key[i] = rune(' ' + random.IntN('~'-' '))
			}
		}
		keys = append(keys, string(key))
	}
	return keys
}

// homes gives the partition of each key of a topic.
func homes(t *testing.T, k rig.Kafka, topic string) map[string]int32 {
	t.Helper()
	at := map[string]int32{}
	for _, r := range k.Dump(t, topic) {
		if r.Key == nil {
			t.Fatalf("a record of %s has no key", topic)
		}
		at[string(r.Key)] = r.Partition
	}
	return at
}

// consoleProducer sends one record for each key with Apache Kafka's own tool.
func consoleProducer(t *testing.T, brokers []string, topic string, keys []string) {
	t.Helper()
	lib, err := kafkaserver.Fetch(t.Context(), t.Output())
	must(t, err)
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", lib+"/*", "org.apache.kafka.tools.ConsoleProducer",
		"--bootstrap-server", strings.Join(brokers, ","), "--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=\t")
	var lines bytes.Buffer
	for _, key := range keys {
		fmt.Fprintf(&lines, "%s\tv\n", key)
	}
	cmd.Stdin = &lines
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the console producer: %v\n%s", err, out)
	}
}
