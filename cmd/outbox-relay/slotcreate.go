package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/store"
)

// slotMaker creates the configured slot, and says what that means.
type slotMaker struct {
	app      *app
	cfg      *config.Config
	admin    *cdc.Admin
	conn     *pgx.ConnConfig
	confirm  string
	failover bool
}

func (a *app) slotCreateCommand() *cobra.Command {
	m := slotMaker{app: a}
	c := &cobra.Command{
		Use:   "create",
		Short: "create the slot of slot.name",
		Long: `Create the slot of slot.name. The publication must exist first: rows written
before it exists can never be read from the log. Creating waits until every
transaction that runs now has ended; give a limit with --timeout.

When the relay has a position already (its old slot is gone), rows committed
between that position and the new slot will not be streamed. The command says
which interval that is, and goes on only when the slot's name is typed again
after --confirm. The position is then moved to where the new slot starts.`,
		Example: "  outbox-relay slot create\n  outbox-relay slot create --failover\n  outbox-relay slot create --confirm outbox_relay",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAdmin(c.Context(), func(l *config.Loaded, admin *cdc.Admin) error {
				conn, err := queryConn(l)
				if err != nil {
					return err
				}
				m.cfg, m.admin, m.conn = &l.Config, admin, conn
				m.failover = m.failover || l.Config.Slot.Failover
				return m.run(c.Context())
			})
		},
	}
	c.Flags().BoolVar(&m.failover, "failover", false, "make a failover slot (PostgreSQL 17 and later); also slot.failover")
	c.Flags().StringVar(&m.confirm, "confirm", "", "the slot's name, typed again: accept that an interval is not streamed")
	return c
}

// created is the answer of slot create.
type created struct {
	document
	Slot       *slotDocument `json:"slot"`
	SkippedLSN *interval     `json:"not_streamed"` // null: the relay had no position
}

// interval is a stretch of the log.
type interval struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (m *slotMaker) run(ctx context.Context) error {
	t, err := target(m.cfg)
	if err != nil {
		return err
	}
	facts, err := m.admin.Facts(ctx, t)
	if err != nil {
		return err
	}
	if err := m.allowed(facts); err != nil {
		return err
	}
	before, err := m.position(ctx)
	if err != nil {
		return err
	}
	name := m.cfg.Slot.Name
	if before != nil && m.confirm != name {
		return &failure{code: exitUsage,
			err: fmt.Errorf("relay %q has a position, %v (timeline %d): rows committed between it and the new slot, now at %v or later, would not be streamed; look for those that still say READY",
				m.cfg.Relay.Name, before.Progress.LSN, before.Progress.Timeline, facts.FlushLSN),
			next: "outbox-relay slot create --confirm " + name}
	}
	return m.create(ctx, t, before)
}

// allowed refuses what would end in a slot that brings nothing.
func (m *slotMaker) allowed(f *cdc.Facts) error {
	name := m.cfg.Slot.Name
	switch {
	case f.Slot != nil && f.Slot.Lost():
		return &failure{code: exitSlot, err: fmt.Errorf("slot %q exists, and its log is lost (%s)", name, orDash(f.Slot.InvalidationReason)), next: "outbox-relay slot drop --confirm " + name}
	case f.Slot != nil:
		return &failure{code: exitUsage, err: fmt.Errorf("slot %q exists already (database %s, plugin %s)", name, orDash(f.Slot.Database), orDash(f.Slot.Plugin)), next: "outbox-relay slot show"}
	case f.Publication.Problem() != "":
		return &failure{code: exitPublication, err: fmt.Errorf("publication %q comes before the slot: %s", m.cfg.Publication.Name, f.Publication.Problem()), next: "outbox-relay setup --print"}
	}
	return nil
}

// position reads the relay's position; nil when it has none, or no tables yet.
func (m *slotMaker) position(ctx context.Context) (*store.PositionRow, error) {
	var version *migrations.VersionError
	err := migrations.Check(ctx, m.conn)
	if errors.As(err, &version) && version.Database == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := store.ReadReport(ctx, m.conn, m.cfg.Relay.Name, 0)
	if err != nil {
		return nil, err
	}
	return r.Position, nil
}

// create makes the slot, then moves the position to where it starts. If that
// fails the slot is dropped again: a slot ahead of the position stops the
// relay.
func (m *slotMaker) create(ctx context.Context, t cdc.Target, before *store.PositionRow) error {
	err := m.admin.CreateSlot(ctx, cdc.SlotOptions{Name: t.Slot, Failover: m.failover, Waiting: m.waiting})
	if err != nil {
		return err
	}
	facts, err := m.admin.Facts(ctx, t)
	if err == nil && facts.Slot == nil {
		err = fmt.Errorf("slot %q was dropped by somebody else just now", t.Slot)
	}
	if err == nil && before != nil {
		_, err = store.ResetPosition(ctx, m.conn, store.Reset{
			Relay: m.cfg.Relay.Name, Slot: t.Slot, SystemID: facts.SystemID, Timeline: facts.Timeline,
			Start: facts.Slot.ConfirmedLSN, Reason: "outbox-relay slot create --confirm",
		})
	}
	if err != nil {
		return errors.Join(err, m.admin.DropSlot(context.WithoutCancel(ctx), t.Slot))
	}
	return m.tell(facts, before)
}

// waiting says on standard error why the creation takes long.
func (m *slotMaker) waiting(blockers []cdc.Blocker) {
	for _, b := range blockers {
		fmt.Fprintf(m.app.err, "waiting for the transaction of process %d (user %s, application %q) to end; it has been open for %s\n",
			b.PID, b.User, b.ApplicationName, b.OpenFor.Round(1e9))
	}
}

func (m *slotMaker) tell(f *cdc.Facts, before *store.PositionRow) error {
	answer := created{document: newDocument(), Slot: newSlotDocument(f.Slot)}
	if before != nil {
		answer.SkippedLSN = &interval{From: before.Progress.LSN.String(), To: f.Slot.ConfirmedLSN.String()}
	}
	if m.app.format == formatJSON {
		return writeJSON(m.app.out, answer)
	}
	fmt.Fprintf(m.app.out, "created slot %s, which starts at %v\n", f.Slot.Name, f.Slot.ConfirmedLSN)
	if before != nil {
		fmt.Fprintf(m.app.out, "rows committed between %s and %s will not be streamed; look for those that still say READY\n", answer.SkippedLSN.From, answer.SkippedLSN.To)
	}
	return nil
}
