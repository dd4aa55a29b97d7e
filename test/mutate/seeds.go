package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// simulation plays a world against the loop from a seed.
var simulation = killer{pkg: "relay", test: "TestSimulation"}

// simulated says whether the simulation runs the mutant's code.
func simulated(m mutant) bool {
	return slices.ContainsFunc([]string{"relay/", "checkpoint/", "outbox/", "decode/"}, func(dir string) bool {
		return strings.HasPrefix(m.file, dir)
	})
}

// firstSeed gives the first seed that kills, "" when none does. The parts of
// the simulation run side by side and stop at the first failure, so the lowest
// is found by asking again for those below.
func (r *runner) firstSeed(ctx context.Context, n int, overlay string) string {
	binary, err := r.build(ctx, simulation.pkg, fmt.Sprintf("%d-seeds", n), overlay)
	if err != nil {
		return err.Error()
	}
	first := ""
	for most := r.o.seeds; most > 0 && ctx.Err() == nil; {
		out, err := r.test(ctx, binary, simulation, "-sim.seeds="+strconv.Itoa(most))
		if err == nil {
			break
		}
		found := seedLine.FindStringSubmatch(out)
		if found == nil {
			return reason(out) // a panic, which names no seed
		}
		first = found[1]
		seed, _ := strconv.Atoi(first) // digits, as the pattern says
		most = seed - 1
	}
	return first
}
