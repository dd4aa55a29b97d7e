package harness

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// The listeners that KafkaOptions may name beside the plain one.
const (
	Plain   = kafkaserver.Plain
	TLS     = kafkaserver.TLS
	SASL    = kafkaserver.SASL
	SASLTLS = kafkaserver.SASLTLS
)

// KafkaOptions says which cluster a test wants. The zero value is one node with
// the plain listener, which every cluster has.
type KafkaOptions struct {
	Nodes     int // 1 or 3; 0 = 1
	Listeners []kafkaserver.Listener
	Users     []kafkaserver.User // none = kafkaserver.DefaultUser
	Settings  map[string]string  // win over the harness's own
	JVM       []string           // arguments of Java; win over the harness's own
}

// Kafka is a cluster of real Apache Kafka. The embedded *kafkaserver.Cluster
// has what is not wrapped here. Nodes are numbered from 1.
type Kafka struct {
	*kafkaserver.Cluster
	topics
	shared bool
}

// Brokers gives the bootstrap addresses of the plain listener.
func (k *Kafka) Brokers() []string { return k.Cluster.Brokers() }

func (o KafkaOptions) cluster(t testing.TB) kafkaserver.Options {
	return kafkaserver.Options{
		Nodes: o.Nodes, Listeners: o.Listeners, Users: o.Users, Settings: o.Settings, JVM: o.JVM, Progress: t.Output(),
	}
}

// containerMaker runs Kafka in containers.
type containerMaker struct {
	asked func() bool                                   // whether variables ask for it
	start func(testing.TB, KafkaOptions) (*Kafka, bool) // false: not with these options
	share func(testing.TB) *Kafka
}

// kafkaContainers is set with the build tag containers only, which keeps the
// Docker client out of every other test binary.
var kafkaContainers *containerMaker

// KafkaInContainer says whether Kafka with the plain listener on one node comes
// in a container; all else comes from Java here even so.
func KafkaInContainer() bool { return kafkaContainers != nil && kafkaContainers.asked() }

// StartKafka starts a cluster of the test's own, which is killed and removed
// when the test ends. One node takes some 3 s and 340 MB, three take 10 s.
func StartKafka(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	Need(t, RealKafka)
	if KafkaInContainer() {
		if k, ok := kafkaContainers.start(t, o); ok {
			return k
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := kafkaserver.New(ctx, o.cluster(t))
	if err != nil && KafkaInContainer() {
		err = fmt.Errorf("%w (and not in a container: %w)", err, kafkaserver.ErrRemote)
	}
	if err != nil {
		startFailed(t, "kafka", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of Kafka's log:\n%s", c.LogTail())
		}
		if err := c.Close(); err != nil {
			t.Errorf("closing Kafka: %v", err)
		}
	})
	return &Kafka{Cluster: c, topics: topics{brokers: c.Brokers}}
}

var sharedKafka struct {
	sync.Mutex
	kafka *Kafka
}

// SharedKafka gives the one single-node cluster that all tests of this process
// share. It ends with the process; in a container, with the last test that uses
// it. Tests use topics with names of their own and must not hurt it.
func SharedKafka(t testing.TB) *Kafka {
	t.Helper()
	Need(t, RealKafka)
	if KafkaInContainer() {
		return kafkaContainers.share(t)
	}
	sharedKafka.Lock()
	defer sharedKafka.Unlock()
	if sharedKafka.kafka == nil {
		// Not t.Context(): the cluster outlives the test that came first.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		c, err := kafkaserver.New(ctx, KafkaOptions{}.cluster(t))
		if err != nil {
			startFailed(t, "shared kafka", err)
		}
		sharedKafka.kafka = &Kafka{Cluster: c, topics: topics{brokers: c.Brokers}, shared: true}
	}
	return sharedKafka.kafka
}

// Kill ends a node with SIGKILL.
func (k *Kafka) Kill(t testing.TB, node int) {
	t.Helper()
	k.try(t, func(context.Context) error { return k.KillNode(node) })
}

// Stop stops a node cleanly.
func (k *Kafka) Stop(t testing.TB, node int) {
	t.Helper()
	k.try(t, func(ctx context.Context) error { return k.StopNode(ctx, node) })
}

// Start starts a stopped node and waits until all that run acknowledge a record
// together.
func (k *Kafka) Start(t testing.TB, node int) {
	t.Helper()
	k.try(t, func(ctx context.Context) error { return k.StartNode(ctx, node) })
}

// Pause freezes a node with its connections open; Resume lets it go on.
func (k *Kafka) Pause(t testing.TB, node int) {
	t.Helper()
	k.try(t, func(context.Context) error { return k.PauseNode(node) })
}

// Resume ends Pause.
func (k *Kafka) Resume(t testing.TB, node int) {
	t.Helper()
	k.try(t, func(context.Context) error { return k.ResumeNode(node) })
}

// ClientTLS is good for a client of a TLS listener; with a name it shows a
// client certificate of that common name.
func (k *Kafka) ClientTLS(t testing.TB, name string) *tls.Config {
	t.Helper()
	config, err := k.TLSConfig(name)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (k *Kafka) try(t testing.TB, step func(context.Context) error) {
	t.Helper()
	if k.shared {
		t.Fatal("hurting the shared Kafka: use StartKafka")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
	defer cancel()
	if err := step(ctx); err != nil {
		t.Fatalf("%v\n%s", err, k.LogTail())
	}
}
