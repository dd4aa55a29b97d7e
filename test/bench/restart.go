package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// runRestart stops a caught-up relay, commits a row, starts the relay again
// and measures from the start of the process to the row at a consumer that
// has been there all along.
func runRestart(ctx context.Context, b *bench, d *database, startReader func(slot, topic string) (*child, error)) (sample, error) {
	slot, err := d.freshSlot(ctx, "")
	if err != nil {
		return sample{}, err
	}
	topic, err := b.kafka.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	p := &probe{sent: make([]time.Time, 2), got: make([]time.Time, 2)}
	consuming, stopConsumer := context.WithCancel(ctx)
	consumed := make(chan error, 1)
	go func() { consumed <- p.consume(consuming, b.kafka.brokers, topic) }()
	s, err := b.restartOnce(ctx, d, p, func() (*child, error) { return startReader(slot, topic) })
	stopConsumer()
	if err = errors.Join(err, <-consumed); err != nil {
		return s, err
	}
	s.P50 = float64(p.got[1].Sub(p.sent[1]).Microseconds()) / 1000
	return s, errors.Join(d.dropSlot(ctx, slot), b.kafka.deleteTopic(ctx, topic))
}

func (b *bench) restartOnce(ctx context.Context, d *database, p *probe, startRelay func() (*child, error)) (sample, error) {
	var s sample
	for row := range p.sent {
		if err := d.exec(ctx, insertProbe, fmt.Sprint(row), row, b.o.payload); err != nil {
			return s, err
		}
		p.written.Add(1)
		p.sent[row] = time.Now() // the start of the process, here
		c, err := startRelay()
		if err != nil {
			return s, err
		}
		alive, stop := c.while(ctx)
		err = p.awaitAll(alive)
		stop()
		if err == nil {
			s.Rows = 1
			s.PeakRSS, err = peakOf(c.pid())
		}
		if err == nil {
			err = c.stop()
		}
		if err != nil {
			c.kill()
			return s, err
		}
	}
	return s, nil
}
