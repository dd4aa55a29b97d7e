package relay

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The simulation runs the real loop, tracker, cutter and settler against a
// world made of plain values, in virtual time, from a seed: a log that grows,
// a slot that may fall back, a table with its position row, lanes that
// acknowledge late, refuse, and die with records in flight. The oracle looks
// at every publish, every confirm and every settled batch, and at the whole
// at the end.
//
// One goroutine drives the world. It does one thing at a time and waits until
// the loop and the settler have nothing left to do with it, and it alone draws
// from the seed. So a seed gives the same run each time.
//
// A seed that fails is run again with -sim.seed, which tells its story.

var (
	simSeeds = flag.Int("sim.seeds", 10_000, "how many seeds TestSimulation runs")
	simSeed  = flag.Uint64("sim.seed", 0, "run this one seed, and tell its story")
)

// TestSimulation proves I1 to I5, I8, I9 and I11 to I13 of the stream path
// over many seeds, on all processors.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simSeed != 0 {
		runSeed(t, *simSeed, t.Logf)
		return
	}
	seeds := uint64(*simSeeds)
	if testing.Short() {
		seeds /= 10
	}
	began := time.Now()
	all := runSeeds(t, seeds)
	if !t.Failed() {
		t.Logf("%.0f seeds a second; %v", float64(seeds)/time.Since(began).Seconds(), all)
	}
	for what, n := range all {
		if n == 0 && seeds >= 1000 {
			t.Errorf("in %d seeds there was not one %s", seeds, simEvent(what))
		}
	}
}

// runSeeds shares the seeds among the processors and stops at the first that
// fails.
func runSeeds(t *testing.T, seeds uint64) (all simTally) {
	workers := uint64(runtime.GOMAXPROCS(0))
	var failed atomic.Bool
	var mu sync.Mutex // guards all
	t.Run("seeds", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprintf("part %d", w+1), func(t *testing.T) {
				t.Parallel()
				for seed := w + 1; seed <= seeds && !failed.Load(); seed += workers {
					tally := runSeed(t, seed, func(string, ...any) {})
					mu.Lock()
					all.add(tally)
					mu.Unlock()
					if t.Failed() {
						failed.Store(true)
					}
				}
			})
		}
	})
	return all
}

func runSeed(t *testing.T, seed uint64, story func(string, ...any)) (tally simTally) {
	synctest.Test(t, func(t *testing.T) {
		w := simulate(seed, story)
		for _, err := range w.errs {
			t.Errorf("seed %d: %v", seed, err)
		}
		tally = w.tally
	})
	return tally
}

// TestSimulationRepeats proves that a seed is worth keeping: it gives the same
// run each time.
func TestSimulationRepeats(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 50; seed++ {
		var runs [2]string
		for i := range runs {
			runSeed(t, seed, func(format string, args ...any) { runs[i] += fmt.Sprintf(format+"\n", args...) })
		}
		if runs[0] != runs[1] {
			t.Fatalf("seed %d went two ways:\n%s\n%s", seed, runs[0], runs[1])
		}
	}
}

// foundSeeds are the first seeds that failed when a line of the product was
// broken; each says what it shows. They pass, and test/mutate demands that they
// fail with that line broken. go run ./test/mutate -seeds 2000 finds them anew
// after a change of the simulation.
var foundSeeds = []struct {
	seed  uint64
	shows string
}{
	{1, "open ticket passed"},
	{1, "keepalive inside a transaction"},
	{1, "commit record marked"},
	{1, "settled before it is written"},
	{1, "back-to-back transaction skipped"},
	{1, "one row too many skipped"},
	{1, "repeated rows not looked up"},
	{1, "span without a limit"},
	{1, "no beat"},
	{2, "position row not asked"},
	{2, "refused batch counted"},
	{2, "refused row not written"},
	{4, "line event published"},
	{4, "fenced session goes on"},
	{5, "batch on its way counted as stored"},
	{5, "settled rows published again"},
	{6, "status settled at the acknowledgement"},
	{7, "repeated rows not counted"},
}

// TestSimulationFoundSeeds proves that each of the found seeds passes.
func TestSimulationFoundSeeds(t *testing.T) {
	t.Parallel()
	for _, f := range foundSeeds {
		t.Run(f.shows, func(t *testing.T) {
			t.Parallel()
			runSeed(t, f.seed, func(string, ...any) {})
		})
	}
}

// simulate plays one seed and returns the world with what the oracle found.
func simulate(seed uint64, story func(string, ...any)) *world {
	w := newWorld(seed, story)
	for range 1 + w.rng.IntN(4) {
		if len(w.errs) > 0 {
			return w
		}
		w.session()
		if w.rng.IntN(4) == 0 { // the server crashed: the slot falls back
			if w.slot > w.kept {
				w.tally[slotBack]++
			}
			w.slot = w.kept
			w.faults++
			story("the server crashed: the slot stands at %v", w.slot)
		}
	}
	w.quiet = true
	if len(w.errs) == 0 {
		w.session()
		w.final()
	}
	return w
}

// simSteps bounds the last session, in things done; the longest of 100,000
// seeds takes about 1,000.
const simSteps = 20_000

var errKilled = errors.New("killed")

// session runs one session and ends it by a fault or by a wanted stop. The
// last one, when the world is quiet, lasts until everything is worked off.
func (w *world) session() {
	s := w.begin()
	steps := 10 + w.rng.IntN(150)
	if w.quiet {
		steps = simSteps
	}
	for range steps {
		if s.ended() || (w.quiet && s.idle()) {
			break
		}
		s.step()
	}
	if w.quiet {
		s.waitForLocks()
	}
	if !s.ended() {
		if w.quiet || w.rng.IntN(3) == 0 {
			s.drain()
		} else {
			s.loop.end(errKilled)
			synctest.Wait()
		}
	}
	s.finish()
	w.story("session ended: %v; position %+v, slot %v, published %v", s.err, w.table.progress, w.slot, w.topic)
}

// waitForLocks lets time pass until every lock has ended and the settler has
// looked once more.
func (s *simSession) waitForLocks() {
	for range 4 {
		s.w.mu.Lock()
		n := len(s.w.table.pending)
		s.w.mu.Unlock()
		if n == 0 || s.ended() {
			return
		}
		time.Sleep(drainEvery)
		synctest.Wait()
	}
}

// step does one thing and waits until nobody has anything left to do.
func (s *simSession) step() {
	w := s.w
	w.mu.Lock()
	what := w.rng.IntN(20)
	switch {
	case what < 3:
		w.commit()
	case what < 8:
		s.src.send(1 + w.rng.IntN(12))
	case what < 9:
		s.src.keepalive()
	case what < 15:
		w.mu.Unlock()
		s.sink.decideSome()
		w.mu.Lock()
	case what < 18:
		s.store.answer()
	default:
		if w.rng.IntN(3) == 0 {
			w.kept = w.slot // a checkpoint of the server
		}
		d := s.pause()
		if !w.quiet && w.rng.IntN(60) == 0 { // another session takes over, and nothing is settled before the settler looks
			w.table.nonce++
			d += drainEvery
		}
		w.mu.Unlock()
		time.Sleep(d)
		w.mu.Lock()
	}
	w.mu.Unlock()
	synctest.Wait()
	s.checkFence()
}

// pause is a piece of time: mostly less than the age of a batch, at times
// longer than a beat, so that a status is due while everything else stands.
func (s *simSession) pause() time.Duration {
	d := time.Duration(1+s.w.rng.IntN(40_000)) * time.Microsecond
	if s.w.rng.IntN(20) == 0 && !s.w.quiet { // or the grace of the last stop is over
		d *= 700
	}
	return d
}

// drain asks for a stop and lets what is out be decided, but not always.
func (s *simSession) drain() {
	s.stop()
	synctest.Wait()
	for range simSteps {
		if s.ended() || (!s.w.quiet && s.w.rng.IntN(100) == 0) {
			break
		}
		s.step()
	}
	if !s.ended() {
		time.Sleep(s.loop.cfg.ShutdownGrace + time.Second)
		synctest.Wait()
	}
	if !s.ended() {
		s.w.fail("a stop has not ended the session within its grace")
		s.loop.end(errKilled)
		synctest.Wait()
	}
}

// checkFence is the loop's part of I13: a settler that was told of another
// session's nonce ends the session at once.
func (s *simSession) checkFence() {
	if s.store.fenced && !s.ended() {
		s.w.fail("the session goes on although another one owns the position row")
	}
}
