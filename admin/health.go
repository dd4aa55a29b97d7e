package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Health is what the listener asks. Its methods are called from any goroutine
// at any time; they answer from memory at once.
type Health interface {
	// Live says what is stuck, nil when nothing is. It must not look at
	// Postgres or Kafka.
	Live() error
	// Ready says whether the relay streams, or could take over at once.
	Ready() Readiness
}

// Readiness is one answer to "is it ready?".
type Readiness struct {
	Ready bool
	// State is the relay's state in one word, such as streaming or standby.
	State string
	// Reason says in plain words why it is not ready, or what holds it
	// although it is; "" when all is well.
	Reason string
	// Lag is the age of the oldest event that is not yet acknowledged; 0 when
	// there is none.
	Lag        time.Duration
	Components []Component
}

// Component is one part of the relay.
type Component struct {
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`
}

// schemaVersion counts the forms of the JSON answers. Members are added
// without a new number; a number changes when a member changes its meaning.
const schemaVersion = 1

type verboseLive struct {
	SchemaVersion int    `json:"schema_version"`
	Live          bool   `json:"live"`
	Reason        string `json:"reason,omitempty"`
}

type verboseReady struct {
	SchemaVersion int         `json:"schema_version"`
	Ready         bool        `json:"ready"`
	State         string      `json:"state"`
	Reason        string      `json:"reason,omitempty"`
	LagSeconds    float64     `json:"lag_seconds"`
	Components    []Component `json:"components"`
}

func (s *Server) livez(w http.ResponseWriter, r *http.Request) {
	err := s.cfg.Health.Live()
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if r.URL.Query().Has("verbose") {
		writeJSON(w, status(err == nil), verboseLive{schemaVersion, err == nil, reason})
		return
	}
	writeText(w, status(err == nil), orOK(reason))
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	answer := s.cfg.Health.Ready()
	if text := query.Get("lag"); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil || limit < 0 {
			writeText(w, http.StatusBadRequest, "lag: want a duration such as 30s")
			return
		}
		answer = answer.within(limit)
	}
	if query.Has("verbose") {
		if answer.Components == nil {
			answer.Components = []Component{}
		}
		writeJSON(w, status(answer.Ready), verboseReady{
			schemaVersion, answer.Ready, answer.State, answer.Reason, answer.Lag.Seconds(), answer.Components,
		})
		return
	}
	text := answer.State
	if answer.Reason != "" {
		text += ": " + answer.Reason
	}
	writeText(w, status(answer.Ready), text)
}

// within is not ready when the lag is above limit.
func (r Readiness) within(limit time.Duration) Readiness {
	if r.Ready && r.Lag > limit {
		r.Ready = false
		r.Reason = fmt.Sprintf("the oldest event that is not acknowledged is %v old; the limit asked for is %v", r.Lag.Round(time.Millisecond), limit)
	}
	return r
}

func status(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func orOK(reason string) string {
	if reason == "" {
		return "ok"
	}
	return reason
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // a client that went away is no concern of ours
}

func writeJSON(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(document) // as above
}
