package main

import (
	"context"
	"fmt"
	"time"
)

// outageTime is how long a relay meets a broker that does not answer, after it
// has taken the slot: long enough to fill every queue many times over.
const outageTime = 15 * time.Second

// runOutage measures the memory of a relay that has the whole backlog before
// it and a broker that has stopped, above that of a relay without work. Then
// the broker goes on, and everything must arrive.
func runOutage(ctx context.Context, b *bench, l *backlog, r relayRun) (s sample, err error) {
	idle, err := b.idleMemory(ctx, l, r)
	if err != nil {
		return s, fmt.Errorf("measuring a relay without work: %w", err)
	}
	slot, err := l.freshSlot(ctx, l.base)
	if err != nil {
		return s, err
	}
	topic, err := r.broker.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return s, err
	}
	resume, err := r.broker.pause()
	if err != nil {
		return s, err
	}
	defer resume()
	c, err := b.startRelay(relaySpec{DSN: l.dsn(r.link), Slot: slot, Brokers: r.broker.brokers, Topic: topic,
		WriteBack: r.writeBack, Codec: b.o.codec, Gulp: b.o.gulp})
	if err != nil {
		return s, err
	}
	defer c.kill()
	alive, stop := c.while(ctx)
	defer stop()
	if _, _, err := l.waitTaken(alive, slot); err != nil {
		return s, err
	}
	select {
	case <-alive.Done():
		return s, context.Cause(alive)
	case <-time.After(outageTime):
	}
	s.Rows, s.IdleRSS = l.rows, idle
	if s.PeakRSS, err = peakOf(c.pid()); err != nil {
		return s, err
	}
	resume()
	if _, err := l.waitConfirmed(alive, slot, l.last); err != nil {
		return s, err
	}
	return s, l.finishRun(ctx, c, r, topic, slot)
}

// idleMemory is the peak of a relay that has nothing to read.
func (b *bench) idleMemory(ctx context.Context, l *backlog, r relayRun) (int64, error) {
	slot, err := l.freshSlot(ctx, "")
	if err != nil {
		return 0, err
	}
	topic, err := r.broker.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return 0, err
	}
	c, err := b.startRelay(relaySpec{DSN: l.dsn(r.link), Slot: slot, Brokers: r.broker.brokers, Topic: topic,
		WriteBack: r.writeBack, Codec: b.o.codec, Gulp: b.o.gulp})
	if err != nil {
		return 0, err
	}
	defer c.kill()
	alive, stop := c.while(ctx)
	defer stop()
	if _, _, err := l.waitTaken(alive, slot); err != nil {
		return 0, err
	}
	select {
	case <-alive.Done():
		return 0, context.Cause(alive)
	case <-time.After(2 * time.Second):
	}
	peak, err := peakOf(c.pid())
	if err != nil {
		return 0, err
	}
	if err := c.stop(); err != nil {
		return 0, err
	}
	if err := l.dropSlot(ctx, slot); err != nil {
		return 0, err
	}
	return peak, r.broker.deleteTopic(ctx, topic)
}

// runKill ends a relay by SIGKILL in the middle of a drain, starts it again,
// and counts what came twice.
func runKill(ctx context.Context, b *bench, l *backlog, r relayRun) (s sample, err error) {
	slot, err := l.freshSlot(ctx, l.base)
	if err != nil {
		return s, err
	}
	topic, err := r.broker.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return s, err
	}
	spec := relaySpec{DSN: l.dsn(r.link), Slot: slot, Brokers: r.broker.brokers, Topic: topic,
		WriteBack: r.writeBack, Codec: b.o.codec, Gulp: b.o.gulp}
	first, err := b.startRelay(spec)
	if err != nil {
		return s, err
	}
	defer first.kill()
	alive, stop := first.while(ctx)
	err = poll(alive, 20*time.Millisecond, func() (bool, error) {
		n, err := r.broker.count(alive, topic)
		return n >= l.rows/3, err
	})
	stop()
	if err != nil {
		return s, err
	}
	first.kill()
	s.Rows = l.rows
	second, err := b.startRelay(spec)
	if err != nil {
		return s, err
	}
	defer second.kill()
	alive, stop = second.while(ctx)
	defer stop()
	if _, err := l.waitConfirmed(alive, slot, l.last); err != nil {
		return s, err
	}
	n, err := r.broker.count(ctx, topic)
	if err != nil {
		return s, err
	}
	if n < l.rows {
		return s, fmt.Errorf("the topic holds %d records, want at least %d", n, l.rows)
	}
	s.Duplicates = n - l.rows
	s.Killed = true
	r.copies = s.Duplicates
	return s, l.finishRun(ctx, second, r, topic, slot)
}
