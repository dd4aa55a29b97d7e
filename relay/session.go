package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/checkpoint"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/sink"
	"github.com/outboxrelay/outbox-relay/store"
)

// session is everything that lives and dies together: connections, tracker,
// held set, queues, nonce.
type session struct {
	r      *Relay
	stream *cdc.Stream
	admin  *cdc.Admin
	store  *store.Store
	sink   *sink.Session
	loop   *loop
	table  cdc.TableInfo
	own    ownership

	written uint32 // the timeline that the position row was written on; 0 on the first start
}

// closeTimeout bounds the polite part of closing connections.
const closeTimeout = 3 * time.Second

// session runs one session from the first connection to the last confirm.
func (r *Relay) session(ctx context.Context) (err error) {
	s := &session{r: r}
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.takeOver(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// open connects, checks, and takes the slot by starting the stream. Taking
// the slot comes before the takeover of the position row, so that two relays
// never fight over the row: the one without the slot waits.
func (s *session) open(ctx context.Context) (err error) {
	r := s.r
	if s.stream, err = cdc.Open(ctx, r.deps.Stream); err != nil {
		return fmt.Errorf("opening the replication connection: %w", err)
	}
	r.board.setIdentity(s.stream.Identity())
	if s.admin, err = cdc.OpenAdmin(ctx, r.deps.Store.Conn); err != nil {
		return fmt.Errorf("opening the query connection: %w", err)
	}
	if err := s.preflight(ctx); err != nil {
		return err
	}
	if s.store, err = store.Open(ctx, s.storeConfig()); err != nil {
		return fmt.Errorf("opening the settling connection: %w", err)
	}
	return s.start(ctx)
}

// start finds where to begin and starts the stream there. The slot is read
// before the position row: another relay may be at work, which stores its
// position before it confirms, so a row that is read later is not behind the
// slot unless somebody else moved that.
func (s *session) start(ctx context.Context) error {
	f, err := s.slotFacts(ctx)
	if err != nil {
		return err
	}
	row, known, err := s.store.Position(ctx)
	if err != nil {
		return fmt.Errorf("reading the position row: %w", err)
	}
	if err := s.readHistory(ctx); err != nil {
		return err
	}
	slot, err := s.slot(ctx, f, known, row.Progress)
	if err != nil {
		return err
	}
	at := slot
	if known {
		s.written = row.Progress.Timeline
		if err := s.checkEnd(ctx, row.Progress); err != nil {
			return err
		}
		p, err := checkFork(row.Progress, s.own.history)
		if err != nil {
			return err
		}
		if err := s.checkSlot(slot, row.Progress, p); err != nil {
			return err
		}
		at = p.LSN
	}
	binary := s.binary()
	err = s.stream.Start(ctx, cdc.StartOptions{Slot: s.r.cfg.Slot, Publication: s.r.cfg.Publication, LSN: at, Binary: binary})
	if err != nil {
		s.endStale(ctx, err)
		return fmt.Errorf("starting the stream of slot %s at %v: %w", s.r.cfg.Slot, at, err)
	}
	s.r.log.Debug().Bool("binary", binary).Stringer("lsn", at).Msg("the stream has started")
	return nil
}

// binary says whether to ask for column values in the binary format. It goes
// by the table as it is now; rows of an earlier shape that then cannot be read
// end the session, and the ones after it ask for text.
func (s *session) binary() bool {
	if s.r.textOnly {
		return false
	}
	m := s.r.cfg.Mapping
	m.RowKey = s.keyColumns()
	l, err := decode.NewLayout(m, s.table.Relation(nil))
	return err == nil && l.BinaryPays()
}

// staleBeats is after how many beats without a reply another walsender of our
// own role counts as dead: its relay is gone or paused, and wal_sender_timeout
// has not noticed yet.
const staleBeats = 3

// endStale ends the walsender that keeps the slot busy if its reader is dead.
// What the old session may still try to write, the new one's nonce refuses.
func (s *session) endStale(ctx context.Context, err error) {
	if cdc.Classify(err).Class != cdc.ClassSlotBusy {
		return
	}
	t, err := s.admin.TerminateStale(ctx, s.r.cfg.Slot, s.r.deps.Stream.Conn.User, staleBeats*s.r.cfg.Beat)
	switch {
	case err != nil:
		s.r.log.Warn().Err(err).Msg("looking at the walsender that keeps the slot busy failed")
	case t.Terminated:
		s.r.log.Warn().Uint32("pid", t.PID).Dur("reply_age", t.ReplyAge).Msg("ended the walsender of a relay that does not reply any more")
	}
}

// checkSlot compares the slot with the position row, carried over to this
// timeline as p. The slot may lie behind: it is stored less often. Ahead on
// the same timeline, somebody else has moved it. Across timelines it may be
// ahead: the row that says P is in the WAL after P, so a promoted standby may
// have a newer slot than row.
func (s *session) checkSlot(slot outbox.LSN, row, p outbox.Progress) error {
	if slot <= p.LSN {
		return nil
	}
	if row.Timeline == p.Timeline {
		return &SlotAheadError{Slot: s.r.cfg.Slot, Confirmed: slot, Progress: row}
	}
	s.r.log.Warn().Uint32("old_timeline", row.Timeline).Uint32("timeline", p.Timeline).
		Stringer("position", p.LSN).Stringer("slot", slot).
		Msg("after the failover the slot is ahead of the position row; rows of that interval that still say READY need a look")
	return nil
}

// readHistory learns which timeline wrote which part of the log.
func (s *session) readHistory(ctx context.Context) error {
	id := s.stream.Identity()
	s.own.history = history{current: id.Timeline}
	if id.Timeline == 1 {
		return nil
	}
	forks, err := s.stream.TimelineHistory(ctx, id.Timeline)
	if err != nil {
		return fmt.Errorf("reading the history of timeline %d: %w", id.Timeline, err)
	}
	s.own.history.forks = forks
	return nil
}

// takeOver makes the position row ours: from its commit on, nothing of an
// older session commits. Only then is anything read from it.
func (s *session) takeOver(ctx context.Context) error {
	failpoint(fpStreamStarted)
	id := s.stream.Identity()
	owned, err := s.store.TakeOver(ctx, store.Takeover{SystemID: id.SystemID, Timeline: id.Timeline, Start: s.stream.Received()})
	if err != nil {
		return fmt.Errorf("taking over the position row: %w", err)
	}
	failpoint(fpTakenOver)
	if owned.StoppedAt != nil {
		return &PreflightError{ExitCode: 1, Text: fmt.Sprintf("the line was stopped by policy at %v and waits for a person", owned.StoppedAt)}
	}
	s.own.progress = owned.Progress
	s.own.waiting = owned.Waiting
	s.own.linesEvents, s.own.linesBytes, s.own.full = owned.LineEvents, owned.LineBytes, new(atomic.Bool)
	// Sessions of this timeline noted how far they ever settled; after a
	// failover that note may be older than what it speaks of.
	s.own.lookUpTo = owned.Reached
	if s.written != 0 && s.written != id.Timeline {
		s.own.lookUpTo = owned.InsertLSN
	}
	s.loop = s.newLoop()
	s.sink, err = s.r.deps.Sink.NewSession(ctx, sink.SessionOptions{
		Report:      s.loop.box.put,
		Interrupted: func(err error) { s.loop.end(fmt.Errorf("publishing: %w", err)) },
		Held:        heldEvents(owned.Held),
	})
	if err != nil {
		return fmt.Errorf("opening the producer: %w", err)
	}
	s.loop.pub = s.sink
	return nil
}

func heldEvents(keys []store.HeldKey) []sink.HeldEvent {
	held := make([]sink.HeldEvent, len(keys))
	for i, k := range keys {
		held[i] = sink.HeldEvent{Topic: k.Topic, Key: k.Key, ID: k.ID}
	}
	return held
}

func (s *session) newLoop() *loop {
	r := s.r
	l := &loop{
		cfg: r.cfg, log: r.log, src: s.stream, own: s.own, stat: r.meter.newStats(),
		tracker:  checkpoint.New(s.own.progress),
		table:    tableID{oid: s.table.OID, schema: s.table.Schema, name: s.table.Name},
		cut:      cutter{rows: r.cfg.WriteBackRows, interval: r.cfg.WriteBackInterval, lastCut: time.Now()},
		settler:  newSettlerPort(s.store, r.log),
		nudge:    make(chan struct{}, 1),
		failed:   make(chan error, 1),
		pace:     pacer{gulp: s.stream.SetFarBehind, holdsOff: s.stream.Gulps()},
		received: s.stream.Received(),
		sent:     s.own.progress,
		stored:   s.own.progress,
	}
	l.cfg.Mapping.RowKey = s.keyColumns()
	l.box = &mailbox{wake: l.news}
	l.settler.wake = l.news
	return l
}

// run runs the loop here and the settler and the watch beside it, and waits
// for both before it returns.
func (s *session) run(ctx context.Context) error {
	r := s.r
	r.log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", s.own.progress.LSN).Uint32("timeline", s.own.progress.Timeline).
		Int("held_keys", len(s.own.waiting)).Msg("streaming")
	r.streamed = true
	r.board.set(Streaming, "")
	r.board.setStats(s.loop.stat)
	defer func() {
		r.board.setStats(nil)
		r.meter.endStats(s.loop.stat)
	}()

	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	spawn := func(run func(context.Context) error) {
		wg.Go(func() {
			if err := run(beside); err != nil {
				s.loop.end(err)
			}
		})
	}
	spawn(s.loop.settler.run)
	spawn(s.watch)
	spawn(s.checkBroker)
	err := s.loop.run(ctx)
	cancel()
	wg.Wait()
	r.reached = &reached{systemID: s.stream.Identity().SystemID, progress: s.loop.stored}
	if errors.Is(err, errStopped) {
		s.farewell(context.WithoutCancel(ctx))
	}
	return err
}

// farewellTimeout bounds the wait for the server to note our last confirm.
const farewellTimeout = 2 * time.Second

// farewell waits until the last confirm shows in the catalog: a server may
// drop a status that arrives just before the connection closes, and then the
// next start would repeat rows.
func (s *session) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewellTimeout)
	defer cancel()
	want := s.loop.confirmed
	for ctx.Err() == nil {
		s.reopenAdmin(ctx)
		f, err := s.admin.Facts(ctx, s.target())
		if err == nil && f.Slot != nil && f.Slot.ConfirmedLSN >= want {
			s.r.log.Info().Stringer("lsn", want).Msg("stopped; everything received is settled and confirmed")
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.r.log.Warn().Stringer("lsn", want).Msg("the server has not shown the last confirm; the position row has it")
}

// reopenAdmin replaces the query connection when it is gone: the end of the
// watch in the middle of a look closes it.
func (s *session) reopenAdmin(ctx context.Context) {
	if !s.admin.Broken() {
		return
	}
	if admin, err := cdc.OpenAdmin(ctx, s.r.deps.Store.Conn); err == nil {
		s.admin = admin
	}
}

// close ends whatever was opened. The sink's lanes stay: a chunk in flight
// keeps its lane closed for the next session.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.sink != nil {
		s.sink.End()
	}
	if s.stream != nil {
		_ = s.stream.Close(ctx) // the server frees the slot when the connection is gone
	}
	if s.store != nil {
		_ = s.store.Close(ctx)
	}
	if s.admin != nil {
		_ = s.admin.Close(ctx)
	}
}

// storeConfig completes the store's configuration with what the catalog says
// about the table.
func (s *session) storeConfig() store.Config {
	r := s.r
	c := r.deps.Store
	c.Relay, c.Slot, c.Mode, c.Logger = r.cfg.Relay, r.cfg.Slot, store.WriteBack(r.cfg.WriteBack), r.log
	c.Table = store.Table{Schema: s.table.Schema, Name: s.table.Name, EventID: r.cfg.Mapping.EventID, Status: r.cfg.Mapping.Status, SentAt: r.cfg.SentAt}
	types := make(map[string]string, len(s.table.Columns))
	for _, col := range s.table.Columns {
		types[col.Name] = col.TypeName
	}
	for _, name := range s.keyColumns() {
		c.Table.Key = append(c.Table.Key, store.Column{Name: name, Type: types[name]})
	}
	return c
}

// keyColumns are the columns that name a row: the primary key, or the id
// column of a table that has none.
func (s *session) keyColumns() []string {
	if len(s.table.PrimaryKey) == 0 {
		return []string{s.r.cfg.Mapping.ID}
	}
	names := make([]string, len(s.table.PrimaryKey))
	for i, c := range s.table.PrimaryKey {
		names[i] = c.Name
	}
	return names
}
