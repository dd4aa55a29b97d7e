package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

const (
	readyLimit = 30 * time.Second // for the relay's first readiness
	drainLimit = 60 * time.Second // for the last rows, their status and the slot
)

// demo is one run: its parts, made in prepare and in the order in which close
// undoes them backwards.
type demo struct {
	options options
	started time.Time // of the process
	screen  *view.Screen

	scratch  *scratch
	db       *database
	broker   *broker
	relay    *relay
	ledger   *meter.Ledger
	writers  *writers
	reader   *reader
	watch    *watch
	director *director
	board    *board
}

// demonstrate runs everything from the start of the servers to the verdict, and
// leaves nothing behind. An error means that there is no verdict.
func demonstrate(ctx context.Context, o options, started time.Time, screen *view.Screen) (out *report, err error) {
	d := &demo{options: o, started: started, screen: screen}
	defer func() {
		if left := d.close(); left != nil {
			screen.Line("clearing up: %v", left)
			err = errors.Join(err, errors.New("something was left behind"))
		}
	}()
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	end, err := d.live(ctx)
	if err == nil {
		out, err = d.report(ctx, end)
	}
	if ctx.Err() == nil && (err != nil || !out.OK) {
		screen.Print("--- the end of the relay's log\n" + d.relay.Tail() + "\n---\n")
	}
	return out, err
}

// prepare makes the servers ready, finds the relay and lets it set itself up.
func (d *demo) prepare(ctx context.Context) (err error) {
	if d.scratch, err = newScratch(); err != nil {
		return err
	}
	if d.broker, err = startBroker(); err != nil {
		return err
	}
	var binary string
	err = together(ctx, d.screen,
		step{"starting PostgreSQL", func(ctx context.Context) (string, error) {
			d.db, err = openDatabase(ctx, d.options.dsn, progress{d.screen})
			if err != nil {
				return "", err
			}
			return "PostgreSQL " + d.db.version + " is up", nil
		}},
		step{"building outbox-relay", func(ctx context.Context) (string, error) {
			path, from, err := findRelay(ctx, d.options.relay, d.scratch.dir)
			binary = path
			return "outbox-relay is at hand, " + from, err
		}},
	)
	if err != nil {
		return err
	}
	if d.relay, err = newRelay(d.scratch, binary, d.db, []string{d.broker.gate.Addr()}); err != nil {
		return err
	}
	return d.setUp(ctx)
}

// progress says lines of others.
type progress struct{ screen *view.Screen }

func (p progress) Write(text []byte) (int, error) {
	p.screen.Line("%s", strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

// setUp runs the relay's own commands, and makes the application's part.
func (d *demo) setUp(ctx context.Context) error {
	for _, args := range [][]string{{"setup", "--apply", "--yes"}, {"migrate", "up"}} {
		if err := d.relay.Do(ctx, args...); err != nil {
			return err
		}
	}
	d.screen.Line("outbox, publication, slot and the relay's schema are made")
	d.ledger = meter.NewLedger()
	d.writers = &writers{db: d.db, ledger: d.ledger, pace: newPace(d.options.rate)}
	conn, err := d.db.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := d.writers.Prepare(ctx, conn); err != nil {
		return err
	}
	d.reader, err = newReader(d.broker, d.ledger)
	d.watch = newWatch(d.db, d.relay)
	d.director = &director{broker: d.broker, relay: d.relay, ledger: d.ledger, tell: func(view.Mood, string) {}}
	return err
}

// ending is how the run came to its end.
type ending struct {
	wrote   time.Duration // how long the writers wrote
	drained bool          // everything arrived, was SENT and confirmed in time
	sight   sight         // the last look at the slot
	stop    error         // how the relay obeyed its last signal
}

// live runs relay, writers, reader, faults and view to the end, and returns
// when all of them have ended.
func (d *demo) live(ctx context.Context) (end ending, err error) {
	all, ctx := errgroup.WithContext(ctx)
	relayCtx, stopRelay := context.WithCancel(ctx)
	restCtx, stopRest := context.WithCancel(ctx)
	relayEnded := make(chan error, 1)
	all.Go(func() error {
		err := d.relay.Run(relayCtx)
		relayEnded <- err
		if relayCtx.Err() != nil {
			return nil // it was told to end; how it did is in relayEnded
		}
		return err
	})
	all.Go(func() error { return d.reader.Run(restCtx) })
	all.Go(func() error { return d.watch.Run(restCtx) })
	err = d.perform(ctx, &end)
	stopRelay()
	end.stop = <-relayEnded
	stopRest()
	// What ended a part is the cause; what perform says then is its effect.
	if cause := all.Wait(); cause != nil {
		err = cause
	}
	return end, err
}

// perform waits for the relay, shows the run, and drains it.
func (d *demo) perform(ctx context.Context, end *ending) error {
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	began := time.Now()
	d.board = &board{
		title: "Outbox Relay demo · PostgreSQL " + d.db.version + " · in-process Kafka", began: began, duration: d.options.duration,
		screen: d.screen, ledger: d.ledger, watch: d.watch, relay: d.relay, director: d.director,
	}
	d.director.tell = d.board.tell
	d.relay.hear(func(text string) { d.board.tell(view.Bad, text) })
	show, stopShow := context.WithCancel(ctx)
	shown := make(chan error, 1)
	go func() { shown <- d.board.Run(show) }() // waited for below
	err := d.write(ctx, began)
	end.wrote = time.Since(began)
	if err == nil {
		end.drained, err = d.drain(ctx)
		end.sight = d.watch.Seen()
	}
	stopShow()
	return errors.Join(err, <-shown)
}

// awaitReady returns when the relay says that it is ready.
func (d *demo) awaitReady(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if d.watch.Ready(limit) {
			return nil
		}
		select {
		case <-limit.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("waiting for outbox-relay: not ready within %v", readyLimit)
		case <-tick.C:
		}
	}
}

// write runs the writers for the time that was asked for, and the faults
// beside them.
func (d *demo) write(ctx context.Context, began time.Time) error {
	d.board.enter(view.Good, "writing")
	ctx, cancel := context.WithDeadline(ctx, began.Add(d.options.duration))
	defer cancel()
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return d.writers.Run(ctx) })
	if d.options.faults == withFaults {
		work.Go(func() error {
			d.director.Run(ctx, began, d.options.duration)
			return nil
		})
	}
	return work.Wait()
}

// drain waits until every committed row has arrived and is SENT, and the slot
// is confirmed beyond the last of them; false when that takes too long.
func (d *demo) drain(ctx context.Context) (bool, error) {
	d.board.tell(view.Plain, "writers ended; waiting for the rest")
	conn, err := d.db.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	limit := time.Now().Add(drainLimit)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(limit) {
		missing, unsent := d.ledger.Missing(), 0
		if missing == 0 && passed(d.watch.Seen().Confirmed, d.reader.LastCommit()) {
			if err := conn.QueryRow(ctx, "select count(*) from public.outbox where status <> 2").Scan(&unsent); err != nil {
				return false, fmt.Errorf("counting rows that are not SENT: %w", err)
			}
			if unsent == 0 {
				d.board.enter(view.Good, "done")
				d.board.tell(view.Good, "all rows read, SENT and confirmed")
				return true, nil
			}
		}
		d.board.enter(view.Uneasy, waitingFor(missing, unsent))
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-tick.C:
		}
	}
	d.board.enter(view.Bad, "gave up waiting")
	return false, nil
}

func waitingFor(missing, unsent int) string {
	switch {
	case missing > 0:
		return fmt.Sprintf("draining: %d to read", missing)
	case unsent > 0:
		return fmt.Sprintf("draining: %d not SENT", unsent)
	default:
		return "draining: slot to confirm"
	}
}

// close undoes prepare.
func (d *demo) close() error {
	var errs []error
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}
	if d.broker != nil {
		d.broker.Close()
	}
	if d.relay != nil {
		errs = append(errs, d.relay.log.Close())
	}
	if d.scratch != nil {
		errs = append(errs, d.scratch.Close())
	}
	return errors.Join(errs...)
}
