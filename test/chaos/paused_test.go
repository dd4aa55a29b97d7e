package chaos

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestPausedWithRowsInFlight proves I13 where it is hardest: a relay is frozen
// when the broker has acknowledged its rows and before they are settled, or
// when their batch is on its way to the table. Another one takes over and
// settles the same rows. Woken, the first one tries to write its batch, is
// refused, and changes nothing in any table or topic.
func TestPausedWithRowsInFlight(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{}) // nobody else's log moves a position here
	for _, point := range []string{"acked", "batch_cut"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			pauseAt(t, pg, point)
		})
	}
}

func pauseAt(t *testing.T, pg *harness.Postgres, point string) {
	// One transaction that fills the span and one batch: nothing is settled
	// before the last outcome, nothing else is read, and nothing is left in the
	// client that could be sent on waking.
	const rows, forged, behind = 300, 100, 280
	s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{}), Failpoints: true})
	s.Set("limits", "span_rows", rows)
	s.Set("write_back", "rows", rows)
	s.Set("write_back", "interval", "10s")
	s.Set("slot", "wal_sender_timeout", "3s")
	tr := s.Truth(t)
	s.DB.Exec(t, fmt.Sprintf(`insert into public.outbox (aggregate_id, payload, headers)
		select case when i in (%d, %d) then 'refused' else 'k' || i %% 20 end, convert_to(i::text, 'UTF8'),
			case when i = %[1]d then '{"outbox-id": "forged"}' else '{}' end::jsonb from generate_series(1, %[3]d) i`, forged, behind, rows))
	holder := s.DB.Conn(t)
	exec(t, holder, `begin; select from public.outbox where aggregate_id = 'k7' limit 1 for update`)

	spec := map[string]string{"acked": fmt.Sprintf("acked:%d:stop", rows), "batch_cut": fmt.Sprintf("acked:%d,batch_cut:1:stop", rows)}
	first := s.Start(t, "OUTBOX_RELAY_FAILPOINT="+spec[point])
	first.Frozen()
	if n, ready := len(s.Kafka.Dump(t, s.Topic)), s.Count(t, "status = 0"); n != rows-2 || ready != fmt.Sprint(rows) {
		t.Fatalf("frozen with %d records and %s rows READY, want %d and all %d", n, ready, rows-2, rows)
	}
	second := s.Start(t)
	second.Ready()
	rig.Eventually(t, patience, "the second relay settles all rows but the locked one", func() bool {
		return s.Count(t, "status = 0") == "1" && s.DB.Query1(t, `select count(*) from outbox_relay.pending_status`) == "1"
	})
	before := everything(t, s)
	first.Signal(syscall.SIGCONT)
	says(t, first, `"reason":"fenced"`)
	first.State("standby")
	if after := everything(t, s); after != before {
		t.Errorf("the woken relay changed something:\n%s", difference(before, after))
	}
	if !strings.Contains(before, "line_event: (") || second.StateNow() == "" {
		t.Error("no line was made: the dumps compare too little")
	}
	exec(t, holder, `commit`)
	s.Insert(t, "k7", "other")
	s.Settled(t)
	rep := s.Judge(t, tr, nil, judge.Rules{Restarts: 1})
	if rep.Rows != rows+2 || rep.Waiting != 2 || rep.Duplicates != rows-2 {
		t.Errorf("%d rows, %d waiting, %d repeated; want %d, 2 and %d", rep.Rows, rep.Waiting, rep.Duplicates, rows+2, rows-2)
	}
}

// everything is what a relay may write to: its tables, the outbox and the
// topic, one line for each row and record.
func everything(t *testing.T, s *rig.Site) string {
	t.Helper()
	var all []string
	for _, table := range []string{"outbox_relay.position", "public.outbox", "outbox_relay.line", "outbox_relay.line_event", "outbox_relay.pending_status"} {
		_, name, _ := strings.Cut(table, ".")
		for _, row := range column(t, s.DB, `select x.*::text from `+table+` x order by x.*::text`) {
			all = append(all, name+": "+row)
		}
	}
	for _, r := range s.Kafka.Dump(t, s.Topic) {
		all = append(all, fmt.Sprintf("topic: %d@%d %q %q %q %v", r.Partition, r.Offset, r.Key, r.Value, r.Headers, r.Timestamp))
	}
	return strings.Join(all, "\n")
}

// difference lists the lines that only one of the two has.
func difference(a, b string) string {
	var lines []string
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i, pair := range [][2][]string{{left, right}, {right, left}} {
		for _, line := range pair[0] {
			if !slices.Contains(pair[1], line) {
				lines = append(lines, []string{"- ", "+ "}[i]+line)
			}
		}
	}
	return strings.Join(lines, "\n")
}
