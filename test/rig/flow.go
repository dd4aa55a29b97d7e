package rig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/judge"
)

// flowLimit bounds the wait for a number of transactions.
const flowLimit = 3 * time.Minute

// Flow is a workload that runs beside the test until it is stopped.
type Flow struct {
	t       testing.TB
	site    *Site
	cancel  context.CancelFunc
	done    chan struct{}
	n       atomic.Int64 // transactions written
	journal judge.Journal
	err     error
}

// endless is more transactions than any test waits for.
const endless = 1_000_000

// Flow starts writers that go on until Stop, at the latest until the test
// ends. Without topics they write to the site's own.
func (s *Site) Flow(t testing.TB, w judge.Workload) *Flow {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &Flow{t: t, site: s, cancel: cancel, done: make(chan struct{})}
	w.Connect, w.Transactions = judge.Dial(s.DB.DSN()), endless
	if w.Topics == nil {
		w.Topics = []string{s.Topic}
	}
	w.Done = func(int) { f.n.Add(1) }
	go func() {
		defer close(f.done)
		f.journal, f.err = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

// More waits until n further transactions were written.
func (f *Flow) More(n int64) {
	f.t.Helper()
	to := f.n.Load() + n
	Eventually(f.t, flowLimit, fmt.Sprintf("%d further transactions", n), func() bool {
		select {
		case <-f.done:
			f.t.Fatalf("the writers ended: %v", f.err)
		default:
		}
		return f.n.Load() >= to
	})
}

// Stop ends the writers, waits for what the server still has of them, and
// gives their journal.
func (f *Flow) Stop() *judge.Journal {
	f.t.Helper()
	f.cancel()
	<-f.done
	if f.err != nil && !errors.Is(f.err, context.Canceled) {
		f.t.Fatalf("writing: %v", f.err)
	}
	f.site.DB.Exec(f.t, `begin; lock table public.outbox in share row exclusive mode; commit`)
	return &f.journal
}
