package checkpoint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// TestTranscripts plays the logs under testdata/tracker and compares what the
// tracker says after each word: the laws of doc.go as stories. Run with
// -rewrite to regenerate, and explain the difference in the commit.
// Case F34 of docs/guarantees.md.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/tracker", func(t *testing.T, path string) {
		tr := New(outbox.Progress{Timeline: 1})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "start" {
				tr = New(scanProgress(t, d))
				return show(tr)
			}
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				fmt.Fprintf(&out, "%-14s %s\n", strings.TrimSpace(line), play(t, tr, strings.Fields(line)))
			}
			return out.String()
		})
	})
}

func scanProgress(t *testing.T, d *datadriven.TestData) outbox.Progress {
	p := outbox.Progress{Timeline: 1}
	var lsn, commit int
	d.MaybeScanArgs(t, "lsn", &lsn)
	d.MaybeScanArgs(t, "commit", &commit)
	d.MaybeScanArgs(t, "index", &p.NextIndex)
	p.LSN, p.NextCommit = outbox.LSN(lsn), outbox.LSN(commit)
	return p
}

// play does one word of a transcript; a panic is part of the story.
func play(t *testing.T, tr *Tracker, words []string) (out string) {
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprintf("panic: %v", r)
		}
	}()
	n := make([]int, 2)
	for i, w := range words[1:] {
		if _, err := fmt.Sscan(w, &n[i]); err != nil {
			t.Fatalf("reading %q: %v", words, err)
		}
	}
	switch words[0] {
	case "begin":
		tr.Begin(outbox.LSN(n[0]))
	case "row":
		return fmt.Sprintf("ticket %d; %s", tr.Hold(n[0], 10), show(tr))
	case "commit":
		tr.Commit(outbox.LSN(n[0]))
	case "keepalive":
		tr.Keepalive(outbox.LSN(n[0]))
	case "decide":
		tr.Decide(outbox.Ticket(n[0]))
	case "settle":
		tr.Settle(outbox.Ticket(n[0]))
	case "done":
		tr.Decide(outbox.Ticket(n[0]))
		tr.Settle(outbox.Ticket(n[0]))
	default:
		t.Fatalf("unknown word %q", words[0])
	}
	return show(tr)
}

func show(tr *Tracker) string {
	rows, bytes := tr.Held()
	return fmt.Sprintf("decided %s settled %s held %d/%dB", brief(tr.Decided()), brief(tr.Settled()), rows, bytes)
}

func brief(p outbox.Progress) string {
	if p.NextCommit == 0 {
		return fmt.Sprint(uint64(p.LSN))
	}
	return fmt.Sprintf("%d+%d:%d", uint64(p.LSN), uint64(p.NextCommit), p.NextIndex)
}

// naive is the law written down without any cleverness: it keeps every row
// and every mark for ever and looks at all of them each time it is asked.
type naive struct {
	start outbox.Progress
	log   []entry
	open  bool
}

type entry struct {
	isMark bool
	lsn    outbox.LSN // of a mark; of a row: its commit
	index  int
	ticket outbox.Ticket
	state  state
}

func (n *naive) position(s state) outbox.Progress {
	p := outbox.Progress{Timeline: n.start.Timeline, LSN: n.start.LSN}
	var lastRow *entry
	for i := range n.log {
		e := &n.log[i]
		if e.isMark {
			p.LSN = max(p.LSN, e.lsn)
			lastRow = nil
			continue
		}
		if e.state < s {
			if e.index > 0 {
				p.NextCommit, p.NextIndex = e.lsn, e.index
			}
			lastRow = nil
			break
		}
		lastRow = e
	}
	if lastRow != nil {
		p.NextCommit, p.NextIndex = lastRow.lsn, lastRow.index+1
	}
	if n.start.NextCommit >= p.LSN && (p.NextCommit < n.start.NextCommit || p.NextIndex < n.start.NextIndex) {
		p.NextCommit, p.NextIndex = n.start.NextCommit, n.start.NextIndex
	}
	return p
}

// machine drives the tracker and the naive model with the same log and
// compares every answer after each step.
type machine struct {
	tr     *Tracker
	model  naive
	lsn    outbox.LSN // the end of the log so far
	commit outbox.LSN
	index  int
}

func (m *machine) Begin(t *rapid.T) {
	if m.model.open {
		t.Skip()
	}
	// Back to back (0) is the usual case in PostgreSQL: the next commit
	// record begins where the last one ended.
	m.commit = m.lsn + outbox.LSN(rapid.IntRange(0, 5).Draw(t, "gap"))
	m.index, m.model.open = 0, true
	m.tr.Begin(m.commit)
}

func (m *machine) Row(t *rapid.T) {
	if !m.model.open {
		t.Skip()
	}
	m.index += rapid.IntRange(0, 2).Draw(t, "skipped rows")
	if m.commit == m.model.start.NextCommit && m.index < m.model.start.NextIndex {
		m.index = m.model.start.NextIndex // the loop skips what the position row covers
	}
	ticket := m.tr.Hold(m.index, 1)
	m.model.log = append(m.model.log, entry{lsn: m.commit, index: m.index, ticket: ticket})
	m.index++
}

func (m *machine) Commit(t *rapid.T) {
	if !m.model.open {
		t.Skip()
	}
	m.model.open = false
	m.lsn = m.commit + outbox.LSN(rapid.IntRange(1, 5).Draw(t, "record"))
	m.mark()
	m.tr.Commit(m.lsn)
}

func (m *machine) Keepalive(t *rapid.T) {
	ahead := m.lsn + outbox.LSN(rapid.IntRange(0, 5).Draw(t, "ahead"))
	if !m.model.open {
		m.lsn = ahead
		m.mark()
	}
	m.tr.Keepalive(ahead)
}

func (m *machine) mark() { m.model.log = append(m.model.log, entry{isMark: true, lsn: m.lsn}) }

func (m *machine) Decide(t *rapid.T) { m.step(t, held, m.tr.Decide) }
func (m *machine) Settle(t *rapid.T) { m.step(t, decidedState, m.tr.Settle) }

func (m *machine) step(t *rapid.T, from state, do func(outbox.Ticket)) {
	var can []*entry
	for i := range m.model.log {
		if e := &m.model.log[i]; !e.isMark && e.state == from {
			can = append(can, e)
		}
	}
	if len(can) == 0 {
		t.Skip()
	}
	e := rapid.SampledFrom(can).Draw(t, "row")
	e.state = from + 1
	do(e.ticket)
}

func (m *machine) Check(t *rapid.T) {
	if got, want := m.tr.Decided(), m.model.position(decidedState); got != want {
		t.Fatalf("decided %+v, the model says %+v", got, want)
	}
	if got, want := m.tr.Settled(), m.model.position(settledState); got != want {
		t.Fatalf("settled %+v, the model says %+v", got, want)
	}
	out := 0
	for _, e := range m.model.log {
		if !e.isMark && e.state < settledState {
			out++
		}
	}
	if rows, bytes := m.tr.Held(); rows != out || bytes != out {
		t.Fatalf("held %d rows, %d bytes; the model says %d", rows, bytes, out)
	}
	if m.tr.Decided().Before(m.tr.Settled()) {
		t.Fatalf("settled %+v is ahead of decided %+v", m.tr.Settled(), m.tr.Decided())
	}
}

// TestTrackerAgreesWithNaiveModel proves I1 to I3 against a model that
// forgets nothing: for any log and any order of outcomes both give the same
// positions.
func TestTrackerAgreesWithNaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := outbox.Progress{Timeline: 1, LSN: 100}
		if rapid.Bool().Draw(t, "inside") {
			start.NextCommit = 100 + outbox.LSN(rapid.IntRange(0, 3).Draw(t, "next commit"))
			start.NextIndex = rapid.IntRange(1, 4).Draw(t, "next index")
		}
		m := &machine{tr: New(start), model: naive{start: start}, lsn: 100}
		if start.NextCommit != 0 {
			// The first transaction with rows is the one the start names.
			m.commit, m.model.open = start.NextCommit, true
			m.tr.Begin(m.commit)
		}
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// TestConfirmNeverPassesHeld proves I1 on the case that peers got wrong: acks
// that overtake an older open row move nothing.
func TestConfirmNeverPassesHeld(t *testing.T) {
	t.Parallel()
	tr := New(outbox.Progress{})
	tr.Begin(10)
	oldest := tr.Hold(0, 1)
	tr.Commit(20)
	for commit := outbox.LSN(20); commit < 100_000; commit += 10 {
		tr.Begin(commit)
		ticket := tr.Hold(0, 1)
		tr.Commit(commit + 10)
		tr.Decide(ticket)
		tr.Settle(ticket)
		if tr.Settled().LSN != 0 || tr.Decided().LSN != 0 {
			t.Fatalf("position %v passed ticket %d, which is open", tr.Settled().LSN, oldest)
		}
	}
	tr.Decide(oldest)
	tr.Settle(oldest)
	if got := tr.Settled().LSN; got != 100_000 {
		t.Fatalf("settled %d after the last ticket, want 100000", got)
	}
	if rows, bytes := tr.Held(); rows != 0 || bytes != 0 || len(tr.marks) != 0 {
		t.Fatalf("left behind: %d rows, %d bytes, %d marks", rows, bytes, len(tr.marks))
	}
}

// TestTicketSettledOncePanics proves I4: a second Settle, a Settle without a
// Decide, and a ticket that was never given are our own broken laws.
func TestTicketSettledOncePanics(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(tr *Tracker){
		"settle undecided": func(tr *Tracker) { tr.Settle(1) },
		"decide twice":     func(tr *Tracker) { tr.Decide(1); tr.Decide(1) },
		"settle twice":     func(tr *Tracker) { tr.Decide(2); tr.Settle(2); tr.Settle(2) },
		"settle twice after drain": func(tr *Tracker) {
			tr.Decide(1)
			tr.Settle(1)
			tr.Settle(1)
		},
		"never given": func(tr *Tracker) { tr.Decide(3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := New(outbox.Progress{})
			tr.Begin(10)
			tr.Hold(0, 1)
			tr.Hold(1, 1)
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			do(tr)
		})
	}
}

// BenchmarkRow is the whole cost of one row in a transaction of one:
// Begin, Hold, Commit, Decide, Settle, with 10,000 rows out.
func BenchmarkRow(b *testing.B) {
	tr := New(outbox.Progress{})
	lsn := outbox.LSN(1)
	var oldest outbox.Ticket = 1
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tr.Begin(lsn)
		tr.Hold(0, 500)
		lsn += 10
		tr.Commit(lsn)
		if i >= 10_000 {
			tr.Decide(oldest)
			tr.Settle(oldest)
			oldest++
		}
	}
}
