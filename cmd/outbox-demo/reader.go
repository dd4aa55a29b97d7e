package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// The headers of the wire contract that the demo reads.
const (
	headerID       = "outbox-id"
	headerPosition = "outbox-position"
)

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// reader is a plain consumer of the topics, as any application would have one.
// Its methods are safe for concurrent use.
type reader struct {
	client *kgo.Client
	ledger *meter.Ledger

	mu    sync.Mutex
	first time.Time  // of the first record; zero before
	last  outbox.LSN // the highest commit position among the records
}

// plainClient reads all topics from their beginning, alone and without a group.
func plainClient(b *broker, more ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.gate.Addr()),
		kgo.ClientID("outbox-demo"),
		kgo.ConsumeTopics(topics()...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500 * time.Millisecond),
		// The reader's own back-off after a stop is not what is measured.
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("making a consumer: %w", err)
	}
	return client, nil
}

func newReader(b *broker, ledger *meter.Ledger) (*reader, error) {
	client, err := plainClient(b)
	if err != nil {
		return nil, err
	}
	return &reader{client: client, ledger: ledger}, nil
}

// Run reads until ctx ends, and closes the client. Errors of the broker are
// part of the demonstration: the client tries again.
func (r *reader) Run(ctx context.Context) error {
	defer r.client.Close()
	for {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return nil
		}
		now := time.Now()
		fetches.EachRecord(func(record *kgo.Record) { r.note(record, now) })
	}
}

func (r *reader) note(record *kgo.Record, now time.Time) {
	id, err := uuid.Parse(header(record, headerID))
	if err == nil {
		r.ledger.Seen(meter.ID(id), now)
	}
	position, err := outbox.ParsePosition(header(record, headerPosition))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first.IsZero() {
		r.first = now
	}
	if err == nil {
		r.last = max(r.last, position.Commit)
	}
}

// First is when the first record came, zero before it did.
func (r *reader) First() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// LastCommit is the highest commit position that the records name.
func (r *reader) LastCommit() outbox.LSN {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
