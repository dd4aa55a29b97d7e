package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// tryTimeout bounds one attempt of WaitReady. A broker that just starts may
// hold a request for long.
const tryTimeout = 3 * time.Second

// WaitReady returns when the nodes that run acknowledge a record together. It
// does not trust metadata, which claims health without a quorum. It fails at
// once when a node ends meanwhile.
func (c *Cluster) WaitReady(ctx context.Context) error {
	var brokers []string
	procs := map[int]Process{}
	for _, n := range c.nodes {
		if p, err := n.running(); err == nil {
			brokers, procs[n.id] = append(brokers, n.address(Plain)), p
		}
	}
	if len(brokers) == 0 {
		return fmt.Errorf("waiting for Kafka: %w", c.noneRuns())
	}
	topic := fmt.Sprintf("harness-ready-%d", c.probes.Add(1))
	var last error
	err := guard.Poll(ctx, fmt.Sprintf("%d Kafka nodes to acknowledge a record", len(brokers)), nil, func() (bool, error) {
		for id, p := range procs {
			if !p.Running() {
				last = nil // the end says more than the silence after it
				return false, ended(id, p)
			}
		}
		last = probe(ctx, brokers, topic)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// noneRuns says how the nodes ended, if they ever ran.
func (c *Cluster) noneRuns() error {
	err := errors.New("no node runs")
	for _, n := range c.nodes {
		n.mu.Lock()
		if n.proc != nil {
			err = fmt.Errorf("%w; %w", err, ended(n.id, n.proc))
		}
		n.mu.Unlock()
	}
	return err
}

func ended(id int, p Process) error {
	if err := p.Err(); err != nil {
		return fmt.Errorf("node %d ended: %w", id, err)
	}
	return fmt.Errorf("node %d ended with exit code 0", id)
}

// probe has a record acknowledged by all brokers at once and removes its topic.
func probe(ctx context.Context, brokers []string, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	c, err := client(brokers, kgo.RecordDeliveryTimeout(tryTimeout), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	all := strconv.Itoa(len(brokers))
	_, err = admin.CreateTopic(ctx, 1, int16(len(brokers)), map[string]*string{"min.insync.replicas": &all}, topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("ready")}).FirstErr(); err != nil {
		return err
	}
	_, err = admin.DeleteTopic(ctx, topic)
	return err
}
