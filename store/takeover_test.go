package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/store"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: the first takeover makes the row at its start, a later one keeps what
// is stored, and Position tells it without taking over.
func TestFirstTakeOverMakesTheRow(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.open()
	if _, found, err := st.Position(t.Context()); found || err != nil {
		t.Fatalf("position before the first start: %v, %v", found, err)
	}
	owned := s.takeOver(st)
	if owned.Progress != progress(100) || owned.Reached != 0 || owned.StoppedAt != nil || len(owned.Waiting) != 0 {
		t.Errorf("first takeover %+v", owned)
	}
	if _, err := st.Settle(t.Context(), store.Batch{Progress: outbox.Progress{Timeline: 1, LSN: 300, NextCommit: 400, NextIndex: 7}}); err != nil {
		t.Fatal(err)
	}
	before, _, _ := st.Position(t.Context())
	if got := s.takeOver(st).Progress; got != (outbox.Progress{Timeline: 1, LSN: 300, NextCommit: 400, NextIndex: 7}) {
		t.Errorf("second takeover %+v", got)
	}
	after, found, err := st.Position(t.Context())
	if err != nil || !found || after.Session == before.Session || after.SystemID != systemID || after.Slot != "outbox_relay" {
		t.Errorf("position %+v, %v, %v", after, found, err)
	}
}

// Law: a row of another cluster, another slot or a later timeline is never
// adopted, says so with a hint, and stays as it is. A newer timeline of the
// same cluster is stored.
func TestForeignRowIsNotAdopted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	st := s.session()
	if _, err := st.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 3}); err != nil {
		t.Fatal(err)
	}
	before := s.db.Query1(t, `select p::text from outbox_relay.position p`)
	other := s.config()
	other.Slot = "another"
	otherSlot, err := store.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer otherSlot.Close(t.Context())
	for field, try := range map[string]func() error{
		"system identifier": func() error {
			_, err := st.TakeOver(t.Context(), store.Takeover{SystemID: "1", Timeline: 3})
			return err
		},
		"slot": func() error {
			_, err := otherSlot.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 3})
			return err
		},
		"timeline": func() error {
			_, err := st.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 2})
			return err
		},
	} {
		var mismatch *store.MismatchError
		if err := try(); !errors.As(err, &mismatch) || mismatch.Field != field || !strings.Contains(err.Error(), mismatch.Hint()) {
			t.Errorf("%s: %v", field, err)
		}
	}
	s.want(before, `select p::text from outbox_relay.position p`)
	if _, err := st.Settle(t.Context(), store.Batch{Progress: outbox.Progress{Timeline: 3, LSN: 900}}); err != nil {
		t.Errorf("the owner after others were refused: %v", err)
	}
}

// Law: a takeover waits for the old session's transaction to end before it
// reads, the settler's and those that hold the row FOR KEY SHARE alike, so
// what it reads cannot change behind it.
func TestTakeOverWaitsForTheOldSession(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{`update outbox_relay.position set updated_at = now()`, `select from outbox_relay.position for key share`} {
		s := newScene(t)
		s.lockTimeout = 30 * time.Second
		s.session()
		old := s.db.Conn(t)
		mustExec(t, old, `begin`)
		mustExec(t, old, lock)
		mustExec(t, old, `with l as (insert into outbox_relay.line (relay, topic, order_key, order_hash, holds, parked_at, since)
				values ('default', 't', 'k', '\x01', true, now(), now()) returning id)
			insert into outbox_relay.line_event (line_id, relay, row_key, reason, record, added_at) select id, 'default', '["1"]', 'orphan', '', now() from l`)
		st := s.open()
		type result struct {
			owned store.Owned
			err   error
		}
		taken := make(chan result, 1)
		go func() {
			owned, err := st.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 1})
			taken <- result{owned, err}
		}()
		s.waitFor(`select count(*) = 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`)
		mustExec(t, old, `commit`)
		if r := <-taken; r.err != nil || len(r.owned.Held) != 1 {
			t.Errorf("%s: took over %+v, %v, want the line of the old session", lock, r.owned, r.err)
		}
	}
}

// waitFor polls until a condition holds.
func (s *scene) waitFor(condition string) {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for s.db.Query1(s.t, condition) != "t" {
		if time.Now().After(deadline) {
			s.t.Fatalf("never true: %s", condition)
		}
	}
}

// Law: after a promotion nothing of the row is lost: progress, reached, lines
// and pending statuses are there under the new timeline, and the demoted
// timeline's session cannot come back.
// Case F5 of docs/guarantees.md.
func TestTakeOverAfterPromotion(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{})
	s := sceneIn(t, p.CreateDatabase(t))
	st := s.session()
	e := s.insert(3, 200)
	s.settle(st, 250, append(s.acked(e[0]), s.refused(e[1], "x"))...)
	standby := p.Standby(t, harness.StandbyOptions{})
	after := &scene{t: t, db: s.db.On(standby), table: s.table, mode: s.mode, log: s.log, lockTimeout: s.lockTimeout}
	after.waitFor(`select count(*) = 1 from outbox_relay.line_event`)
	onStandby := after.open()
	if _, err := onStandby.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 1}); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("takeover on a standby: %v, want ErrReadOnly", err)
	}
	p.Stop(t, "immediate")
	standby.Promote(t)
	promoted := after.open()
	owned, err := promoted.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := outbox.Progress{Timeline: 2, LSN: 250}
	if owned.Progress != want || owned.Reached != 200 || len(owned.Held) != 1 || owned.Held[0].ID != e[1].Position {
		t.Errorf("owned %+v", owned)
	}
	if _, err := promoted.TakeOver(t.Context(), store.Takeover{SystemID: systemID, Timeline: 1}); err == nil {
		t.Error("the old timeline was adopted")
	}
}

// Law: the role's and the database's settings change nothing: texts, time-outs
// and durability are pinned, the search path is not trusted.
// Cases F12, F22 of docs/guarantees.md.
func TestSettingsArePinned(t *testing.T) {
	t.Parallel()
	for _, major := range []int{14, 18} {
		t.Run(map[int]string{14: "14", 18: "18"}[major], func(t *testing.T) {
			t.Parallel()
			s := newSceneOn(t, major)
			s.lockTimeout = 30 * time.Second
			settings := map[string]string{"statement_timeout": "'500ms'", "lock_timeout": "'1ms'", "datestyle": "'German, DMY'", "timezone": "'America/New_York'",
				"bytea_output": "'escape'", "client_encoding": "'LATIN1'", "search_path": "'evil'", "synchronous_commit": "off", "default_transaction_isolation": "serializable",
				"idle_in_transaction_session_timeout": "'500ms'"}
			if major >= 17 {
				settings["transaction_timeout"] = "'500ms'"
			}
			// Names that an unqualified statement would meet first.
			s.db.Exec(t, `create schema evil; create function evil.now() returns timestamptz language sql as 'select timestamptz ''1999-01-01''';
				create table evil.position (relay text)`)
			for name, value := range settings {
				s.db.Exec(t, `alter database `+s.db.Name()+` set `+name+` = `+value)
			}
			st := s.session()
			e := eventsOf(s)
			// A lock for longer than the database's time-outs allow.
			holder := s.db.Conn(t)
			mustExec(t, holder, `set statement_timeout = 0; set idle_in_transaction_session_timeout = 0; set lock_timeout = 0`)
			if major >= 17 {
				mustExec(t, holder, `set transaction_timeout = 0`)
			}
			mustExec(t, holder, `begin; update outbox_relay.position set slot = slot`)
			batch := store.Batch{Progress: progress(300), Outcomes: append(s.acked(e[0]), s.refused(e[1], "é"))}
			failed := make(chan error, 1)
			go func() {
				_, err := st.Settle(t.Context(), batch)
				failed <- err
			}()
			s.waitFor(`select count(*) = 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
				and state_change < clock_timestamp() - interval '1 second'`)
			mustExec(t, holder, `commit`)
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			s.want("2:1 3:1", statuses)
			conn := s.db.Conn(t)
			var ours bool
			if err := conn.QueryRow(t.Context(), `select sent_at > '2020-01-01' from public.outbox where id = 1`).Scan(&ours); err != nil || !ours {
				t.Errorf("sent_at is not the database's time: %v, %v", ours, err)
			}
		})
	}
}

func newSceneOn(t *testing.T, major int) *scene {
	t.Helper()
	s := sceneIn(t, harness.SharedPostgres(t, major).CreateDatabase(t))
	s.insert(2, 200)
	return s
}

// eventsOf gives the events of the rows that are there.
func eventsOf(s *scene) []*outbox.Event {
	s.t.Helper()
	rows, err := s.db.Conn(s.t).Query(s.t.Context(), `select id::text, event_id::text from public.outbox order by id`)
	if err != nil {
		s.t.Fatal(err)
	}
	var events []*outbox.Event
	var id, eventID string
	if _, err := pgx.ForEachRow(rows, []any{&id, &eventID}, func() error {
		events = append(events, event(200, len(events), eventID, id))
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return events
}
