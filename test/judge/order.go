package judge

// order wants the first copies of one key in commit order, all in one
// partition. c is a first copy that keeps order, in the order of its log.
func (t *trial) order(c copyOf) {
	key := keyOf{c.record.Topic, string(c.record.Key)}
	at := place{c.record.Topic, c.record.Partition}
	home, known := t.homes[key]
	if known && home != at {
		t.report.problem(&t.report.OutOfOrder, "out of order: the key of row %s stands in partitions %d and %d of %s", c.row.EventID, home.partition, at.partition, at.topic)
		return
	}
	t.homes[key] = at
	top, known := t.tops[key]
	if known && top.Rank > c.row.Rank {
		t.report.problem(&t.report.OutOfOrder, "out of order: %s/%d@%d (row %s, rank %d) comes after row %s (rank %d) of the same key",
			at.topic, at.partition, c.record.Offset, c.row.EventID, c.row.Rank, top.EventID, top.Rank)
		return
	}
	t.tops[key] = c.row
}

// replays judges the duplicates of one partition: its log is split where it
// steps back in the order of the first copies. Each run must be a contiguous
// slice of that order, but for rows that may be left out, the last one must end
// at its newest row, and there are no more steps back than the run had faults.
func (t *trial) replays(at place, log []copyOf) {
	order, ranks := firstCopyOrder(log)
	steps := 0
	for i := 1; i < len(log); i++ {
		last, this := ranks[log[i-1].row.EventID], ranks[log[i].row.EventID]
		if this <= last {
			steps++
			continue
		}
		if !t.maySkip(order[last+1 : this]) {
			t.report.problem(&t.report.BadReplays, "bad replay: %s/%d@%d jumps from copy %d to copy %d", at.topic, at.partition, log[i].record.Offset, last, this)
		}
	}
	t.report.Replays += steps
	if end := ranks[log[len(log)-1].row.EventID]; !t.maySkip(order[end+1:]) {
		t.report.problem(&t.report.BadReplays, "bad replay: %s/%d ends at copy %d of %d", at.topic, at.partition, end, len(order)-1)
	}
	if t.rules.Restarts >= 0 && steps > t.rules.Restarts {
		t.report.problem(&t.report.BadReplays, "bad replay: %s/%d steps back %d times, the run had %d restarts", at.topic, at.partition, steps, t.rules.Restarts)
	}
}

// maySkip says whether a replay may leave out these events.
func (t *trial) maySkip(ids []string) bool {
	if t.rules.SkipsSettled {
		return true
	}
	for _, id := range ids {
		if !t.rules.Settled[id] {
			return false
		}
	}
	return true
}

// firstCopyOrder lists the events of a log by their first copies, and gives
// the place of each in that order.
func firstCopyOrder(log []copyOf) (order []string, ranks map[string]int) {
	ranks = map[string]int{}
	for _, c := range log {
		if _, ok := ranks[c.row.EventID]; !ok {
			ranks[c.row.EventID] = len(order)
			order = append(order, c.row.EventID)
		}
	}
	return order, ranks
}
