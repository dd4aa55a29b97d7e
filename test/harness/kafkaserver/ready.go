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
	var procs []*guard.Process
	for _, n := range c.nodes {
		if p, err := n.running(); err == nil {
			brokers, procs = append(brokers, n.address(Plain)), append(procs, p)
		}
	}
	if len(brokers) == 0 {
		return errors.New("waiting for Kafka: no node runs")
	}
	topic := fmt.Sprintf("harness-ready-%d", c.probes.Add(1))
	var last error
	err := guard.Poll(ctx, fmt.Sprintf("%d Kafka nodes to acknowledge a record", len(brokers)), nil, func() (bool, error) {
		for _, p := range procs {
			if !p.Running() {
				return false, fmt.Errorf("pid %d ended: %w", p.Pid(), p.Err())
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
