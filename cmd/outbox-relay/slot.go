package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
)

func (a *app) slotCommand() *cobra.Command {
	return group("slot", "list, show, create and drop replication slots",
		`List, show, create and drop replication slots. A slot keeps the server's log
until it is read: one that nobody reads fills the disk.`,
		a.slotListCommand(), a.slotShowCommand(), a.slotCreateCommand(), a.slotDropCommand())
}

// slotDocument is a slot as programs see it.
type slotDocument struct {
	Name               string     `json:"name"`
	Plugin             string     `json:"plugin"`
	Type               string     `json:"type"`
	Database           string     `json:"database"`
	Temporary          bool       `json:"temporary"`
	Failover           bool       `json:"failover"`
	Synced             bool       `json:"synced"`
	Active             bool       `json:"active"`
	ActivePID          uint32     `json:"active_pid"`
	InactiveSince      *time.Time `json:"inactive_since"`
	RestartLSN         string     `json:"restart_lsn"`
	ConfirmedLSN       string     `json:"confirmed_lsn"`
	RetainedBytes      int64      `json:"retained_bytes"`
	LagBytes           int64      `json:"lag_bytes"`
	WALStatus          string     `json:"wal_status"`
	SafeWALBytes       *int64     `json:"safe_wal_bytes"`
	Lost               bool       `json:"lost"`
	InvalidationReason string     `json:"invalidation_reason"`
}

func newSlotDocument(s *cdc.Slot) *slotDocument {
	if s == nil {
		return nil
	}
	d := &slotDocument{
		Name: s.Name, Plugin: s.Plugin, Type: s.Type, Database: s.Database, Temporary: s.Temporary, Failover: s.Failover, Synced: s.Synced,
		Active: s.Active, ActivePID: s.ActivePID, RestartLSN: s.RestartLSN.String(), ConfirmedLSN: s.ConfirmedLSN.String(),
		RetainedBytes: s.RetainedBytes, LagBytes: s.LagBytes, WALStatus: s.WALStatus, SafeWALBytes: s.SafeWALBytes,
		Lost: s.Lost(), InvalidationReason: s.InvalidationReason,
	}
	if !s.InactiveSince.IsZero() {
		at := s.InactiveSince.UTC()
		d.InactiveSince = &at
	}
	return d
}

func (a *app) slotListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "list all slots of the server, also those of other programs",
		Example: "  outbox-relay slot list\n  outbox-relay slot list -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAdmin(c.Context(), func(l *config.Loaded, admin *cdc.Admin) error {
				slots, err := admin.ListSlots(c.Context())
				if err != nil {
					return err
				}
				return a.printSlots(slots, l.Config.Slot.Name)
			})
		},
	}
}

func (a *app) printSlots(slots []cdc.Slot, ours string) error {
	if a.format == formatJSON {
		doc := struct {
			document
			Slots []*slotDocument `json:"slots"`
		}{newDocument(), []*slotDocument{}}
		for i := range slots {
			doc.Slots = append(doc.Slots, newSlotDocument(&slots[i]))
		}
		return writeJSON(a.out, doc)
	}
	t := table{head: []string{"NAME", "DATABASE", "PLUGIN", "ACTIVE", "LAG", "RETAINED", "WAL", "CONFIRMED"}}
	for _, s := range slots {
		name := s.Name
		if name == ours {
			name += " *"
		}
		t.row(name, orDash(s.Database), orDash(s.Plugin), yesNo(s.Active), bytesText(s.LagBytes), bytesText(s.RetainedBytes), walText(&s), s.ConfirmedLSN.String())
	}
	return t.write(a.out)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// walText says how well the server keeps the slot's log.
func walText(s *cdc.Slot) string {
	text := orDash(s.WALStatus)
	if s.InvalidationReason != "" {
		text += " (" + s.InvalidationReason + ")"
	}
	if s.SafeWALBytes != nil {
		text += ", " + bytesText(*s.SafeWALBytes) + " until lost"
	}
	return text
}

func (a *app) slotShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show [NAME]",
		Short:   "show one slot (without NAME: slot.name)",
		Example: "  outbox-relay slot show\n  outbox-relay slot show other_slot -o json",
		Args:    atMostOneName,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withAdmin(c.Context(), func(l *config.Loaded, admin *cdc.Admin) error {
				name := nameOr(args, l.Config.Slot.Name)
				slots, err := admin.ListSlots(c.Context())
				if err != nil {
					return err
				}
				i := slices.IndexFunc(slots, func(s cdc.Slot) bool { return s.Name == name })
				if i < 0 {
					return &failure{code: exitNothing, err: fmt.Errorf("there is no slot %q on this server", name), next: "outbox-relay slot create"}
				}
				return a.printSlot(&slots[i])
			})
		},
	}
}

func (a *app) printSlot(s *cdc.Slot) error {
	if a.format == formatJSON {
		return writeJSON(a.out, struct {
			document
			Slot *slotDocument `json:"slot"`
		}{newDocument(), newSlotDocument(s)})
	}
	t := table{}
	t.row("name", s.Name)
	t.row("database", orDash(s.Database))
	t.row("plugin", orDash(s.Plugin))
	t.row("active", activeText(s))
	t.row("failover", yesNo(s.Failover))
	t.row("confirmed", fmt.Sprintf("%v, %s behind the end of the log", s.ConfirmedLSN, bytesText(s.LagBytes)))
	t.row("keeps the log from", fmt.Sprintf("%v, %s", s.RestartLSN, bytesText(s.RetainedBytes)))
	t.row("wal status", walText(s))
	t.row("catalog xmin age", fmt.Sprintf("%d transactions", s.CatalogXminAge))
	return t.write(a.out)
}

func activeText(s *cdc.Slot) string {
	if s.Active {
		return fmt.Sprintf("yes, read by process %d", s.ActivePID)
	}
	if s.InactiveSince.IsZero() {
		return "no"
	}
	return "no, since " + s.InactiveSince.UTC().Format(time.RFC3339)
}

func atMostOneName(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%s takes one name, not %d", c.CommandPath(), len(args))
	}
	return nil
}

func nameOr(args []string, fallback string) string {
	if len(args) > 0 {
		return args[0]
	}
	return fallback
}

func (a *app) slotDropCommand() *cobra.Command {
	var confirm string
	c := &cobra.Command{
		Use:   "drop [NAME] --confirm NAME",
		Short: "drop a slot that nobody reads",
		Long: `Drop a slot that nobody reads (without NAME: slot.name). What was committed
since its confirmed position can then not be streamed any more. The name has to
be typed again after --confirm.`,
		Example: "  outbox-relay slot drop --confirm outbox_relay",
		Args:    atMostOneName,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withAdmin(c.Context(), func(l *config.Loaded, admin *cdc.Admin) error {
				return a.dropSlot(c, admin, dropRequest{name: nameOr(args, l.Config.Slot.Name), confirm: confirm})
			})
		},
	}
	c.Flags().StringVar(&confirm, "confirm", "", "the slot's name, typed again")
	return c
}

type dropRequest struct{ name, confirm string }

func (a *app) dropSlot(c *cobra.Command, admin *cdc.Admin, r dropRequest) error {
	slots, err := admin.ListSlots(c.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(slots, func(s cdc.Slot) bool { return s.Name == r.name })
	if i < 0 {
		return &failure{code: exitNothing, err: fmt.Errorf("there is no slot %q on this server", r.name)}
	}
	s := &slots[i]
	loss := fmt.Sprintf("rows committed after %v (%s of log) that were not published cannot be streamed any more", s.ConfirmedLSN, bytesText(s.LagBytes))
	if r.confirm != r.name {
		return &failure{code: exitUsage, err: fmt.Errorf("dropping slot %q needs its name again: %s", r.name, loss), next: "outbox-relay slot drop " + r.name + " --confirm " + r.name}
	}
	if s.Active {
		return &failure{code: exitBusy, err: fmt.Errorf("slot %q is read by process %d", r.name, s.ActivePID), hint: "stop the relay that reads it first"}
	}
	if err := admin.DropSlot(c.Context(), r.name); err != nil {
		return err
	}
	if a.format == formatJSON {
		return writeJSON(a.out, struct {
			document
			Dropped *slotDocument `json:"dropped"`
		}{newDocument(), newSlotDocument(s)})
	}
	_, err = fmt.Fprintf(a.out, "dropped slot %s; %s\n", r.name, loss)
	return err
}
