package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// watch asks server and relay how they are, beside the picture, so that a slow
// answer does not stop it. Its methods are safe for concurrent use.
type watch struct {
	db    *database
	relay *relay
	http  http.Client

	mu   sync.Mutex
	seen sight
}

// sight is what was last seen.
type sight struct {
	Ready     bool       // /readyz says so
	State     string     // the relay's own word, "" when it does not answer
	SlotLag   int64      // bytes between the log's end and the confirmed position; negative: unknown
	Confirmed outbox.LSN // 0: unknown
}

func newWatch(db *database, r *relay) *watch {
	return &watch{db: db, relay: r, http: http.Client{Timeout: time.Second}, seen: sight{SlotLag: -1}}
}

// Run looks four times a second until ctx ends.
func (w *watch) Run(ctx context.Context) error {
	defer w.http.CloseIdleConnections()
	conn, err := w.db.Connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := w.look(ctx, conn); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *watch) look(ctx context.Context, conn *pgx.Conn) error {
	next := sight{SlotLag: -1}
	next.Ready, next.State = w.probe(ctx)
	var confirmed *string
	var lag *int64
	// One statement: two would compare two moments.
	err := conn.QueryRow(ctx, `select confirmed_flush_lsn::text, (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint
		from (select 1) as one left join pg_replication_slots on slot_name = $1`, w.db.name).Scan(&confirmed, &lag)
	if err != nil {
		return fmt.Errorf("asking for the slot's position: %w", err)
	}
	if confirmed != nil && lag != nil {
		if next.Confirmed, err = outbox.ParseLSN(*confirmed); err != nil {
			return fmt.Errorf("asking for the slot's position: %w", err)
		}
		next.SlotLag = max(0, *lag)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = next
	return nil
}

// Ready asks the relay now, and keeps the answer for Seen.
func (w *watch) Ready(ctx context.Context) bool {
	ready, state := w.probe(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.Ready, w.seen.State = ready, state
	return ready
}

// Seen is what was last seen.
func (w *watch) Seen() sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

var stateLine = regexp.MustCompile(`(?m)^outbox_relay_state\{[^}]*state="([a-z_]+)"[^}]*\} 1$`)

// probe asks the relay's listener.
func (w *watch) probe(ctx context.Context) (ready bool, state string) {
	if w.relay.Pid() == 0 {
		return false, ""
	}
	code, _ := w.get(ctx, "/readyz")
	_, metrics := w.get(ctx, "/metrics")
	if m := stateLine.FindStringSubmatch(metrics); m != nil {
		state = m[1]
	}
	return code == http.StatusOK, state
}

// get gives code 0 when there is no answer.
func (w *watch) get(ctx context.Context, path string) (code int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.relay.probes+path, nil)
	if err != nil {
		return 0, ""
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(text)
}
