package main

// orderMutants break I8: rows of one key in commit order.
var orderMutants = []mutant{
	{
		law: "I8", what: "a lane hands over a second chunk while one is in flight", file: "sink/lane.go",
		old:     "if l.chunk != nil || !l.topic.open() {",
		new:     "if !l.topic.open() {",
		killers: by("sink", "TestOneChunkALaneAtATime"),
	},
	{
		law: "I8", what: "a held key lets later events pass", file: "sink/lane.go",
		old:     "if keyed && p.held.has(orderKey{t.name, key}) {",
		new:     "if keyed && p.held.has(orderKey{t.name, key}) && false {",
		killers: by("sink", "TestHeldKeysDivert", "TestKeyOrderHoldsUnderRandomRefusals"),
	},
	{
		law: "I8", what: "a key is held while an earlier event of it is still to be sent again", file: "sink/lane.go",
		old:     "if keyed && p.config.Policy.holds(t.name, refusal.Class, true) && c.holdsKey(key) {",
		new:     "if false {",
		killers: by("sink", "TestKeyOrderHoldsUnderRandomRefusals"),
	},
	{
		law: "I8", what: "a chunk may become two batches", file: "sink/chunk.go",
		old:     "if (begins && it != &it.chunk.items[0]) || it.chunk.broken.Load() {",
		new:     "if begins && false {",
		killers: by("sink", "TestOneChunkIsOneBatch"),
	},
	{
		law: "I8", what: "what is sent again goes behind what came later", file: "sink/queue.go",
		old:     "\tall = append(all, es...)\n\tall = append(all, q.buf[q.head:]...)",
		new:     "\tall = append(all, q.buf[q.head:]...)\n\tall = append(all, es...)",
		killers: by("sink", "TestQueueKeepsOrder", "TestKeyOrderHoldsUnderRandomRefusals"),
	},
	{
		law: "I8", what: "a new session does not know the held keys", file: "relay/session.go",
		old:     "Held:        heldEvents(owned.Held),",
		new:     "Held:        heldEvents(nil),",
		killers: by("relay", "TestRefusedRowAmong500"),
	},
	{
		law: "I8", what: "what waits in a line is published again", file: "relay/frames.go",
		old:     "if _, waits := l.own.waiting[p]; waits {",
		new:     "if _, waits := l.own.waiting[p]; waits && false {",
		killers: also(by("relay", "TestReplayIsLookedUp"), found("line event published")),
	},
	{
		law: "I8", what: "a line holds its events in the order of their verdicts", file: "store/settle.go",
		old:     "return cmp.Compare(x.Ticket, y.Ticket) })",
		new:     "return cmp.Compare(0, x.Ticket*0) })",
		killers: by("store", "TestRefusedAndFollowersFormOneLine"),
	},
}

// loopMutants break I9, I10, I12 and I14: what the loop owes to the server.
var loopMutants = []mutant{
	{
		law: "I9", what: "no status goes out while nothing moves", file: "relay/loop.go",
		old:     "if !moved && !beat {",
		new:     "if !moved && beat {\n\t\tl.nextBeat = now.Add(l.cfg.Beat)\n\t}\n\tif !moved {",
		killers: also(by("relay", "TestStatusEveryBeat"), found("no beat")),
	},
	{
		law: "I9", what: "a full span is waited for without the beat", file: "relay/loop.go",
		old:     "\tcase <-l.nudge:\n\tcase <-timer.C:\n\t}",
		new:     "\tcase <-l.nudge:\n\t}",
		killers: by("relay", "TestStatusEveryBeat"),
	},
	{
		law: "I9", what: "no status goes out during a look-up", file: "relay/replay.go",
		old:     "if err := l.report(time.Now()); err != nil {",
		new:     "l.nextBeat = l.nextBeat.Add(l.cfg.Beat)\n\t\t\tif err := error(nil); err != nil {",
		killers: by("relay", "TestStatusEveryBeatDuringALookUp"),
	},
	{
		law: "I9", what: "a server that asks gets no answer before the beat", file: "relay/frames.go",
		old:     "if f.ReplyRequested {",
		new:     "if f.ReplyRequested && false {",
		killers: by("relay", "TestAskedForAStatusItGoesOut"),
	},
	{
		law: "I10", what: "starts on a publication with updates and deletes", file: "cdc/checkslot.go",
		old:     "if p.Update || p.Delete {",
		new:     "if false {",
		killers: by("cdc", "TestPreflightFindings"),
	},
	{
		law: "I10", what: "goes on when updates or deletes are published", file: "cdc/facts.go",
		old:     "case p.Update || p.Delete:",
		new:     "case false:",
		killers: by("cdc", "TestPublicationProblem"),
	},
	{
		law: "I12", what: "the span has no limit in rows", file: "relay/loop.go",
		old:     "!(rows < l.cfg.SpanRows && bytes",
		new:     "!(bytes",
		killers: also(by("relay", "TestStatusEveryBeat"), found("span without a limit")),
	},
	{
		law: "I12", what: "the span has no limit in bytes", file: "relay/loop.go",
		old:     "&& bytes < l.cfg.SpanBytes &&",
		new:     "&&",
		killers: by("relay", "TestSpanIsBounded"),
	},
	{
		law: "I12", what: "rows that wait for a look-up are not counted", file: "relay/loop.go",
		old:     "rows += l.replay.len()\n\tbytes += l.replay.bytes",
		new:     "rows += 0",
		killers: also(by("relay", "TestRepeatedRowsCountToo"), found("repeated rows not counted")),
	},
	{
		law: "I12", what: "the lines may fill the database", file: "relay/loop.go",
		old:     " && !l.own.linesFull(l.cfg)",
		new:     "",
		killers: by("relay", "TestFullLinesStopTheStream"),
	},
	{
		law: "I14", what: "nobody listens for the server's shutdown", file: "relay/watch.go",
		old:     "if err := s.admin.Wait(ctx, s.r.cfg.FactsEvery); err != nil {\n\t\t\treturn err\n\t\t}",
		new:     "select {\n\t\tcase <-ctx.Done():\n\t\tcase <-time.After(s.r.cfg.FactsEvery):\n\t\t}",
		killers: by("relay", "TestEndOfTheQueryConnectionIsHeard"),
	},
}
