package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// killedByTerm is how Java ends when SIGTERM has told it to.
const killedByTerm = 128 + 15

// startPeer starts Connect with the connector in it. The child dies when its
// task has failed, which Connect itself would outlive.
func (b *bench) startPeer(spec peerSpec) (*child, error) {
	at, err := pgconn.ParseConfig(spec.DSN)
	if err != nil {
		return nil, fmt.Errorf("reading the address of PostgreSQL: %w", err)
	}
	if spec.Rest, err = freeAddress(); err != nil {
		return nil, err
	}
	spec.Offsets = filepath.Join(b.dir, spec.Slot+".offsets")
	worker, connector := filepath.Join(b.dir, spec.Slot+".worker.properties"), filepath.Join(b.dir, spec.Slot+".connector.properties")
	for path, list := range map[string][]setting{worker: spec.worker(), connector: spec.connector(at)} {
		if err := os.WriteFile(path, properties(list), 0o600); err != nil {
			return nil, fmt.Errorf("writing the settings of %s: %w", debezium, err)
		}
	}
	args := append(peerJVM[:len(peerJVM):len(peerJVM)], "-cp", filepath.Join(b.o.peerJars, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", worker, connector)
	c, err := start(b.dir, debezium, exec.Command(javaPath(), args...))
	if err != nil {
		return nil, err
	}
	c.obeys = killedByTerm
	go c.endWithTask(fmt.Sprintf("http://%s/connectors/bench/status", spec.Rest)) // ends with the child
	return c, nil
}

// javaPath is a Java that the start of Kafka has found new enough.
func javaPath() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java")
	}
	return "java"
}

// freeAddress is a loopback address that nobody listened on a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// endWithTask asks for the state of Connect's task until the child has ended,
// and kills the child when the task has failed. The task's own words go to the
// end of the log, where the error of the run shows them.
func (c *child) endWithTask(url string) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	client := &http.Client{Timeout: 5 * time.Second}
	for {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		trace := failedTask(client, url)
		if trace == "" {
			continue
		}
		if log, err := os.OpenFile(c.log, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, _ = fmt.Fprintf(log, "\nits task FAILED: %.1000s\n", trace) // without it the log says it less well
			_ = log.Close()
		}
		c.kill()
		return
	}
}

// failedTask is the trace of a failed task; "" when none has failed or Connect
// does not answer, for which the run has its limit.
func failedTask(client *http.Client, url string) string {
	answer, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	var status struct {
		Tasks []struct{ State, Trace string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		return ""
	}
	for _, t := range status.Tasks {
		if t.State == "FAILED" && t.Trace != "" {
			return withoutFrames(t.Trace)
		}
	}
	return ""
}

// withoutFrames leaves of a Java trace what went wrong, and why.
func withoutFrames(trace string) string {
	var kept []string
	for line := range strings.Lines(trace) {
		if !strings.HasPrefix(line, "\tat ") && !strings.HasPrefix(line, "\t... ") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept, ""))
}

// runPeer lets the peer publish the whole backlog.
func runPeer(ctx context.Context, b *bench, l *backlog, tuned bool) (sample, error) {
	slot, err := l.freshSlot(ctx, l.base)
	if err != nil {
		return sample{}, err
	}
	topic, err := b.kafka.freshTopic(ctx, b.o.partitions)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	began := time.Now()
	c, err := b.startPeer(peerSpec{DSN: l.dsn(tcp), Slot: slot, Brokers: b.kafka.brokers, Topic: topic, Tuned: tuned})
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	s, err := b.followPeer(ctx, c, l, probeTarget{slot: slot, topic: topic})
	if err != nil {
		return s, err
	}
	s.Startup = time.Since(began).Seconds() - s.Seconds
	if err := c.stop(); err != nil {
		return s, err
	}
	if err := l.dropSlot(ctx, slot); err != nil {
		return s, err
	}
	return s, b.kafka.deleteTopic(ctx, topic)
}

// followPeer measures from the slot being taken until the topic holds every
// row: the peer confirms its slot long after that.
func (b *bench) followPeer(ctx context.Context, c *child, l *backlog, t probeTarget) (sample, error) {
	ctx, stop := c.while(ctx)
	defer stop()
	pid, at, err := l.waitTaken(ctx, t.slot)
	if err != nil {
		return sample{}, err
	}
	m := &meter{relay: c.pid(), walsender: pid, broker: b.kafka.pid}
	if err := m.begin(at); err != nil {
		return sample{}, err
	}
	n, err := b.kafka.awaitCount(ctx, t.topic, l.rows)
	if err != nil {
		return sample{}, fmt.Errorf("waiting for %d rows in the topic, %d are there: %w", l.rows, n, err)
	}
	s, err := m.end(time.Now(), l.rows)
	s.Duplicates = n - l.rows
	return s, err
}

// peerCells are the throughput scenarios of the peer.
func (b *bench) peerCells(l *backlog, link string) []*cell {
	if b.o.peer == "" || link != tcp { // its driver knows no other link
		return nil
	}
	var cells []*cell
	for _, f := range peerFlavours {
		cells = append(cells, &cell{scenario: f.name, shape: l.shape, link: link,
			run: func(ctx context.Context) (sample, error) { return runPeer(ctx, b, l, f.tuned) }})
	}
	return cells
}

// peerWarmUp is how long a Java needs at least to compile what it runs; a
// guess, from runs on a busy machine in which the first 13 s were seconds late.
const peerWarmUp = 20 * time.Second

// peerLatency are the latency scenarios of the peer.
func (b *bench) peerLatency(d *database, rate int) []*cell {
	if b.o.peer == "" {
		return nil
	}
	warm := *b
	warm.o.warmUp = max(b.o.warmUp, peerWarmUp)
	var cells []*cell
	for _, f := range peerFlavours {
		reader := func(slot, topic string) (*child, error) {
			return b.startPeer(peerSpec{DSN: d.dsn(tcp), Slot: slot, Brokers: b.kafka.brokers, Topic: topic, Tuned: f.tuned})
		}
		cells = append(cells, &cell{scenario: fmt.Sprintf("%s-%d", f.name, rate), shape: 1, link: tcp, rate: rate,
			run: func(ctx context.Context) (sample, error) { return runLatency(ctx, &warm, d, rate, reader) }})
	}
	return cells
}

// peerFlavours are the settings under which the peer is measured.
var peerFlavours = []struct {
	name  string
	tuned bool
}{{debezium, false}, {debezium + "-tuned", true}}
