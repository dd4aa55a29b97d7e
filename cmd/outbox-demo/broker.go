package main

import (
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/gate"
)

// kinds are the aggregate types; each has a topic by the default route.
var kinds = []string{"order", "payment"}

const partitions = 6

func topics() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = "outbox.event." + k
	}
	return names
}

// broker is one Kafka broker in this process behind a gate, at which it can be
// stopped. Everybody reaches it through the gate, the reader too.
type broker struct {
	gate    *gate.Gate
	cluster *kfake.Cluster
	served  sync.WaitGroup
}

func startBroker() (*broker, error) {
	door, err := gate.Listen()
	if err != nil {
		return nil, err
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ListenFn(door.ListenBehind),
		kfake.SeedTopics(partitions, topics()...),
	)
	if err != nil {
		door.Close()
		return nil, fmt.Errorf("starting the broker: %w", err)
	}
	b := &broker{gate: door, cluster: cluster}
	b.served.Go(door.Serve)
	return b, nil
}

// Close stops it.
func (b *broker) Close() {
	b.gate.Close()
	b.cluster.Close()
	b.served.Wait()
}
