package harness

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KfakeOptions says which fake cluster a test wants. The zero value is one
// broker without topics.
type KfakeOptions struct {
	Brokers int         // 0 = 1
	Options []kfake.Opt // win over Brokers
}

// Kfake is an in-process fake of a Kafka cluster. It keeps records in memory
// and does not replicate; Cluster has its fault injection.
type Kfake struct {
	Cluster *kfake.Cluster
	topics
}

// StartKfake starts a fake cluster that is closed when the test ends.
func StartKfake(t testing.TB, o KfakeOptions) *Kfake {
	t.Helper()
	options := append([]kfake.Opt{kfake.NumBrokers(max(1, o.Brokers))}, o.Options...)
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatalf("starting kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return &Kfake{Cluster: cluster, topics: topics{brokers: cluster.ListenAddrs}}
}
