package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// patience bounds every wait for something that must happen. It is long,
// because machines that run tests are slow.
const patience = 3 * time.Minute

// site is a rig's, with what these tests ask of it.
type site struct{ *rig.Site }

// process is a rig's, with what these tests ask of it.
type process struct {
	*rig.Process
	t *testing.T
}

// newSite prepares a database of the shared server, and a topic of k.
func newSite(t *testing.T, k rig.Kafka) *site {
	t.Helper()
	return &site{rig.New(t, rig.Options{Postgres: harness.SharedPostgres(t, 0), Kafka: k})}
}

// start runs a relay.
func (s *site) start(t *testing.T) *process {
	t.Helper()
	return &process{Process: s.Start(t), t: t}
}

// streaming runs a relay and waits until it is ready.
func (s *site) streaming(t *testing.T) *process {
	t.Helper()
	p := s.start(t)
	p.Ready()
	return p
}

// verdict judges the site's topic and further ones, and fails the test when a
// promise was broken.
func (s *site) verdict(t *testing.T, tr *judge.Truth, j *judge.Journal, rules judge.Rules, more ...string) judge.Report {
	t.Helper()
	var dumps [][]kafkaserver.Record
	for _, topic := range append([]string{s.Topic}, more...) {
		dumps = append(dumps, s.Kafka.Dump(t, topic))
	}
	return judge.Verdict(t, tr, dumps, s.lines(t), j, rules)
}

// lines is what waits in the relay's own tables.
func (s *site) lines(t *testing.T) []judge.Line {
	t.Helper()
	lines, err := judge.ReadLines(t.Context(), s.DB.Conn(t), "default", "public.outbox")
	must(t, err)
	return lines
}

// admin is a client for topics, settings, rights and quotas.
func admin(t *testing.T, brokers []string) *kadm.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

// must ends the test unless every error is nil.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// partitions is what the metadata say about a topic. A cluster in the middle of
// a change is asked again.
func partitions(t *testing.T, a *kadm.Client, topic string) map[int32]kadm.PartitionDetail {
	t.Helper()
	found := map[int32]kadm.PartitionDetail{}
	rig.Eventually(t, patience, "metadata of "+topic, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		m, err := a.Metadata(ctx, topic)
		if err != nil || m.Topics[topic].Err != nil {
			return false
		}
		for n, p := range m.Topics[topic].Partitions {
			if p.Err != nil {
				return false
			}
			found[n] = p
		}
		return len(found) > 0
	})
	return found
}

// setTopic changes one setting of a topic.
func setTopic(t *testing.T, a *kadm.Client, topic, name, value string) {
	t.Helper()
	answers, err := a.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	must(t, err)
	for _, answer := range answers {
		must(t, answer.Err)
	}
}

// marker is the key of the rows that drained inserts.
const marker = "marker"

// drained waits until everything that is committed now is settled and
// confirmed: a row written after it is, and the log has passed.
func (s *site) drained(t *testing.T) {
	t.Helper()
	here := s.DB.Query1(t, `select pg_current_wal_insert_lsn()`)
	s.Insert(t, marker)
	rig.Eventually(t, patience, "everything to be settled", func() bool {
		return s.DB.Query1(t, `select (confirmed_flush_lsn > $2::pg_lsn
			and not exists (select from public.outbox where status = 0)
			and not exists (select from outbox_relay.pending_status))::text
			from pg_replication_slots where slot_name = $1`, s.Slot(), here) == "true"
	})
}

// rows counts rows of the outbox.
func (s *site) rows(t *testing.T, where string) int {
	t.Helper()
	n, err := strconv.Atoi(s.Count(t, where))
	must(t, err)
	return n
}

// refusedNothing fails when a row was refused or waits behind one.
func (s *site) refusedNothing(t *testing.T) {
	t.Helper()
	if n := s.DB.Query1(t, `select count(*) from outbox_relay.line_event`); n != "0" {
		t.Fatalf("%s events in lines for a fault of the broker", n)
	}
	if n := s.rows(t, "status not in (0, 2)"); n != 0 {
		t.Fatalf("%d rows neither READY nor SENT for a fault of the broker", n)
	}
}

// walsender is the process that serves the slot.
func (s *site) walsender(t *testing.T) string {
	t.Helper()
	return s.DB.Query1(t, `select coalesce(active_pid, 0) from pg_replication_slots where slot_name = $1`, s.Slot())
}

// exactly fails unless the report shows no copy, no waiting row and some
// records.
func exactly(t *testing.T, rep judge.Report) {
	t.Helper()
	if rep.Published == 0 || rep.Duplicates != 0 || rep.Waiting != 0 {
		t.Fatalf("%d rows published, %d of them twice, %d refused", rep.Published, rep.Duplicates, rep.Waiting)
	}
}

// metric sums the series of a name whose labels contain all words.
func (p *process) metric(name string, words ...string) float64 {
	p.t.Helper()
	sum, found := 0.0, false
	lines := bufio.NewScanner(strings.NewReader(p.Get("/metrics")))
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, w := range words {
			if !strings.Contains(series, w) {
				continue next
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		must(p.t, err)
		sum, found = sum+n, true
	}
	if !found {
		return 0
	}
	return sum
}

// published counts the records of a topic that this process saw acknowledged.
func (p *process) published(topic string) int {
	p.t.Helper()
	return int(p.metric("outbox_relay_records_published_total", `topic="`+topic+`"`))
}

// publishes waits until n further records of a topic are acknowledged.
func (p *process) publishes(topic string, n int) {
	p.t.Helper()
	to := p.published(topic) + n
	rig.Eventually(p.t, patience, fmt.Sprintf("%d further records of %s", n, topic), func() bool { return p.published(topic) >= to })
}

// trouble is what /readyz says about the producer, "" when all is well.
func (p *process) trouble() string {
	var doc struct {
		Components []struct{ Name, Reason string }
	}
	if json.Unmarshal([]byte(p.Get("/readyz?verbose")), &doc) != nil {
		return ""
	}
	for _, c := range doc.Components {
		if c.Name == "producer" {
			return c.Reason
		}
	}
	return ""
}

// blocked waits until the producer's trouble contains all words.
func (p *process) blocked(words ...string) string {
	p.t.Helper()
	var last string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the producer says: %q", last)
		}
	}()
	rig.Eventually(p.t, patience, "trouble that says "+strings.Join(words, " and "), func() bool {
		last = p.trouble()
		for _, w := range words {
			if !strings.Contains(last, w) {
				return false
			}
		}
		return true
	})
	return last
}

// healthy waits until the producer has no trouble.
func (p *process) healthy() {
	p.t.Helper()
	rig.Eventually(p.t, patience, "a producer without trouble", func() bool { return p.trouble() == "" && p.Get("/livez") != "" })
}

// revive starts a node that was killed or stopped, with the patience that a
// loaded machine needs.
func revive(t *testing.T, k *harness.Kafka, node int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := k.StartNode(ctx, node); err != nil {
		t.Fatalf("%v\n%s", err, k.LogTail())
	}
}

// stopped waits until the kernel calls a process stopped.
func stopped(t *testing.T, pid int) {
	t.Helper()
	rig.Eventually(t, patience, "the process to stand still", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(t, err)
		_, rest, _ := strings.Cut(string(text), ") ")
		return strings.HasPrefix(rest, "T")
	})
}

// longer waits until d has passed since a fault began.
func longer(t *testing.T, since time.Time, d time.Duration) {
	t.Helper()
	rig.Eventually(t, d+time.Minute, "the fault to last "+d.String(), func() bool { return time.Since(since) >= d })
}
