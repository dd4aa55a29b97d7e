package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// world is everything outside the loop that outlives a session.
type world struct {
	rng   *rand.Rand // the driver's alone
	story func(format string, args ...any)
	mode  WriteBack
	atAck bool // what the mode promises: the LSN waits for the acknowledgement only
	quiet bool // no fault any more, no new rows

	mu        sync.Mutex // guards the rest
	left      int        // transactions still to be written
	log       []simTxn
	end       outbox.LSN // of the log
	slot      outbox.LSN // confirmed, as the server has it in memory
	kept      outbox.LSN // confirmed, as it has it on disk
	table     simTable
	published map[outbox.Position]bool
	topic     [simKeys][]outbox.Position // by key, in the broker's order
	passed    int                        // transactions that a confirm has passed and that were found done
	errs      []error
	faults    int // sessions that ended by a fault
	tally     simTally
}

// simEvent is something that must happen in some seed, or the simulation
// proves less than it says.
type simEvent int

const (
	repeated     simEvent = iota // a row published again
	lined                        // a row put into a line
	tookInside                   // a session that begins inside a transaction
	slotBack                     // a slot that fell back behind what was confirmed
	tableSkips                   // a repeated row that the table says is settled
	batchAgain                   // a batch that the table refused and took later
	fencedOff                    // a batch refused for its nonce
	spanFull                     // a row that used the last of the span
	stopCut                      // a stop whose grace was over
	fellBehind                   // a stream that was far behind
	pended                       // a row whose status a lock held up
	pendingSkips                 // a repeated row whose status is pending
	drained                      // a row whose status was shown when the lock was gone
	drainFenced                  // a look at what is pending refused for its nonce
	simEvents
)

var simEventNames = [simEvents]string{"row repeated", "row lined", "start inside a transaction", "slot fallen back",
	"row skipped by look-up", "batch tried again", "batch fenced off", "span full", "stop cut short", "far behind", "row pended", "pending row skipped by look-up", "row drained", "drain fenced off"}

func (e simEvent) String() string { return simEventNames[e] }

type simTally [simEvents]int

func (t *simTally) add(o simTally) {
	for i, n := range o {
		t[i] += n
	}
}

func (t simTally) String() string {
	var parts []string
	for i, n := range t {
		parts = append(parts, fmt.Sprintf("%s %d", simEvent(i), n))
	}
	return strings.Join(parts, ", ")
}

// simKeys is how many ordering keys there are.
const simKeys = 4

type simTxn struct {
	commit, end outbox.LSN
	rows        []simRow
}

type simRow struct {
	key    int
	poison bool // the broker refuses it
}

func (tx simTxn) position(i int) outbox.Position {
	return outbox.Position{Timeline: 1, Commit: tx.commit, Index: i}
}

// simTable is what Postgres keeps for us.
type simTable struct {
	nonce    int
	progress outbox.Progress
	reached  outbox.LSN
	status   map[outbox.Position]outbox.Status
	lines    map[outbox.Position]int // waiting events and their keys
	pending  map[outbox.Position]simPending
}

// simPending is a status that a row does not show yet, because an application
// has locked it.
type simPending struct {
	status outbox.Status
	until  time.Time // when the lock ends
}

// settled says whether the table or what is pending has the row as published.
func (t *simTable) settled(p outbox.Position) bool {
	return t.status[p] == outbox.StatusSent || t.pending[p].status == outbox.StatusSent
}

func newWorld(seed uint64, story func(string, ...any)) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	left := 5 + rng.IntN(35)
	mode := []WriteBack{WriteBackStatus, WriteBackOff, WriteBackAsync, WriteBackDelete}[rng.IntN(4)]
	return &world{
		rng: rng, story: story, left: left, end: 100, slot: 100, kept: 100,
		mode: mode, atAck: mode == WriteBackAsync || mode == WriteBackOff,
		published: map[outbox.Position]bool{},
		table: simTable{progress: outbox.Progress{Timeline: 1, LSN: 100},
			status: map[outbox.Position]outbox.Status{}, lines: map[outbox.Position]int{}, pending: map[outbox.Position]simPending{}},
	}
}

func (w *world) fail(format string, args ...any) {
	if len(w.errs) < 5 {
		w.errs = append(w.errs, fmt.Errorf(format, args...))
	}
}

// commit appends one transaction: of up to five rows, at times of thirty, at
// times of none, and mostly right behind the last one, as in a real log.
func (w *world) commit() {
	if w.left == 0 {
		return
	}
	w.left--
	tx := simTxn{commit: w.end + outbox.LSN(w.rng.IntN(2)*w.rng.IntN(50))}
	rows := w.rng.IntN(6)
	if w.rng.IntN(40) == 0 {
		rows = 30
	}
	for range rows {
		tx.rows = append(tx.rows, simRow{key: w.rng.IntN(simKeys), poison: w.rng.IntN(60) == 0})
	}
	tx.end = tx.commit + outbox.LSN(10+rows+w.rng.IntN(10))
	w.end = tx.end
	w.log = append(w.log, tx)
}

func (w *world) row(p outbox.Position) simRow {
	i, _ := slices.BinarySearchFunc(w.log, p.Commit, func(tx simTxn, c outbox.LSN) int { return int(tx.commit) - int(c) })
	return w.log[i].rows[p.Index]
}

// store puts a record into the topic.
func (w *world) store(p outbox.Position) {
	key := w.row(p).key
	w.topic[key] = append(w.topic[key], p)
	if w.published[p] {
		w.tally[repeated]++
	}
	w.published[p] = true
}

// done says whether the row is where a confirm may pass it.
func (w *world) done(p outbox.Position) bool {
	if _, waits := w.table.lines[p]; waits {
		return true
	}
	return w.published[p] && (w.atAck || w.table.settled(p))
}

// checkConfirm is the oracle of I1 and I2.
func (w *world) checkConfirm(lsn, before, received outbox.LSN) {
	if lsn < before {
		w.fail("confirmed %v after %v", lsn, before)
	}
	if lsn > received {
		w.fail("confirmed %v, but received only %v", lsn, received)
	}
	if lsn > w.table.progress.LSN {
		w.fail("confirmed %v beyond the position row at %v", lsn, w.table.progress.LSN)
	}
	for ; w.passed < len(w.log) && w.log[w.passed].end <= lsn; w.passed++ {
		for i := range w.log[w.passed].rows {
			if p := w.log[w.passed].position(i); !w.done(p) {
				w.fail("confirmed %v over row %v, which is neither settled nor in a line", lsn, p)
			}
		}
	}
}

// checkPublish is the oracle of what a session may send again: nothing that
// the table calls settled, and nothing that waits in a line.
func (w *world) checkPublish(p outbox.Position) {
	if _, waits := w.table.lines[p]; waits {
		w.fail("row %v was handed over although it waits in a line", p)
	}
	if w.table.status[p] == outbox.StatusSent && w.mode != WriteBackDelete {
		w.fail("row %v was handed over although it is settled", p)
	}
	if _, pends := w.table.pending[p]; pends {
		w.fail("row %v was handed over although its status is pending", p)
	}
}

// final is the oracle of the whole: nothing lost, order kept, nothing
// repeated without a fault, every row shown, no status pending.
func (w *world) final() {
	if w.table.progress.LSN != w.end {
		w.fail("the position row stands at %v, the log ends at %v", w.table.progress.LSN, w.end)
	}
	if n := len(w.table.pending); n > 0 {
		w.fail("%d statuses are still pending", n)
	}
	var want [simKeys][]outbox.Position
	for _, tx := range w.log {
		for i, r := range tx.rows {
			p := tx.position(i)
			if _, waits := w.table.lines[p]; !waits {
				want[r.key] = append(want[r.key], p)
			}
			if !w.atAck && w.table.status[p] == outbox.StatusReady {
				w.fail("row %v still says READY", p) // in async a crash may leave that
			}
		}
	}
	for key, topic := range w.topic {
		var first []outbox.Position
		seen := map[outbox.Position]bool{}
		for _, p := range topic {
			if seen[p] && w.faults == 0 {
				w.fail("row %v was published twice without a fault", p)
			}
			if _, waits := w.table.lines[p]; !seen[p] && !waits {
				first = append(first, p)
			}
			seen[p] = true
		}
		if !slices.Equal(first, want[key]) {
			w.fail("key %d: published %v, want %v", key, first, want[key])
		}
	}
}
