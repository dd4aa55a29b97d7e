package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestSlowBrokerAndOneHugeTransaction proves that a transaction far larger than
// what we hold at a time waits in the server's log while a slow broker takes it
// piece by piece: the relay's memory grows by a few times its span and no more,
// its walsender, whose patience is 3 s, stays the same, what the slot holds back
// shows in the metrics, and every row arrives once, in order.
// Cases F16, F17 of docs/guarantees.md.
func TestSlowBrokerAndOneHugeTransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rows, bytes, rate int }{
		{500_000, 1 << 10, 15_000_000},
		{10_000, 64 << 10, 20_000_000},
	} {
		// One after the other: each needs the machine.
		t.Run(fmt.Sprintf("%d rows of %d bytes", c.rows, c.bytes), func(t *testing.T) { slow(t, c.rows, c.bytes, c.rate) })
	}
}

// spanMiB is limits.span_bytes, spans how many of them the process may need: one
// is held, the client makes requests of it, the collector lets the heap double
// before it looks, and a busy machine lets it look late. Seen are 97 to 110 MiB.
const spanMiB, spans = 32, 5

// slow has one transaction published at so many bytes a second.
func slow(t *testing.T, rows, size, rate int) {
	k := harness.SharedKafka(t)
	s, a := newSite(t, k), admin(t, k.Brokers())
	s.Set("kafka", "client_id", s.Kind)
	s.Set("kafka", "codec", "none")
	s.Set("limits", "span_bytes", spanMiB<<20) // the default
	s.Set("slot", "wal_sender_timeout", "3s")
	setQuota(t, a, s.Kind, kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: float64(rate)})
	s.DB.Exec(t, `alter table public.outbox alter payload set storage external`) // the log holds every byte
	tr := s.Truth(t)
	p := s.streaming(t)
	s.Insert(t, "warm")
	s.drained(t)
	memory, walsender := p.PeakMiB(), s.walsender(t)
	held := func() float64 { return p.metric("outbox_relay_slot_retained_wal_bytes") }
	before, began := held(), time.Now()
	_, err := s.DB.Conn(t).Exec(t.Context(), `insert into public.outbox (aggregate_id, payload)
		select 'k' || i % 200, convert_to(repeat(md5(i::text), $2 / 32), 'UTF8') from generate_series(1, $1) i`, rows, size)
	must(t, err)
	committed := time.Since(began)
	throttled(t, a, k.Brokers(), s.Kind)
	rig.Eventually(t, patience, "the metrics to show what the slot holds back", func() bool { return held()-before > float64(rows)*float64(size)/2 })
	rose := held() - before
	rig.Eventually(t, 10*time.Minute, "every record to be acknowledged", func() bool { return p.published(s.Topic) > rows })
	s.drained(t)
	t.Logf("committed in %v, settled after %v; %.0f MiB held back; memory: %d MiB before, at most %d MiB",
		committed, time.Since(began), rose/(1<<20), memory, p.PeakMiB())
	if grown := p.PeakMiB() - memory; grown > spans*spanMiB {
		t.Errorf("memory grew by %d MiB, more than %d", grown, spans*spanMiB)
	}
	if after := s.walsender(t); after != walsender {
		t.Errorf("walsender %s before, %s after: the connection was lost", walsender, after)
	}
	p.Stop()
	s.refusedNothing(t)
	rep := s.verdict(t, tr, nil, judge.Rules{NoLines: true})
	exactly(t, rep)
	if rep.Published < rows {
		t.Errorf("%d rows published, want %d", rep.Published, rows)
	}
}
