package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// broker is a Kafka, real or fake, in a process of its own.
type broker struct {
	brokers []string
	pid     int
	next    int    // number of the next topic
	close   func() // ends it; more than once does nothing
	// pause stops it until resume, which may be called more than once. Nil
	// for a fake.
	pause func() (resume func(), err error)
}

// startKafka starts a real one-node Kafka.
func startKafka(ctx context.Context) (*broker, error) {
	c, err := kafkaserver.New(ctx, kafkaserver.Options{})
	if err != nil {
		return nil, fmt.Errorf("starting Kafka: %w", err)
	}
	pause := func() (func(), error) {
		if err := c.PauseNode(1); err != nil {
			return nil, err
		}
		return func() { _ = c.ResumeNode(1) }, nil // one that runs goes on
	}
	return &broker{brokers: c.Brokers(), pid: c.Pid(1), close: func() { _ = c.Close() }, pause: pause}, nil
}

// kfakeReport is what a fake Kafka says when it is up.
type kfakeReport struct{ Brokers []string }

// startKfake starts a fake one, which keeps everything in memory: one for each
// run.
func startKfake(dir string) (*broker, error) {
	c, err := startSelf(dir, "kfake", struct{}{})
	if err != nil {
		return nil, err
	}
	var up kfakeReport
	if err := c.hear(&up); err != nil {
		c.kill()
		return nil, err
	}
	return &broker{brokers: up.Brokers, pid: c.pid(), close: c.kill}, nil
}

// kfakeChild is the fake's process.
func kfakeChild(ctx context.Context, say func(any) error) error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := say(kfakeReport{Brokers: c.ListenAddrs()}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// freshTopic makes a topic with a new name.
func (k *broker) freshTopic(ctx context.Context, partitions int) (string, error) {
	k.next++
	name := fmt.Sprintf("bench.%d", k.next)
	return name, kafkaserver.CreateTopic(ctx, k.brokers, name, partitions, nil)
}

// count is how many records a topic holds.
func (k *broker) count(ctx context.Context, topic string) (int, error) {
	var n int
	err := k.admin(func(a *kadm.Client) (err error) {
		n, err = records(ctx, a, topic)
		return err
	})
	return n, err
}

func records(ctx context.Context, a *kadm.Client, topic string) (int, error) {
	var n int64
	ends, err := a.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("counting the records of %s: %w", topic, err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return int(n), nil
}

// awaitCount waits until a topic holds so many records, and gives how many it
// holds then.
func (k *broker) awaitCount(ctx context.Context, topic string, want int) (n int, err error) {
	err = k.admin(func(a *kadm.Client) error {
		return poll(ctx, 20*time.Millisecond, func() (bool, error) {
			n, err = records(ctx, a, topic)
			return n >= want, err
		})
	})
	return n, err
}

// deleteTopic frees a topic's space.
func (k *broker) deleteTopic(ctx context.Context, topic string) error {
	return k.admin(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	})
}

func (k *broker) admin(work func(*kadm.Client) error) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	return work(kadm.NewClient(c))
}
