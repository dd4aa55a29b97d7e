package relay

import (
	"errors"
	"testing"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// TestForkCheck proves the rule of positions across timelines: below the fork
// a position goes on, above it the session must not start, and off the
// server's history it must not either.
func TestForkCheck(t *testing.T) {
	t.Parallel()
	h := history{current: 3, forks: []cdc.Fork{{Timeline: 1, SwitchLSN: 100}, {Timeline: 2, SwitchLSN: 200}}}
	for name, c := range map[string]struct {
		in       outbox.Progress
		want     outbox.Progress
		diverged bool
		fork     outbox.LSN
	}{
		"same timeline":       {in: outbox.Progress{Timeline: 3, LSN: 900}, want: outbox.Progress{Timeline: 3, LSN: 900}},
		"below the fork":      {in: outbox.Progress{Timeline: 2, LSN: 150}, want: outbox.Progress{Timeline: 3, LSN: 150}},
		"at the fork":         {in: outbox.Progress{Timeline: 2, LSN: 200}, want: outbox.Progress{Timeline: 3, LSN: 200}},
		"two forks ago":       {in: outbox.Progress{Timeline: 1, LSN: 90}, want: outbox.Progress{Timeline: 3, LSN: 90}},
		"above the fork":      {in: outbox.Progress{Timeline: 2, LSN: 201}, diverged: true, fork: 200},
		"between the forks":   {in: outbox.Progress{Timeline: 1, LSN: 150}, diverged: true, fork: 100},
		"not an ancestor":     {in: outbox.Progress{Timeline: 7, LSN: 10}, diverged: true},
		"inside is forgotten": {in: outbox.Progress{Timeline: 2, LSN: 150, NextCommit: 160, NextIndex: 4}, want: outbox.Progress{Timeline: 3, LSN: 150}},
		"inside, same":        {in: outbox.Progress{Timeline: 3, LSN: 150, NextCommit: 160, NextIndex: 4}, want: outbox.Progress{Timeline: 3, LSN: 150, NextCommit: 160, NextIndex: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := checkFork(c.in, h)
			var d *DivergedError
			if errors.As(err, &d) != c.diverged || (c.diverged && d.Fork != c.fork) {
				t.Fatalf("error %v, want diverged %v at %v", err, c.diverged, c.fork)
			}
			if !c.diverged && got != c.want {
				t.Fatalf("got %+v, want %+v", got, c.want)
			}
		})
	}
	for lsn, want := range map[outbox.LSN]uint32{0: 1, 99: 1, 100: 2, 199: 2, 200: 3, 1 << 40: 3} {
		if got := h.at(lsn); got != want {
			t.Errorf("timeline of %v: %d, want %d", lsn, got, want)
		}
	}
}
