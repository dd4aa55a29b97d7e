package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// reached is how far this process has settled, whatever became of the position
// row: that one goes back with its database.
type reached struct {
	systemID string
	progress outbox.Progress
}

// RewoundError reports a server whose log ends before the position row: it
// was restored to an earlier state, and the row was not.
type RewoundError struct {
	End      outbox.LSN // of the server's log
	Progress outbox.Progress
}

// Error gives both positions and what going on would mean.
func (e *RewoundError) Error() string {
	return fmt.Sprintf("the server's log ends at %v, but this relay has settled up to %v: the server was rewound to an earlier state, "+
		"and rows committed between %v and %v would be taken for known", e.End, e.Progress.LSN, e.End, e.Progress.LSN)
}

// checkEnd compares the position row with the end of the server's log, read
// after the row: another relay may be at work. The server itself starts a
// stream wherever it is told, in silence, and would skip what commits up to
// there.
func (s *session) checkEnd(ctx context.Context, row outbox.Progress) error {
	f, err := s.slotFacts(ctx)
	if err != nil {
		return err
	}
	s.reportOrphans(f)
	if f.Timeline != row.Timeline || f.FlushLSN >= row.LSN {
		return nil
	}
	return &RewoundError{End: f.FlushLSN, Progress: row}
}

// reportOrphans says, once, that records were published whose rows are in no
// database any more: the server that took over, or came back, was behind. The
// stream goes on all the same. What the new server has is published from its
// own position row, and nothing of it is lost.
func (s *session) reportOrphans(f *cdc.Facts) {
	last := s.r.reached
	s.r.reached = nil
	if last == nil || last.systemID != s.stream.Identity().SystemID {
		return
	}
	end := f.FlushLSN
	if last.progress.Timeline != f.Timeline {
		var diverged *DivergedError
		if _, err := checkFork(last.progress, s.own.history); !errors.As(err, &diverged) {
			return
		}
		end = diverged.Fork
	} else if end >= last.progress.LSN {
		return
	}
	s.r.log.Error().Uint32("old_timeline", last.progress.Timeline).Uint32("timeline", f.Timeline).
		Stringer("from", end).Stringer("to", last.progress.LSN).
		Msg("the server went back behind what this relay has published: the records of that interval are in no database any more")
}
