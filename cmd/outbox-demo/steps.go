package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// step is one thing to get ready; run gives what to say when it is.
type step struct {
	name string // "building outbox-relay"
	run  func(context.Context) (string, error)
}

type stepDone struct {
	index int
	said  string
	took  time.Duration
	err   error
}

// together runs steps beside each other, says what is ready, and every few
// seconds what is not. The first error cancels the others; it returns when all
// have ended.
func together(ctx context.Context, screen *view.Screen, steps ...step) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan stepDone, len(steps))
	began := time.Now()
	for i, s := range steps {
		go func() { // waited for below: each sends once
			said, err := s.run(ctx)
			done <- stepDone{i, said, time.Since(began), err}
		}()
	}
	still := time.NewTicker(3 * time.Second)
	defer still.Stop()
	var first error
	for left := len(steps); left > 0; {
		select {
		case d := <-done:
			left--
			steps[d.index].name = ""
			if d.err != nil {
				cancel()
				// What ended only because of the first says nothing new.
				if first == nil || !errors.Is(d.err, context.Canceled) {
					first = errors.Join(first, d.err)
				}
				continue
			}
			screen.Line("%s (%s)", d.said, view.Seconds(d.took))
		case <-still.C:
			screen.Line("still %s (%s)", unfinished(steps), view.Seconds(time.Since(began)))
		}
	}
	return first
}

func unfinished(steps []step) string {
	var names []string
	for _, s := range steps {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	return strings.Join(names, ", ")
}
