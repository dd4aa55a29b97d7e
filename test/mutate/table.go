package main

import "slices"

// mutants is the table: each entry breaks one law at its home, and names the
// tests that must notice. It is in the order of the laws.
var mutants = func() []mutant {
	all := slices.Concat(positionMutants, outcomeMutants, orderMutants, loopMutants, rowMutants, sessionMutants)
	slices.SortStableFunc(all, func(a, b mutant) int { return a.number() - b.number() })
	return all
}()

// by names tests of one package.
func by(pkg string, tests ...string) []killer {
	killers := make([]killer, len(tests))
	for i, test := range tests {
		killers[i] = killer{pkg, test}
	}
	return killers
}

// also adds killers of another package.
func also(more ...[]killer) []killer { return slices.Concat(more...) }

// found names the seed of the simulation that finds a mutant.
func found(name string) []killer { return by("relay", "TestSimulationFoundSeeds/"+name) }

// positionMutants break I1 to I3: what may be confirmed.
var positionMutants = []mutant{
	{
		law: "I1", what: "a position passes one open ticket", file: "checkpoint/tracker.go",
		old:     "t.marks[c.mark].after <= c.ticket {",
		new:     "t.marks[c.mark].after <= c.ticket+1 {",
		killers: also(by("checkpoint", "TestConfirmNeverPassesHeld", "TestTrackerAgreesWithNaiveModel"), found("open ticket passed")),
	},
	{
		law: "I1", what: "confirms what is settled and not yet in the position row", file: "relay/loop.go",
		old:     "target := min(l.tracker.Settled().LSN, l.stored.LSN)",
		new:     "target := l.tracker.Settled().LSN",
		killers: also(by("relay", "TestSettledOnlyAfterCommit"), found("position row not asked")),
	},
	{
		law: "I1", what: "takes a batch that is on its way for a stored one", file: "relay/loop.go",
		old:     "l.stored = b.progress",
		new:     "l.stored = l.sent",
		killers: found("batch on its way counted as stored"),
	},
	{
		law: "I1", what: "the stored position may decrease", file: "store/settle.go",
		old:     "lsn = case when ` + ahead + ` then $3::text::pg_lsn else p.lsn end,",
		new:     "lsn = $3::text::pg_lsn,",
		killers: by("store", "TestPositionNeverDecreases"),
	},
	{
		law: "I2", what: "a mark may lie below one that was taken", file: "checkpoint/tracker.go",
		old:     "\tif lsn <= t.received {\n\t\treturn\n\t}\n\tt.received = lsn",
		new:     "\tt.received = lsn",
		killers: by("checkpoint", "TestTranscripts"),
	},
	{
		law: "I2", what: "confirms what this connection never received", file: "cdc/confirm.go",
		old:     "if p > s.received {",
		new:     "if false {",
		killers: by("cdc", "TestConfirmPanicsAboveReceived"),
	},
	{
		law: "I2", what: "confirms less than before", file: "cdc/confirm.go",
		old:     "\tp = max(p, s.confirmed)\n",
		new:     "",
		killers: by("cdc", "TestConfirmWritesAllPositionsAndNeverLess"),
	},
	{
		law: "I3", what: "a keepalive inside a transaction is a mark", file: "checkpoint/tracker.go",
		old:     "\tif t.open {\n\t\treturn\n\t}\n\tt.addMark(lsn)",
		new:     "\tt.addMark(lsn)",
		killers: also(by("checkpoint", "TestTranscripts"), found("keepalive inside a transaction")),
	},
	{
		law: "I3", what: "marks the commit record instead of its end", file: "relay/frames.go",
		old:     "l.tracker.Commit(c.EndLSN)",
		new:     "l.tracker.Commit(c.CommitLSN)",
		killers: also(by("relay", "TestMarkIsTheEndOfTheTransaction"), found("commit record marked")),
	},
}

// outcomeMutants break I4 to I7: one outcome for each ticket, written before
// it counts, handed over without waiting, of memory that is its own.
var outcomeMutants = []mutant{
	{
		law: "I4", what: "a ticket may be settled twice", file: "checkpoint/tracker.go",
		old:     "if r.state != from {",
		new:     "if false {",
		killers: by("checkpoint", "TestTicketSettledOncePanics"),
	},
	{
		law: "I4", what: "settles at the acknowledgement and again with the batch", file: "relay/loop.go",
		old:     "o.Ticket = 0 // settled already; only its row is still to be shown",
		new:     "_ = o.Ticket",
		killers: by("relay", "TestSettledOnlyAfterCommit"),
	},
	{
		law: "I4", what: "outcomes of an older session reach the next one", file: "sink/decide.go",
		old:     "ours := c.session == p.session // else a session that is over: nothing is reported or sent again",
		new:     "ours := true",
		killers: by("sink", "TestLaneStaysClosedOverSessions"),
	},
	{
		law: "I5", what: "a ticket is settled before its batch is written", file: "relay/settler.go",
		old:     "\t\t\tif err := p.write(ctx, b); err != nil {\n\t\t\t\treturn err\n\t\t\t}\n\t\t\tp.done <- b\n\t\t\tp.wake()",
		new:     "\t\t\tp.done <- b\n\t\t\tp.wake()\n\t\t\tif err := p.write(ctx, b); err != nil {\n\t\t\t\treturn err\n\t\t\t}",
		killers: also(by("relay", "TestSettledOnlyAfterCommit"), found("settled before it is written")),
	},
	{
		law: "I5", what: "a batch that the table refused for now counts as written", file: "relay/settler.go",
		old:     "\t\tif err == nil {\n\t\t\tfailpoint(fpSettled)",
		new:     "\t\tif err == nil || !endsSession(err) {\n\t\t\tfailpoint(fpSettled)",
		killers: also(by("relay", "TestRefusedBatchIsTriedAgain"), found("refused batch counted")),
	},
	{
		law: "I5", what: "write-back status settles at the acknowledgement", file: "relay/config.go",
		old:     "return w == WriteBackAsync || w == WriteBackOff }",
		new:     "return w != WriteBackDelete }",
		killers: also(by("relay", "TestSettledOnlyAfterCommit"), found("status settled at the acknowledgement")),
	},
	{
		law: "I5", what: "a refused row is settled without being written", file: "relay/loop.go",
		old:     "if o.Verdict == outbox.Acked && l.cfg.WriteBack.settlesAtAck() {",
		new:     "if l.cfg.WriteBack.settlesAtAck() {",
		killers: also(by("relay", "TestRefusedAndDivertedGoThroughTheSameDoor"), found("refused row not written")),
	},
	{
		law: "I5", what: "an unanswered commit counts as done", file: "store/store.go",
		old:     `return 0, fmt.Errorf("%w: %w", ErrCommitUnknown, err)`,
		new:     `return 0, nil`,
		killers: by("store", "TestCommitWithoutAnswerIsUnknown"),
	},
	{
		law: "I6", what: "an outcome waits for a loop that is busy", file: "relay/loop.go",
		old:     "\tselect {\n\tcase l.nudge <- struct{}{}:\n\tdefault:\n\t}\n\tl.src.Wake()",
		new:     "\tl.nudge <- struct{}{}\n\tl.src.Wake()",
		killers: by("relay", "TestOutcomesNeverWait"),
	},
	{
		law: "I6", what: "the client's callback waits for the pump", file: "sink/mailbox.go",
		old:     "\tselect {\n\tcase m.wake <- struct{}{}:\n\tdefault:\n\t}\n",
		new:     "\tm.wake <- struct{}{}\n",
		killers: by("sink", "TestMailboxNeverWaits"),
	},
	{
		law: "I7", what: "the payload is the connection's buffer", file: "decode/event.go",
		old:     "\tb := make([]byte, len(data))\n\tcopy(b, data)\n\treturn b\n",
		new:     "\treturn data\n",
		killers: by("decode", "TestEventAliasesNothing"),
	},
	{
		law: "I7", what: "a payload of bytea is decoded inside the connection's buffer", file: "decode/hex.go",
		old:     "out := make([]byte, len(digits)/2)",
		new:     "out := digits[:len(digits)/2]",
		killers: by("decode", "TestEventAliasesNothing"),
	},
}
