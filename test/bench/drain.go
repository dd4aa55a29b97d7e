package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// runRaw drains a copy of the slot with pg_recvlogical into nothing: the most
// that a reader who does no work gets out of a walsender on this machine.
func runRaw(ctx context.Context, b *bench, l *backlog, link string) (sample, error) {
	slot, err := l.freshSlot(ctx, l.base)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	c, err := start(b.dir, "pg_recvlogical", exec.Command(recvlogical(b.pg),
		"--start", "--slot", slot, "--dbname", l.dsn(link), "--file", os.DevNull, "--no-loop",
		"--option", "proto_version=1", "--option", "publication_names="+publication, "--endpos", l.last.String()))
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	s, err := l.followRaw(ctx, c, slot)
	if err != nil {
		return s, fmt.Errorf("draining slot %s: %w", slot, err)
	}
	return s, l.dropSlot(ctx, slot)
}

// followRaw measures until the process ends. Its walsender ends with it, so
// that one's CPU time is read again and again; the last reading is at most one
// turn old.
func (l *backlog) followRaw(ctx context.Context, c *child, slot string) (sample, error) {
	alive, stop := c.while(ctx)
	pid, at, err := l.waitTaken(alive, slot)
	stop()
	if err != nil {
		return sample{}, err
	}
	m := &meter{relay: c.pid(), walsender: pid}
	if err := m.begin(at); err != nil {
		return sample{}, err
	}
	last := m.at
	for ticker := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return sample{}, context.Cause(ctx)
		case <-ticker.C:
			if now, err := m.read(); err == nil { // an error: it is about to be over
				last = now
			}
			continue
		case <-c.ended:
			ticker.Stop()
		}
		break
	}
	over := time.Now()
	if !c.cmd.ProcessState.Success() {
		return sample{}, fmt.Errorf("pg_recvlogical: %v\n%s", c.cmd.ProcessState, c.tail())
	}
	s := m.sample(over, l.rows, last)
	s.CPU = (c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()).Seconds()
	s.PeakRSS = peakOfEnded(c.cmd.ProcessState)
	return s, nil
}
