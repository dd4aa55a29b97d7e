package relay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// factsTimeout bounds one look at the facts. A look that takes longer ends
// the session: a server that cannot answer it cannot settle either.
const factsTimeout = 30 * time.Second

// watch looks at the slot, the publication and the server's settings again and
// again, and listens in between: a fast shutdown ends ordinary connections at
// once and then waits for our stream, so hearing it here is what keeps us from
// holding it up (I14).
func (s *session) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.look(ctx); err != nil {
			return err
		}
		if err := s.admin.Wait(ctx, s.r.cfg.FactsEvery); err != nil {
			return err
		}
	}
	return nil
}

// brokerCheckTimeout bounds the look at the cluster.
const brokerCheckTimeout = 30 * time.Second

// checkBroker looks at the cluster once in the life of the relay and logs what
// it finds. It never ends the session: what is wrong with Kafka today makes
// the rows wait, and nothing else.
func (s *session) checkBroker(ctx context.Context) error {
	r := s.r
	if r.brokerChecked {
		return nil
	}
	r.brokerChecked = true
	limited, cancel := context.WithTimeout(ctx, brokerCheckTimeout)
	defer cancel()
	findings, err := r.deps.Sink.Check(limited, nil)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		r.log.Warn().Err(err).Msg("the cluster could not be checked")
	}
	for _, f := range findings {
		r.log.Warn().Str("code", f.Code).Str("observed", f.Observed).Str("required", f.Required).Str("fix", f.Fix).Msg(f.Message)
	}
	return nil
}

// look reads the facts once and judges them.
func (s *session) look(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	f, err := s.admin.Facts(limited, s.target())
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	s.r.board.setFacts(f)
	if err := judgeFacts(f, s.r.cfg); err != nil {
		return err
	}
	s.judgeState(f)
	return nil
}

// judgeFacts says why the session must not go on.
func judgeFacts(f *cdc.Facts, cfg Config) error {
	switch {
	case f.Synchronous:
		return judgeSynchronous(f)
	case f.Publication == nil:
		return &PreflightError{ExitCode: 15, Text: fmt.Sprintf("publication %q is gone: rows written now never reach the slot", cfg.Publication)}
	case f.Publication.Problem() != "":
		return &PreflightError{ExitCode: 15, Text: fmt.Sprintf("publication %q is not whole any more: %s", cfg.Publication, f.Publication.Problem())}
	case f.Slot == nil:
		return &PreflightError{ExitCode: 10, Text: fmt.Sprintf("slot %q is gone", cfg.Slot)}
	case f.Slot.Lost():
		return &PreflightError{ExitCode: 10, Text: fmt.Sprintf("slot %q is lost (wal_status %s, reason %q)", cfg.Slot, f.Slot.WALStatus, f.Slot.InvalidationReason)}
	default:
		return nil
	}
}

// farBehind is the distance in WAL beyond which the relay counts as catching
// up.
const farBehind = 16 << 20

// judgeState says in one word how the session does.
func (s *session) judgeState(f *cdc.Facts) {
	state, reason := Streaming, ""
	trouble := s.loop.settler.trouble.Load()
	switch blocked := s.r.deps.Sink.Blocked(); {
	case f.Walsender.WaitsForStandby():
		state, reason = Blocked, "the server holds the stream back until a standby named in synchronized_standby_slots has confirmed"
	case s.loop.own.full.Load():
		state, reason = Blocked, "the lines hold as much as limits.lines_events and limits.lines_bytes allow; nothing is read until they are worked off"
	case trouble != nil:
		state, reason = Blocked, "statuses cannot be written: "+*trouble
	case s.loop.settler.slow():
		state, reason = Blocked, "the database has not ended a settling transaction for 10 s; its commits may wait for a synchronous standby"
	case len(blocked) > 0:
		state, reason = Blocked, fmt.Sprintf("topic %q: %s", blocked[0].Topic, blocked[0].Reason)
	case f.Slot.LagBytes > farBehind:
		state = CatchingUp
	}
	if s.r.board.set(state, reason) && reason != "" {
		s.r.log.Warn().Str("state", string(state)).Str("reason", reason).Msg("the stream is held up")
	}
}

func (s *session) target() cdc.Target {
	c := s.r.cfg
	return cdc.Target{Slot: c.Slot, Publication: c.Publication, Schema: c.Schema, Table: c.Table}
}

// PreflightError says that the database is not set up so that the stream
// could run without losing something. Text is for people.
type PreflightError struct {
	Text     string
	ExitCode int
	Findings []cdc.Finding
}

// Error gives the reasons, one a line.
func (e *PreflightError) Error() string { return e.Text }

// preflight runs every check of the database, and learns the table.
func (s *session) preflight(ctx context.Context) error {
	id := s.stream.Identity()
	findings, table, err := s.admin.Preflight(ctx, cdc.PreflightOptions{
		Target: s.target(), Mapping: s.r.cfg.Mapping, Identity: &id,
		AllowMissingSlot: true, // slot says more about it
		AllowBusySlot:    true, // starting the stream says so too, and then we wait
	})
	if err != nil {
		return fmt.Errorf("checking the database: %w", err)
	}
	refused := &PreflightError{ExitCode: 1}
	var texts []string
	for _, f := range findings {
		switch f.Severity {
		case cdc.Error:
			refused.Findings = append(refused.Findings, f)
			texts = append(texts, findingText(f))
		case cdc.Warning:
			s.r.warnOnce(f)
		}
	}
	if len(refused.Findings) > 0 {
		refused.ExitCode = refused.Findings[0].ExitCode
		refused.Text = strings.Join(texts, "\n")
		return refused
	}
	s.table = *table
	return nil
}

func findingText(f cdc.Finding) string {
	text := f.Code + ": " + f.Message
	if f.Fix != "" {
		text += "\n  fix: " + f.Fix
	}
	return text
}

// warnOnce logs a warning of the checks once in the life of the relay.
func (r *Relay) warnOnce(f cdc.Finding) {
	if r.warned[f.Code] {
		return
	}
	r.warned[f.Code] = true
	r.log.Warn().Str("code", f.Code).Str("observed", f.Observed).Str("required", f.Required).Str("fix", f.Fix).Msg(f.Message)
}

// slotFacts reads where the slot stands, and refuses a server whose commits
// would wait for us.
func (s *session) slotFacts(ctx context.Context) (*cdc.Facts, error) {
	f, err := s.admin.Facts(ctx, s.target())
	if err != nil {
		return nil, err
	}
	s.r.board.setFacts(f)
	return f, judgeSynchronous(f)
}

// slot says where the slot stood in f. It makes one only on the first start and
// only when the configuration says so: a slot that is missing although a
// position is known means that rows may never come out of any slot.
func (s *session) slot(ctx context.Context, f *cdc.Facts, known bool, p outbox.Progress) (outbox.LSN, error) {
	cfg := s.r.cfg
	if f.Slot != nil {
		return f.Slot.ConfirmedLSN, nil
	}
	if known {
		return 0, &PreflightError{ExitCode: 10, Text: fmt.Sprintf("slot %q is missing, and this relay has settled up to %v on timeline %d: "+
			"rows committed after that come out of no slot. outbox-relay slot create --confirm %s makes a new one and says which interval it leaves out",
			cfg.Slot, p.LSN, p.Timeline, cfg.Slot)}
	}
	if cfg.OnMissing != "create" {
		return 0, &PreflightError{ExitCode: 10, Text: fmt.Sprintf("slot %q does not exist; outbox-relay slot create makes it (or set slot.on_missing: create)", cfg.Slot)}
	}
	s.r.log.Info().Str("slot", cfg.Slot).Msg("creating the slot")
	if err := s.admin.CreateSlot(ctx, cdc.SlotOptions{Name: cfg.Slot, Failover: cfg.Failover, Waiting: s.slotWaits}); err != nil {
		return 0, fmt.Errorf("creating slot %s: %w", cfg.Slot, err)
	}
	f, err := s.slotFacts(ctx)
	if err != nil {
		return 0, err
	}
	if f.Slot == nil {
		return 0, fmt.Errorf("slot %s was created and is gone again", cfg.Slot)
	}
	return f.Slot.ConfirmedLSN, nil
}

// judgeSynchronous refuses a walsender that commits wait for: writers would
// wait for us, and we for the writers.
func judgeSynchronous(f *cdc.Facts) error {
	if !f.Synchronous {
		return nil
	}
	return &PreflightError{ExitCode: 2, Text: fmt.Sprintf("the relay's walsender counts as a synchronous standby (synchronous_standby_names = %q): "+
		"commits would wait for the relay, and the relay waits for commits; name the real standbys there", f.SynchronousStandbyNames)}
}

func (s *session) slotWaits(b []cdc.Blocker) {
	s.r.log.Info().Int("transactions", len(b)).Msg("creating the slot waits for transactions that were open before it")
}
