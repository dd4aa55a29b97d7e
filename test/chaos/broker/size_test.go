package broker

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// TestOneOversizedRowOfOneKey proves what one row that is too large costs among
// 500 of one key in one transaction: where the policy is to hold, the 249 before
// it are published and the 250 behind it wait with it; where it is to skip, it
// alone is missing. In both, other keys and later transactions are untouched.
func TestOneOversizedRowOfOneKey(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	hold, skip := s.Topic+".hold", s.Topic+".skip"
	for _, topic := range []string{hold, skip} {
		k.CreateTopic(t, topic, 3, map[string]string{"max.message.bytes": "50000"})
	}
	s.Set("policy", "topics", map[string]any{skip: map[string]any{"too_large": "skip"}})
	tr := s.Truth(t)
	p := s.streaming(t)
	for _, topic := range []string{hold, skip} {
		s.DB.Exec(t, `insert into public.outbox (aggregate_id, topic, payload)
			select 'one key', $1, convert_to(rpad(i || ' ', case when i = 250 then 60000 else 300 end, md5(i::text)), 'UTF8') from generate_series(1, 500) i`, topic)
		s.DB.Exec(t, `insert into public.outbox (aggregate_id, topic, payload) select 'key ' || i, $1, 'small' from generate_series(1, 20) i`, topic)
	}
	s.drained(t)
	if n := len(k.Dump(t, hold)); n != 249+20 {
		t.Errorf("%d records with policy hold, want 269", n)
	}
	if n := len(k.Dump(t, skip)); n != 499+20 {
		t.Errorf("%d records with policy skip, want 519", n)
	}
	if n := s.DB.Query1(t, `select count(*) from outbox_relay.line where error_class = 'too_large' and error_detail like '%50000%' and error_detail ~ '60[0-9]{3}'`); n != "2" {
		t.Errorf("%s lines name both sizes, want 2: %s", n, s.DB.Query1(t, `select string_agg(error_class || ' ' || error_detail, '; ') from outbox_relay.line`))
	}
	if refused := p.metric("outbox_relay_rows_failed_total", `class="too_large"`); refused != 2 {
		t.Errorf("%v rows refused, want 2", refused)
	}
	if rep := s.verdict(t, tr, nil, judge.Rules{}, hold, skip); rep.Waiting != 251+1 || rep.Duplicates != 0 {
		t.Fatalf("%d rows wait, %d copies; want 252 and none", rep.Waiting, rep.Duplicates)
	}
}

// TestSizeIsJudgedUncompressed proves the documented rule for a row that is
// larger than its topic allows but compresses well: it is refused by its
// uncompressed size, although the broker would have taken it. So what decides
// is the row, and not how well its neighbours compress.
// Cases F37, F38 of docs/guarantees.md.
func TestSizeIsJudgedUncompressed(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	small := s.Topic + ".small"
	k.CreateTopic(t, small, 1, map[string]string{"max.message.bytes": "10000"})
	payload := bytes.Repeat([]byte("x"), 40_000)

	probe := s.Topic + ".probe"
	k.CreateTopic(t, probe, 1, map[string]string{"max.message.bytes": "10000"})
	produce := func(codec kgo.CompressionCodec) error {
		c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.ProducerBatchCompression(codec))
		must(t, err)
		defer c.Close()
		return c.ProduceSync(t.Context(), &kgo.Record{Topic: probe, Value: payload}).FirstErr()
	}
	if compressed, plain := produce(kgo.Lz4Compression()), produce(kgo.NoCompression()); compressed != nil || plain == nil {
		t.Fatalf("the payload does not fit the test: %v compressed, %v uncompressed", compressed, plain)
	}

	tr := s.Truth(t)
	s.streaming(t)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, topic, payload) values ('large', $1, $2), ('neighbour', $1, 'small'), ('large', $1, 'behind')`, small, payload)
	s.drained(t)
	detail := s.DB.Query1(t, `select error_class || ' ' || error_detail from outbox_relay.line`)
	t.Logf("refused: %s", detail)
	if !strings.HasPrefix(detail, "too_large ") || !strings.Contains(detail, "10000") || !strings.Contains(detail, "uncompressed") {
		t.Errorf("the reason does not say both sizes and what is measured")
	}
	if rep := s.verdict(t, tr, nil, judge.Rules{}, small); rep.Waiting != 2 || rep.Duplicates != 0 {
		t.Fatalf("%d rows wait, want the large one and the one behind it", rep.Waiting)
	}
}

// TestRowOf50MB proves that a row of 50 MB which its topic allows is published
// whole, and that one which its topic does not allow is refused with both sizes
// and kept whole, while its neighbours flow; both in memory of at most twelve
// times the row: it arrives as text of twice its size, and each layer that
// copies it may do so into a buffer that grows by doubling.
func TestRowOf50MB(t *testing.T) {
	t.Parallel()
	k := harness.SharedKafka(t)
	s := newSite(t, k)
	large := s.Topic + ".large"
	k.CreateTopic(t, large, 2, map[string]string{"max.message.bytes": fmt.Sprint(64 << 20)})
	s.Set("limits", "record_bytes", 64<<20)
	payload := make([]byte, 50_000_000)
	_, _ = rand.Read(payload) // no codec makes it smaller

	tr := s.Truth(t)
	s.rowAmongNeighbours(t, large, payload)
	exactly(t, s.verdict(t, tr, nil, judge.Rules{}, large))

	s.rowAmongNeighbours(t, s.Topic, payload)
	detail := s.DB.Query1(t, `select error_class || ' ' || error_detail from outbox_relay.line`)
	t.Logf("refused: %s", detail)
	if !strings.HasPrefix(detail, "too_large ") || !strings.Contains(detail, "1048588") || !strings.Contains(detail, "50000") {
		t.Error("the reason does not say both sizes")
	}
	kept := s.DB.Query1(t, `select string_agg(md5(e.value), ',' order by e.commit_lsn, e.commit_index) from outbox_relay.line_event e`)
	if want := fmt.Sprintf("%x,%x", md5.Sum(payload), md5.Sum([]byte("after"))); kept != want {
		t.Errorf("the line holds values with digests %s, want %s", kept, want)
	}
	if n := s.rows(t, "aggregate_id = 'neighbour' and status = 2"); n != 4 {
		t.Errorf("%d neighbours SENT, want 4", n)
	}
	if n := s.rows(t, "status = 3"); n != 2 {
		t.Errorf("%d rows FAILED, want the refused one and the one behind it", n)
	}
	if rep := s.verdict(t, tr, nil, judge.Rules{}, large); rep.Waiting != 2 || rep.Duplicates != 0 {
		t.Errorf("%d rows wait, %d copies; want the refused row, the one behind it, and none", rep.Waiting, rep.Duplicates)
	}
}

// rowAmongNeighbours has a relay of its own settle a large row with small ones
// of its own and of another key around it, and judges that relay's memory.
func (s *site) rowAmongNeighbours(t *testing.T, topic string, payload []byte) {
	t.Helper()
	p := s.streaming(t)
	before := p.ResidentMiB()
	peak := watchMemory(t, p)
	began := time.Now()
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, topic, payload) values ('k', $1, 'before'), ('k', $1, $2), ('neighbour', $1, 'n')`, topic, payload)
	s.DB.Exec(t, `insert into public.outbox (aggregate_id, topic, payload) values ('k', $1, 'after'), ('neighbour', $1, 'n')`, topic)
	s.drained(t)
	t.Logf("settled after %v; memory: %d MiB before, at most %d MiB", time.Since(began), before, peak())
	if grown, most := peak()-before, 12*len(payload)>>20; grown > most {
		t.Errorf("memory grew by %d MiB, more than %d", grown, most)
	}
	p.Stop()
}

// watchMemory looks at the resident memory of a process until it ends, and
// gives the highest so far, in MiB.
func watchMemory(t *testing.T, p *process) func() int {
	t.Helper()
	var peak atomic.Int64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-p.Done():
				return
			case <-ticker.C:
				if mib, ok := resident(p.Pid()); ok {
					peak.Store(max(peak.Load(), int64(mib)))
				}
			}
		}
	}()
	t.Cleanup(func() {
		p.Kill()
		<-watched
	})
	return func() int { return int(peak.Load()) }
}

// resident is the memory of a process in MiB, if it runs.
func resident(pid int) (mib int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, false
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, false
	}
	return pages * os.Getpagesize() >> 20, true
}
