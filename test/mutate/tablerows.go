package main

// rowMutants break I11: every committed row is delivered, or visible as FAILED.
var rowMutants = []mutant{
	{
		law: "I11", what: "skips a transaction whose commit begins where the position stands", file: "relay/frames.go",
		old:     "l.txn.skip = b.FinalLSN < l.own.progress.LSN",
		new:     "l.txn.skip = b.FinalLSN <= l.own.progress.LSN",
		killers: also(by("relay", "TestReplayIsLookedUp"), found("back-to-back transaction skipped")),
	},
	{
		law: "I11", what: "one row more than settled is skipped inside a transaction", file: "outbox/lsn.go",
		old:     "p.Index < g.NextIndex",
		new:     "p.Index <= g.NextIndex",
		killers: also(by("relay", "TestReplayIsLookedUp"), found("one row too many skipped")),
	},
	{
		law: "I11", what: "repeated rows are passed over without a look at the table", file: "relay/replay.go",
		old:     "if skip[n] {",
		new:     "if skip[n] || true {",
		killers: also(by("relay", "TestReplayIsLookedUp"), found("repeated rows not looked up")),
	},
	{
		law: "I11", what: "repeated rows are published without a look at the table", file: "relay/frames.go",
		old:     "if p.Commit <= l.own.lookUpTo {",
		new:     "if false {",
		killers: also(by("relay", "TestReplayIsLookedUp"), found("settled rows published again")),
	},
	{
		law: "I11", what: "a row of another table is passed over", file: "relay/frames.go",
		old:     "l.halt = &RelationError{OID:",
		new:     "_ = &RelationError{OID:",
		killers: by("relay", "TestUnexpectedRelationEndsTheSession"),
	},
	{
		law: "I11", what: "a row whose columns do not fit is passed over", file: "relay/frames.go",
		old:     "l.halt = l.misfit\n",
		new:     "_ = l.misfit\n",
		killers: by("relay", "TestWhatLiesBeforeAHaltIsSettled"),
	},
	{
		law: "I11", what: "a record that the broker refused counts as acknowledged", file: "sink/decide.go",
		old:     "if it.cut || it.err != nil {",
		new:     "if it.cut {",
		killers: by("sink", "TestOneBadRowAmongManyIsFound"),
	},
	{
		law: "I11", what: "an outage is charged to the rows", file: "sink/decide.go",
		old:     "\tdefault:\n\t\tp.putBack(c, rest, ours)\n\t\tp.block(t, j, err)",
		new:     "\tdefault:\n\t\tp.suspect(c, rest, j, ours)",
		killers: by("sink", "TestFlappingRightsKeepOrder"),
	},
	{
		law: "I11", what: "a missing slot is made anew in silence", file: "relay/watch.go",
		old:     "\tif known {\n\t\treturn 0,",
		new:     "\tif known && false {\n\t\treturn 0,",
		killers: by("relay", "TestMissingSlotIsAnIncident/missing"),
	},
	{
		law: "I11", what: "a slot that somebody moved ahead is believed", file: "relay/session.go",
		old:     "if slot <= p.LSN {",
		new:     "if slot > 0 {",
		killers: by("relay", "TestMissingSlotIsAnIncident/ahead"),
	},
	{
		law: "I11", what: "a position beyond the end of the server's log is believed", file: "relay/rewound.go",
		old:     "f.Timeline != row.Timeline || f.FlushLSN >= row.LSN",
		new:     "f.Timeline != row.Timeline || f.FlushLSN >= row.LSN || true",
		killers: by("relay", "TestMissingSlotIsAnIncident/rewound"),
	},
	{
		law: "I11", what: "a position beyond the fork is carried over a failover", file: "relay/ownership.go",
		old:     "if p.LSN > f.SwitchLSN {",
		new:     "if false {",
		killers: by("relay", "TestForkCheck"),
	},
	{
		law: "I11", what: "a broken publication is not noticed while streaming", file: "relay/watch.go",
		old:     `case f.Publication.Problem() != "":`,
		new:     `case f.Publication.Problem() == "?":`,
		killers: by("relay", "TestBrokenPublicationIsLoud/15 filtered"),
	},
	{
		law: "I11", what: "rows that cannot be read in binary are asked for in binary for ever", file: "relay/relay.go",
		old:     "r.textOnly || errors.As(err, &unreadable)",
		new:     "r.textOnly && errors.As(err, &unreadable)",
		killers: by("relay", "TestFormatFollowsTheColumns"),
	},
	{
		law: "I11", what: "an outcome that comes while the relay is far behind is never looked at", file: "relay/pace.go",
		old:     "t = earlier(t, now.Add(farLook))",
		new:     "",
		killers: by("relay", "TestPaceBoundsTheRead"),
	},
}

// sessionMutants break I13: a stale session changes nothing.
var sessionMutants = []mutant{
	{
		law: "I13", what: "the position row may be written with any nonce", file: "store/settle.go",
		old:     "where p.relay = $1 and p.session = $2::text::uuid`",
		new:     "where p.relay = $1 and $2::text::uuid is not null`",
		killers: by("store", "TestFencedSessionWritesNothing"),
	},
	{
		law: "I13", what: "a session that lost the position row writes lines and statuses", file: "store/settle.go",
		old:     "if !*owned {",
		new:     "if !*owned && false {",
		killers: by("store", "TestFencedSessionWritesNothing"),
	},
	{
		law: "I13", what: "a session that lost the position row drains statuses", file: "store/pending.go",
		old:     "if !owned {",
		new:     "if !owned && false {",
		killers: by("store", "TestFencedSessionWritesNothing"),
	},
	{
		law: "I13", what: "reads before the old session's last transaction is over", file: "store/position.go",
		old:     "row, err := scanPosition(s.conn.QueryRow(ctx, selectPosition+` for update`, s.cfg.Relay))",
		new:     "row, err := scanPosition(s.conn.QueryRow(ctx, selectPosition, s.cfg.Relay))",
		killers: by("store", "TestTakeOverWaitsForTheOldSession"),
	},
	{
		law: "I13", what: "a session that was told that it is over tries again", file: "relay/settler.go",
		old:     "\tfor _, end := range []error{store.ErrFenced,",
		new:     "\tif errors.Is(err, store.ErrFenced) {\n\t\treturn false\n\t}\n\tfor _, end := range []error{store.ErrFenced,",
		killers: also(by("relay", "TestFencedSessionEnds"), found("fenced session goes on")),
	},
}
