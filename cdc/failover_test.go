package cdc

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: a standby is recognised and refused on every version; after its
// promotion the history names the fork, Facts name the new timeline, and the
// flush position is the living one, not the last replayed (F59, F62).
func TestStandbyAndPromotion(t *testing.T) {
	t.Parallel()
	for _, major := range []int{14, 15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			primary := harness.StartPostgres(t, harness.PostgresOptions{Major: major})
			b := newBench(t, primary)
			standby := primary.Standby(t, harness.StandbyOptions{})
			standby.WaitFor(t, primary)
			replica := &bench{Database: b.On(standby), slot: b.slot, publication: b.publication}

			admin := openAdmin(t, replica.DSN())
			o := PreflightOptions{Target: b.target(), Mapping: decode.Mapping{ID: "id", Payload: "payload"}, AllowMissingSlot: true}
			findings, _, err := admin.Preflight(t.Context(), o)
			if err != nil || errorCodes(findings) != "server.in_recovery" {
				t.Errorf("on the standby: %s, %v", errorCodes(findings), err)
			}
			if major < 16 { // later ones decode on a standby too
				if err := admin.CreateSlot(t.Context(), SlotOptions{Name: "on_standby"}); err == nil || Classify(err).Class != ClassWrongNode {
					t.Errorf("a slot on the standby: %v of class %v", err, Classify(err).Class)
				}
			}
			facts, err := admin.Facts(t.Context(), b.target())
			if err != nil || !facts.InRecovery || facts.Timeline != 0 || facts.FlushLSN == 0 {
				t.Errorf("facts of the standby: %+v, %v", facts, err)
			}

			old := open(t, streamConfigOf(t, b.DSN())).Identity()
			standby.Promote(t)
			before := replica.lsn(t, "select pg_current_wal_flush_lsn()")
			s := open(t, streamConfigOf(t, replica.DSN()))
			if id := s.Identity(); id.SystemID != old.SystemID || id.Timeline != 2 {
				t.Errorf("after the promotion: %+v, before: %+v", id, old)
			}
			forks, err := s.TimelineHistory(t.Context(), 2)
			if err != nil || len(forks) != 1 || forks[0].Timeline != 1 || forks[0].SwitchLSN == 0 || forks[0].SwitchLSN > before {
				t.Errorf("history: %v, %v; the log was at %v", forks, err, before)
			}
			replica.Exec(t, "insert into outbox (payload) select repeat('x', 100) from generate_series(1, 10000)")
			now := replica.lsn(t, "select pg_current_wal_flush_lsn()")
			if facts, err = openAdmin(t, replica.DSN()).Facts(t.Context(), b.target()); err != nil || facts.InRecovery || facts.Timeline != 2 || facts.FlushLSN < now {
				t.Errorf("facts after the promotion: %+v, %v; the log is at %v", facts, err, now)
			}
			o.Remembered = &Remembered{SystemID: old.SystemID, Progress: outbox.Progress{Timeline: 1, LSN: old.WALEnd}}
			if findings, _, err = openAdmin(t, replica.DSN()).Preflight(t.Context(), o); err != nil || !hasCode(findings, "identity.timeline") || errorCodes(findings) != "" {
				t.Errorf("preflight after the promotion: %+v, %v", findings, err)
			}
		})
	}
}

// Law: a walsender that commits would wait for is found, also by a role from
// which the server hides its state.
func TestSynchronousStandbyIsSeen(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{Major: 15})
	b := newBench(t, p)
	p.CreateRole(t, "relay", "", "REPLICATION")
	dsn := p.DSNAs(b.Name(), "relay", "")
	set := func(names string) {
		b.Exec(t, "alter system set synchronous_standby_names = '"+names+"'")
		b.Exec(t, "select pg_reload_conf()")
		eventually(t, "the setting is in force", func() bool { return b.Query1(t, "show synchronous_standby_names") == names })
	}
	t.Cleanup(func() { set("") }) // or dropping the database waits for us
	check := func(when string, dsn string, want bool) {
		t.Helper()
		f, err := openAdmin(t, dsn).Facts(t.Context(), b.target())
		if err != nil || f.Synchronous != want {
			t.Errorf("%s: synchronous %v, want %v; walsender %+v, %v", when, f.Synchronous, want, f.Walsender, err)
		}
	}
	for names, want := range map[string]bool{"*": true, "FIRST 1 (other)": false, "ANY 1 (other, outbox_relay)": true} {
		set(names)
		check(names+", not running", dsn, want)
	}
	set("*")
	s := b.start(t, streamConfigOf(t, dsn))
	check("running, nothing confirmed yet", b.DSN(), true)
	if err := s.Confirm(keepaliveAt(t, s, 1).WALEnd, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server calls it synchronous", func() bool {
		return b.Query1(t, "select sync_state from pg_stat_replication where pid = $1", int32(s.Identity().BackendPID)) == "sync"
	})
	check("running, hidden", dsn, true)
	check("running, seen", b.DSN(), true)
	findings, _, err := openAdmin(t, dsn).Preflight(t.Context(), PreflightOptions{Target: b.target(), Mapping: decode.Mapping{ID: "id", Payload: "payload"}, AllowBusySlot: true})
	if err != nil || errorCodes(findings) != "server.synchronous_standby" {
		t.Errorf("preflight: %s, %v", errorCodes(findings), err)
	}
	set("")
	eventually(t, "the server calls it asynchronous", func() bool {
		return b.Query1(t, "select sync_state from pg_stat_replication where pid = $1", int32(s.Identity().BackendPID)) == "async"
	})
	check("no longer", dsn, false)
}

// Law: when the server holds the stream back for a standby, it shows at once
// which one, the facts agree, keepalives go on, and it ends with the rows.
func TestBlockedByAStandby(t *testing.T) {
	t.Parallel()
	for _, major := range []int{17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, harness.StartPostgres(t, harness.PostgresOptions{Major: major, Settings: map[string]string{"synchronized_standby_slots": "sb1"}}))
			b.Exec(t, "select pg_create_physical_replication_slot('sb1', true)")
			b.Exec(t, "select pg_drop_replication_slot($1)", b.slot)
			admin := openAdmin(t, b.DSN())
			if err := admin.CreateSlot(t.Context(), SlotOptions{Name: b.slot, Failover: true}); err != nil {
				t.Fatal(err)
			}
			s := b.stream(t)
			b.insert(t, "held back")
			var blockage Blockage
			for end := time.Now().Add(20 * time.Second); ; {
				f, err := s.Next(time.Now().Add(100 * time.Millisecond))
				if err != nil || f.Kind == FrameData || time.Now().After(end) {
					t.Fatalf("got %+v, %v before the notice", f, err)
				}
				blocked := false
				if blockage, blocked = s.Blocked(); blocked {
					break
				}
			}
			if blockage.Standby != "sb1" {
				t.Errorf("blocked by %+v", blockage)
			}
			eventually(t, "the facts say so", func() bool {
				f, err := admin.Facts(t.Context(), b.target())
				return err == nil && f.Walsender.WaitsForStandby()
			})
			findings, _, err := admin.Preflight(t.Context(), PreflightOptions{Target: b.target(), Mapping: decode.Mapping{ID: "id", Payload: "payload"}, AllowBusySlot: true})
			if err != nil || errorCodes(findings) != "" || !hasCode(findings, "server.synchronized_standby_slots") {
				t.Errorf("preflight: %+v, %v", findings, err)
			}
			b.Exec(t, "alter system reset synchronized_standby_slots")
			b.Exec(t, "alter system set synchronized_standby_slots = ''")
			b.Exec(t, "select pg_reload_conf()")
			if got := next(t, s).payloads; !slices.Equal(got, []string{"held back"}) {
				t.Errorf("then came %q", got)
			}
			if blockage, blocked := s.Blocked(); blocked {
				t.Errorf("still blocked by %+v", blockage)
			}
		})
	}
}

// Law: a crash of the server ends the stream as retry, and after it the same
// position works again.
func TestServerCrash(t *testing.T) {
	t.Parallel()
	p := harness.StartPostgres(t, harness.PostgresOptions{Major: 15, Durable: true})
	b := newBench(t, p)
	b.insert(t, "one")
	s := b.stream(t)
	end := next(t, s).commit.EndLSN
	p.Crash(t)
	_, err := tryNext(s, time.Now().Add(20*time.Second))
	if c := Classify(err).Class; c != ClassRetry && c != ClassServerStopping {
		t.Errorf("the crash gave %v of class %v", err, c)
	}
	_, err = Open(t.Context(), streamConfigOf(t, b.DSN()))
	if err == nil || Classify(err).Class != ClassRetry {
		t.Errorf("while it is down: %v", err)
	}
	p.Start(t)
	b.insert(t, "two")
	s = open(t, streamConfigOf(t, b.DSN()))
	if err := s.Start(t.Context(), StartOptions{Slot: b.slot, Publication: "pub", LSN: end}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, s).payloads; !slices.Equal(got, []string{"two"}) {
		t.Errorf("after the crash came %q", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
