package cdc

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/rs/zerolog"
)

// Blockage says that the server holds the stream back until a standby named
// in synchronized_standby_slots has caught up.
type Blockage struct {
	Standby string // the standby's physical slot, as the server names it
	Message string // the server's words
	Since   time.Time
}

const (
	// noticeEvery is how often the same notice is logged.
	noticeEvery = 30 * time.Second
	// noticeKinds bounds what is remembered for that; beyond it all others
	// share one allowance.
	noticeKinds = 16
)

// notices judges what the server says beside the data. Notices arrive in
// order with it.
type notices struct {
	log         zerolog.Logger
	publication string
	isBlocked   bool
	blocked     Blockage
	blockedAt   outbox.LSN // progress beyond it lifts the blockage
	logged      map[string]time.Time
}

// take judges one NoticeResponse; at is how far the stream has come. An error
// ends the stream.
func (n *notices) take(body []byte, at outbox.LSN) error {
	var msg pgproto3.NoticeResponse
	if err := msg.Decode(body); err != nil {
		return &EndError{Reason: "protocol", Err: fmt.Errorf("decoding a notice: %w", err)}
	}
	switch {
	case isSkippedPublication(&msg):
		return &PublicationError{Publication: quoted(msg.Message, n.publication), Message: msg.Message}
	case isStandbyWait(&msg):
		if !n.isBlocked {
			n.blocked.Since = time.Now()
		}
		n.isBlocked, n.blockedAt = true, at
		n.blocked.Standby, n.blocked.Message = quoted(msg.Message, ""), msg.Message
	}
	n.write(&msg)
	return nil
}

// isSkippedPublication recognises the warning by which PostgreSQL 18 says
// that it decodes nothing. The routine's name is not translated.
func isSkippedPublication(m *pgproto3.NoticeResponse) bool {
	return m.Code == codeNotInPrerequisiteState &&
		(m.Routine == "LoadPublications" || strings.Contains(m.Message, "skipped loading publication"))
}

// isStandbyWait recognises the warnings about synchronized_standby_slots.
func isStandbyWait(m *pgproto3.NoticeResponse) bool {
	return m.Routine == "StandbySlotsHaveCaughtup" || strings.Contains(m.Message, "synchronized_standby_slots")
}

// quoted returns what stands in double quotes in a server message.
func quoted(message, otherwise string) string {
	_, rest, ok := strings.Cut(message, `"`)
	if !ok {
		return otherwise
	}
	name, _, ok := strings.Cut(rest, `"`)
	if !ok {
		return otherwise
	}
	return name
}

// progress lifts a blockage once the stream moves beyond where it stood.
func (n *notices) progress(at outbox.LSN) {
	if n.isBlocked && at > n.blockedAt {
		n.isBlocked = false
		n.log.Info().Str("standby", n.blocked.Standby).Dur("blocked", time.Since(n.blocked.Since)).
			Msg("the standby caught up, the stream goes on")
	}
}

// write logs the notice: each kind at once, then at most every 30 s.
func (n *notices) write(m *pgproto3.NoticeResponse) {
	key := m.Code + m.Message
	if _, known := n.logged[key]; !known && len(n.logged) >= noticeKinds {
		key = ""
	}
	if last, ok := n.logged[key]; ok && time.Since(last) < noticeEvery {
		return
	}
	if n.logged == nil {
		n.logged = map[string]time.Time{}
	}
	n.logged[key] = time.Now()
	n.log.Warn().Str("severity", m.SeverityUnlocalized).Str("sqlstate", m.Code).Str("notice", m.Message).
		Str("detail", m.Detail).Str("server_hint", m.Hint).Msg("the server sent a notice on the stream")
}
