package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// nullSpec tells a null sink what to read.
type nullSpec struct {
	DSN   string
	Slot  string
	Start outbox.LSN
	Gulp  time.Duration // 0: reads are never held back
}

// nullRun is one run of a null sink.
type nullRun struct {
	link string
	gulp time.Duration // 0: reads are never held back
}

// nullReport is what a null sink says at its end.
type nullReport struct{ Rows int }

// runNull drains a copy of the slot through the relay's own stream, decoder
// and tracker, into a sink that acknowledges at once.
//
// The relay has no seam for another sink, so this is not relay.Run: the loop
// below does what the relay's does for each frame, without settler and
// position row. It is the ceiling of everything before the sink.
func runNull(ctx context.Context, b *bench, l *backlog, r nullRun) (sample, error) {
	slot, err := l.freshSlot(ctx, l.base)
	if err != nil {
		return sample{}, err
	}
	if err := awaitQuiet(ctx, b.o.quiet); err != nil {
		return sample{}, err
	}
	began := time.Now()
	c, err := startSelf(b.dir, "null", nullSpec{DSN: l.dsn(r.link), Slot: slot, Start: l.start, Gulp: r.gulp})
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	s, err := l.follow(ctx, c, slot, began, 0)
	if err != nil {
		return s, err
	}
	_ = c.stdin.Close()
	var got nullReport
	if err := c.hear(&got); err != nil {
		return s, err
	}
	if got.Rows != l.rows {
		return s, fmt.Errorf("the null sink got %d rows, want %d", got.Rows, l.rows)
	}
	if err := c.stop(); err != nil {
		return s, err
	}
	return s, l.dropSlot(ctx, slot)
}

// nullSink is the child's loop.
type nullSink struct {
	stream  *cdc.Stream
	tracker *checkpoint.Tracker
	msg     decode.Message
	layout  *decode.Layout
	commit  outbox.LSN
	time    time.Time
	index   int
	rows    int
	kept    *outbox.Event // the last one, so that none can be optimised away

	confirmed outbox.LSN
	said      time.Time
}

// confirmEvery is how often the null sink confirms, as often as the relay
// stores its position.
const confirmEvery = 50 * time.Millisecond

// nullChild runs until ctx ends and gives what it has seen.
func nullChild(ctx context.Context, spec nullSpec) (nullReport, error) {
	conn, err := pgconn.ParseConfig(spec.DSN)
	if err != nil {
		return nullReport{}, err
	}
	stream, err := cdc.Open(ctx, cdc.Config{Conn: conn, Gulp: spec.Gulp, Logger: zerolog.Nop()})
	if err != nil {
		return nullReport{}, err
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	if err := stream.Start(ctx, cdc.StartOptions{Slot: spec.Slot, Publication: publication, LSN: spec.Start, Binary: true}); err != nil {
		return nullReport{}, err
	}
	stream.SetFarBehind(spec.Gulp > 0)
	n := &nullSink{stream: stream, tracker: checkpoint.New(outbox.Progress{Timeline: stream.Identity().Timeline, LSN: spec.Start})}
	defer context.AfterFunc(ctx, stream.Wake)()
	for ctx.Err() == nil {
		if err := n.turn(); err != nil {
			return nullReport{}, err
		}
	}
	return nullReport{Rows: n.rows}, nil
}

// turn takes what can be had without waiting, then confirms.
func (n *nullSink) turn() error {
	for range 256 {
		f, err := n.stream.Next(time.Now().Add(confirmEvery))
		if err != nil {
			return err
		}
		if err := n.frame(f); err != nil {
			return err
		}
		if !n.stream.Buffered() {
			break
		}
	}
	now := time.Now()
	if at := n.tracker.Settled().LSN; at > n.confirmed && now.Sub(n.said) >= confirmEvery {
		n.confirmed, n.said = at, now
		return n.stream.Confirm(at, false)
	}
	return nil
}

func (n *nullSink) frame(f cdc.Frame) error {
	switch f.Kind {
	case cdc.FrameKeepalive:
		n.tracker.Keepalive(f.WALEnd)
		if f.ReplyRequested {
			return n.stream.Confirm(n.confirmed, false)
		}
		return nil
	case cdc.FrameNone:
		return nil
	}
	if err := decode.Parse(f.Data, &n.msg); err != nil {
		return err
	}
	switch n.msg.Kind {
	case decode.KindRelation:
		layout, err := decode.NewLayout(mapping(), n.msg.Relation)
		n.layout = layout
		return err
	case decode.KindBegin:
		n.commit, n.time, n.index = n.msg.Begin.FinalLSN, n.msg.Begin.CommitTime, 0
		n.tracker.Begin(n.commit)
	case decode.KindInsert:
		return n.insert()
	case decode.KindCommit:
		n.tracker.Commit(n.msg.Commit.EndLSN)
	}
	return nil
}

// insert acknowledges the row at once.
func (n *nullSink) insert() error {
	e := &outbox.Event{Position: outbox.Position{Timeline: 1, Commit: n.commit, Index: n.index}, CommitTime: n.time}
	if err := n.layout.Event(n.msg.Insert, e); err != nil {
		return err
	}
	t := n.tracker.Hold(n.index, e.Bytes())
	n.tracker.Decide(t)
	n.tracker.Settle(t)
	n.index++
	n.rows++
	n.kept = e
	return nil
}

// mapping is that of the default outbox table.
func mapping() decode.Mapping {
	return decode.Mapping{ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Topic: "topic", Key: "message_key", Payload: "payload", ContentType: "content_type", Headers: "headers",
		DeliverAfter: "deliver_after", CreatedAt: "created_at", Status: "status", RowKey: []string{"id"}}
}
