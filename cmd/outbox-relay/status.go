package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/store"
)

// maxTopicLines bounds the topics that status lists.
const maxTopicLines = 50

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show where the relay is, straight from Postgres",
		Long: `Show where the relay is: slot, lag, retained log, position, lines and statuses
still to be written. Everything is read from Postgres, so it works whether or
not the relay runs. It changes nothing.`,
		Example: "  outbox-relay status\n  outbox-relay status -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withAdmin(c.Context(), func(l *config.Loaded, admin *cdc.Admin) error {
				s, err := readStatus(c.Context(), l, admin)
				if err != nil {
					return err
				}
				if a.format == formatJSON {
					return writeJSON(a.out, s)
				}
				return s.table(a)
			})
		},
	}
}

// status is the answer of the command.
type status struct {
	document
	At          time.Time         `json:"at"` // the database's clock
	Relay       string            `json:"relay"`
	Server      serverStatus      `json:"server"`
	Slot        *slotDocument     `json:"slot"` // null: there is none
	Reader      *readerStatus     `json:"reader"`
	Publication publicationStatus `json:"publication"`
	Schema      schemaStatus      `json:"schema"`
	Position    *positionStatus   `json:"position"` // null: the relay never started
	Lines       []lineStatus      `json:"lines"`    // by topic, the largest first, at most 50
	Pending     int64             `json:"pending_statuses"`

	slot *cdc.Slot
}

type serverStatus struct {
	Version  int    `json:"version"`
	Standby  bool   `json:"standby"`
	SystemID string `json:"system_id"`
	Timeline uint32 `json:"timeline"`
	Database string `json:"database"`
	FlushLSN string `json:"flush_lsn"`
}

// readerStatus is the server process that feeds whoever reads the slot.
type readerStatus struct {
	PID             uint32    `json:"pid"`
	User            string    `json:"user"`
	ApplicationName string    `json:"application_name"`
	Started         time.Time `json:"started"`
	WaitsForStandby bool      `json:"waits_for_standby"`
}

type publicationStatus struct {
	Name    string `json:"name"`
	Problem string `json:"problem"` // "": whole
}

type schemaStatus struct {
	Version int `json:"version"` // 0: no tables yet
	Needs   int `json:"needs"`
}

type positionStatus struct {
	LSN         string     `json:"lsn"`
	Timeline    uint32     `json:"timeline"`
	BehindBytes int64      `json:"behind_bytes"` // of the end of the log; -1 on another timeline
	UpdatedAt   time.Time  `json:"updated_at"`
	StoppedAt   *time.Time `json:"stopped_at"`
	StoppedWhy  string     `json:"stopped_why"`
}

type lineStatus struct {
	Topic  string    `json:"topic"`
	Lines  int64     `json:"lines"`
	Events int64     `json:"events"`
	Parked int64     `json:"parked"`
	Held   int64     `json:"held"`
	Oldest time.Time `json:"oldest"`
}

// readStatus asks the catalog, then the relay's own tables where they exist.
func readStatus(ctx context.Context, l *config.Loaded, admin *cdc.Admin) (*status, error) {
	t, err := target(&l.Config)
	if err != nil {
		return nil, err
	}
	facts, err := admin.Facts(ctx, t)
	if err != nil {
		return nil, err
	}
	conn, err := queryConn(l)
	if err != nil {
		return nil, err
	}
	s := newStatus(l, facts)
	if s.Schema.Version, err = schemaVersion(ctx, conn); err != nil || s.Schema.Version == 0 {
		return s, err
	}
	report, err := store.ReadReport(ctx, conn, l.Config.Relay.Name, maxTopicLines)
	if err != nil {
		return nil, err
	}
	s.add(report, facts)
	return s, nil
}

// schemaVersion is 0 when there are no tables.
func schemaVersion(ctx context.Context, conn *pgx.ConnConfig) (int, error) {
	var version *migrations.VersionError
	err := migrations.Check(ctx, conn)
	if errors.As(err, &version) {
		return version.Database, nil
	}
	return migrations.Version(), err
}

func newStatus(l *config.Loaded, f *cdc.Facts) *status {
	s := &status{
		document: newDocument(), At: f.At.UTC(), Relay: l.Config.Relay.Name,
		Server: serverStatus{f.ServerVersion, f.InRecovery, f.SystemID, f.Timeline, f.Database, f.FlushLSN.String()},
		Slot:   newSlotDocument(f.Slot), slot: f.Slot,
		Publication: publicationStatus{l.Config.Publication.Name, f.Publication.Problem()},
		Schema:      schemaStatus{Needs: migrations.Version()},
		Lines:       []lineStatus{},
	}
	if w := f.Walsender; w != nil {
		s.Reader = &readerStatus{w.PID, w.User, w.ApplicationName, w.Started.UTC(), w.WaitsForStandby()}
	}
	return s
}

func (s *status) add(r store.Report, f *cdc.Facts) {
	s.Pending = r.Pending
	for _, l := range r.Lines {
		s.Lines = append(s.Lines, lineStatus{l.Topic, l.Lines, l.Events, l.Parked, l.Held, l.Oldest.UTC()})
	}
	if r.Position == nil {
		return
	}
	p := r.Position
	s.Position = &positionStatus{
		LSN: p.Progress.LSN.String(), Timeline: p.Progress.Timeline, BehindBytes: -1, UpdatedAt: p.UpdatedAt.UTC(),
		StoppedAt: p.StoppedAt, StoppedWhy: p.StoppedWhy,
	}
	if p.Progress.Timeline == f.Timeline {
		s.Position.BehindBytes = max(0, int64(f.FlushLSN)-int64(p.Progress.LSN))
	}
}

// table prints the status for people: one fact a line, then the lines.
func (s *status) table(a *app) error {
	t := table{}
	t.row("relay", s.Relay)
	t.row("server", s.Server.text())
	t.row("slot", s.slotText())
	if s.Slot != nil {
		t.row("lag", fmt.Sprintf("%s behind the end of the log (confirmed %s)", bytesText(s.Slot.LagBytes), s.Slot.ConfirmedLSN))
		t.row("retained log", fmt.Sprintf("%s, %s", bytesText(s.Slot.RetainedBytes), walText(s.slot)))
	}
	t.row("publication", s.Publication.text())
	t.row("schema", s.Schema.text())
	t.row("position", s.positionText())
	if s.Position != nil && s.Position.StoppedAt != nil {
		t.row("stopped", fmt.Sprintf("since %s: %s", s.Position.StoppedAt.UTC().Format(time.RFC3339), s.Position.StoppedWhy))
	}
	t.row("pending statuses", fmt.Sprint(s.Pending))
	if len(s.Lines) == 0 {
		t.row("lines", "none: nothing waits")
		return t.write(a.out)
	}
	if err := t.write(a.out); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	lines := table{head: []string{"TOPIC", "LINES", "EVENTS", "PARKED", "HELD KEYS", "OLDEST"}}
	for _, l := range s.Lines {
		lines.row(fmt.Sprintf("%q", l.Topic), fmt.Sprint(l.Lines), fmt.Sprint(l.Events), fmt.Sprint(l.Parked), fmt.Sprint(l.Held), agoText(s.At, l.Oldest))
	}
	return lines.write(a.out)
}

func (s serverStatus) text() string {
	role := "primary"
	if s.Standby {
		role = "standby"
	}
	return fmt.Sprintf("PostgreSQL %d.%d, %s, database %s, timeline %d, end of the log %s", s.Version/10000, s.Version%10000, role, s.Database, s.Timeline, s.FlushLSN)
}

func (s *status) slotText() string {
	switch {
	case s.Slot == nil:
		return "there is none: outbox-relay slot create"
	case s.Slot.Lost:
		return s.Slot.Name + ", LOST: its log is gone"
	case s.Reader != nil && s.Reader.WaitsForStandby:
		return fmt.Sprintf("%s, read by process %d, held back for a standby in synchronized_standby_slots", s.Slot.Name, s.Slot.ActivePID)
	default:
		return s.Slot.Name + ", active: " + activeText(s.slot)
	}
}

func (p publicationStatus) text() string {
	if p.Problem == "" {
		return p.Name + ", whole"
	}
	return p.Name + ": " + p.Problem + ": outbox-relay setup --print"
}

func (s schemaStatus) text() string {
	switch {
	case s.Version == 0:
		return "no tables yet: outbox-relay migrate up"
	case s.Version < s.Needs:
		return fmt.Sprintf("version %d, this program needs %d: outbox-relay migrate up", s.Version, s.Needs)
	case s.Version > s.Needs:
		return fmt.Sprintf("version %d, newer than this program (%d)", s.Version, s.Needs)
	default:
		return fmt.Sprintf("version %d", s.Version)
	}
}

func (s *status) positionText() string {
	p := s.Position
	switch {
	case p == nil:
		return "none: the relay never started"
	case p.BehindBytes < 0:
		return fmt.Sprintf("%s on timeline %d, the server is on %d", p.LSN, p.Timeline, s.Server.Timeline)
	default:
		return fmt.Sprintf("%s, %s behind the end of the log, written %s", p.LSN, bytesText(p.BehindBytes), agoText(s.At, p.UpdatedAt))
	}
}
