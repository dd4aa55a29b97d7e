package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Law: confirming the end of a transaction is exact: after a new start that
// one does not come again and the next one does, although the next often
// begins where it ends; confirming its commit position repeats it.
// Case F29 of docs/guarantees.md.
func TestConfirmTheEndNotTheCommit(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		for _, p := range []string{"one", "two", "three"} {
			b.insert(t, p)
		}
		s := b.stream(t)
		first, second := next(t, s), next(t, s)
		if second.frameLSN != second.commit.EndLSN {
			t.Errorf("the Commit's frame is at %v, its end at %v: Received would not cover the end", second.frameLSN, second.commit.EndLSN)
		}
		if first.commit.EndLSN > second.commit.CommitLSN {
			t.Errorf("ends and commits overlap: %+v, %+v", first.commit, second.commit)
		}
		restartAt := func(p outbox.LSN) string {
			if err := s.Confirm(p, false); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := b.confirmed(t); got != p {
				t.Errorf("after Close the slot says %v, want the last confirmed %v", got, p)
			}
			s = b.stream(t)
			return next(t, s).payloads[0]
		}
		if got := restartAt(second.commit.CommitLSN); got != "two" {
			t.Errorf("after confirming the commit position of two comes %q, want two again", got)
		}
		if got := restartAt(second.commit.EndLSN); got != "three" {
			t.Errorf("after confirming the end of two comes %q, want three", got)
		}
	})
}

// Law: an idle stream on a busy server gets keepalives with rising positions,
// which may be confirmed; so unrelated log is not kept for us (F1).
// Case F2 of docs/guarantees.md.
func TestKeepalivesCarryAnIdleStreamForward(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		s := b.stream(t)
		b.Exec(t, "create table other as select repeat('x', 100) from generate_series(1, 10000)")
		end := b.lsn(t, "select pg_current_wal_flush_lsn()")
		f := keepaliveAt(t, s, end)
		if err := s.Confirm(f.WALEnd, true); err != nil {
			t.Fatal(err)
		}
		keepaliveAt(t, s, f.WALEnd) // the reply: the confirmation has been read
		if got := b.confirmed(t); got != f.WALEnd {
			t.Errorf("the slot says %v, want the confirmed %v", got, f.WALEnd)
		}
		if age := time.Since(s.LastReceived()); age > 10*time.Second {
			t.Errorf("LastReceived is %v old right after a frame", age)
		}
		if s.Bytes() == 0 {
			t.Error("no bytes were counted")
		}
	})
}

// Law: a relay that is asked for a reply and gives it lives on beyond
// wal_sender_timeout, on its own setting, not the server's; one that is silent
// is cut off, and the error says retry.
// Case F19 of docs/guarantees.md.
func TestRepliesKeepTheStreamAlive(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	cfg := streamConfigOf(t, b.DSN())
	cfg.WALSenderTimeout = 400 * time.Millisecond
	s := b.start(t, cfg)
	asked := 0
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		f, err := s.Next(end)
		if err != nil {
			t.Fatalf("after %d replies: %v", asked, err)
		}
		if f.ReplyRequested {
			asked++
			if err := s.Confirm(0, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if asked < 3 {
		t.Errorf("asked %d times in 1.5 s: wal_sender_timeout is not the 400 ms asked for", asked)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if _, err := s.Next(end); err != nil {
			if got := Classify(err).Class; got != ClassRetry {
				t.Errorf("cut off with %v of class %v, want retry", err, got)
			}
			return
		}
	}
	t.Error("a silent client was not cut off")
}

// Law: a publication of any name is found, on every version, and the stream
// brings its rows (F10).
func TestNastyPublicationNames(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		for _, name := range []string{"Relay-Pub", "a,b", `it's`, `say "x"`, "ä ß", `back\slash`, "select"} {
			b.Exec(t, PublicationSQL(name, "public", "outbox", false))
			b.Exec(t, "select pg_drop_replication_slot($1)", b.slot)
			b.Exec(t, "select pg_create_logical_replication_slot($1, 'pgoutput')", b.slot)
			b.insert(t, name)
			b.publication = name
			s := b.stream(t)
			if got := next(t, s).payloads; !slices.Equal(got, []string{name}) {
				t.Errorf("publication %q brings %q", name, got)
			}
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			b.Exec(t, "drop publication "+QuoteIdentifier(name))
		}
	})
}

// Law: a publication that is gone ends the stream as class publication, by
// error up to 17 and by notice on 18, before anything later is returned, and
// nothing of it can be confirmed.
// Case F25 of docs/guarantees.md.
func TestMissingPublicationEndsTheStream(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		s := b.stream(t)
		b.insert(t, "before")
		end := next(t, s).commit.EndLSN
		b.Exec(t, "drop publication pub")
		b.insert(t, "lost")
		var err error
		for tx := (transaction{}); err == nil; tx, err = tryNext(s, time.Now().Add(20*time.Second)) {
			if len(tx.payloads) > 0 { // 14 also sends transactions without rows
				t.Fatalf("got the rows %q", tx.payloads)
			}
		}
		if got := Classify(err); got.Class != ClassPublication || got.Class.ExitCode() != 15 {
			t.Fatalf("got %v of class %v, want publication", err, got.Class)
		}
		var skipped *PublicationError
		if on18 := b.Server().Major() >= 18; errors.As(err, &skipped) != on18 {
			t.Errorf("on %d: %v", b.Server().Major(), err)
		} else if on18 && skipped.Publication != "pub" {
			t.Errorf("the error names publication %q", skipped.Publication)
		}
		if err := s.Confirm(end, false); err == nil {
			t.Error("Confirm after the end of the stream succeeded")
		}
	})
}

// Law: each way in which a slot cannot be read has its own class (F3, F56).
func TestSlotErrors(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		other := newBench(t, b.Server())
		b.Exec(t, "select pg_create_logical_replication_slot($1, 'test_decoding')", b.slot+"_td")
		b.Exec(t, "select pg_create_physical_replication_slot($1)", b.slot+"_ph")
		t.Cleanup(func() { b.Exec(t, "select pg_drop_replication_slot($1)", b.slot+"_ph") })
		reader := b.stream(t)
		admin := openAdmin(t, b.DSN())
		for slot, want := range map[string]Class{
			b.slot: ClassSlotBusy, "nosuch": ClassSlotMissing, other.slot: ClassSlotForeign,
			b.slot + "_td": ClassSlotForeign, b.slot + "_ph": ClassSlotForeign,
		} {
			s := open(t, streamConfigOf(t, b.DSN()))
			err := s.Start(t.Context(), StartOptions{Slot: slot, Publication: "pub"})
			if err == nil {
				t.Errorf("%s: started", slot)
				continue
			}
			facts, factsErr := admin.Facts(t.Context(), Target{Slot: slot})
			if factsErr != nil {
				t.Fatal(factsErr)
			}
			fault := Classify(err).Check(facts.Slot)
			if fault.Class != want {
				t.Errorf("%s: %v is of class %v, want %v", slot, err, fault.Class, want)
			}
			if want == ClassSlotBusy && fault.PID != reader.Identity().BackendPID {
				t.Errorf("busy with process %d, want %d", fault.PID, reader.Identity().BackendPID)
			}
			if _, err := s.Next(time.Now()); err == nil {
				t.Errorf("%s: Next after a failed start succeeded", slot)
			}
		}
	})
}

// Law: a slot that the server gave up is recognised as lost on every version.
// Case F3 of docs/guarantees.md.
func TestLostSlot(t *testing.T) {
	t.Parallel()
	for _, major := range majors {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, harness.StartPostgres(t, harness.PostgresOptions{Major: major,
				Settings: map[string]string{"max_slot_wal_keep_size": "1MB"}}))
			b.insert(t, "kept too long")
			for range 4 {
				b.Exec(t, "insert into outbox (payload) select repeat('x', 1000) from generate_series(1, 1000)")
				b.Exec(t, "select pg_switch_wal()")
			}
			b.Exec(t, "checkpoint")
			b.Exec(t, "checkpoint")
			s := open(t, streamConfigOf(t, b.DSN()))
			err := s.Start(t.Context(), StartOptions{Slot: b.slot, Publication: "pub"})
			if err == nil || Classify(err).Class != ClassSlotLost {
				t.Errorf("got %v, want class slot_lost", err)
			}
			findings, _, err := openAdmin(t, b.DSN()).Preflight(t.Context(), PreflightOptions{Target: b.target()})
			if err != nil || !slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == "slot.lost" && f.ExitCode == 10 }) {
				t.Errorf("the preflight says %+v, %v", findings, err)
			}
		})
	}
}

// Law: what role and database set as defaults does not reach the stream: the
// texts of values are the pinned ones (F12), and time-outs of the role end
// nothing (F22).
func TestRoleDefaultsDoNotLeak(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		role := "role_" + b.Name()
		b.Exec(t, "create role "+role+" login superuser")
		t.Cleanup(func() { b.Exec(t, "drop role "+role) })
		for _, setting := range []string{"datestyle = 'German, DMY'", "timezone = 'America/New_York'", "bytea_output = 'escape'", "extra_float_digits = -5",
			"intervalstyle = 'iso_8601'", "client_encoding = 'LATIN1'", "statement_timeout = '200ms'", "lock_timeout = '200ms'",
			"idle_in_transaction_session_timeout = '200ms'", "idle_session_timeout = '200ms'", "client_min_messages = 'error'"} {
			b.Exec(t, "alter role "+role+" set "+setting)
			b.Exec(t, "alter database "+b.Name()+" set "+setting)
		}
		if b.Server().Version() >= 170000 {
			b.Exec(t, "alter role "+role+" set transaction_timeout = '200ms'")
		}
		b.Exec(t, `create table texts (id int primary key, v1 timestamptz, v2 bytea, v3 float8, v4 interval, v5 text)`)
		b.Exec(t, "alter publication pub set table texts")
		b.Exec(t, "select pg_drop_replication_slot($1)", b.slot)
		b.Exec(t, "select pg_create_logical_replication_slot($1, 'pgoutput')", b.slot)
		dsn := strings.Replace(b.DSN(), "postgres@", role+"@", 1)
		s := b.start(t, streamConfigOf(t, dsn))
		if f, err := s.Next(time.Now().Add(time.Second)); err != nil { // longer than all time-outs
			t.Fatalf("idle stream: %+v, %v", f, err)
		}
		b.Exec(t, `insert into texts values (1, '2026-02-03 04:05:06.789+00', '\x00ff41', 0.1::float8 + 0.2, '1 day 02:03:04', U&'caf\00E9 \20AC')`)
		if got, want := next(t, s).payloads[0], "café €"; got != want {
			t.Errorf("text %q, want %q", got, want)
		}
		admin := openAdmin(t, dsn)
		for query, want := range map[string]string{
			"select to_jsonb('2026-02-03 04:05:06.789+00'::timestamptz::text)": "2026-02-03 04:05:06.789+00",
			`select to_jsonb('\x00ff41'::bytea::text)`:                         `\x00ff41`,
			"select to_jsonb((0.1::float8 + 0.2)::text)":                       "0.30000000000000004",
			"select to_jsonb('1 day 02:03:04'::interval::text)":                "1 day 02:03:04",
			"select to_jsonb(pg_sleep(0.4)::text)":                             "",
		} {
			var got string
			if err := admin.ask(t.Context(), &got, query); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", query, got, err, want)
			}
		}
	})
}

// Law: the stream's own session has the pinned texts too: what the walsender
// formats is ISO, UTC, hex, with all digits.
func TestStreamTextForms(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	b.Exec(t, "alter database "+b.Name()+" set datestyle = 'German, DMY'")
	b.Exec(t, "alter database "+b.Name()+" set timezone = 'America/New_York'")
	b.Exec(t, "alter database "+b.Name()+" set bytea_output = 'escape'")
	b.Exec(t, "alter database "+b.Name()+" set extra_float_digits = -5")
	for column, want := range map[string]string{
		"timestamptz '2026-02-03 04:05:06.789+00'": "2026-02-03 04:05:06.789+00",
		`bytea '\x00ff41'`:                         `\x00ff41`,
		"0.1::float8 + 0.2":                        "0.30000000000000004",
		"interval '1 day 02:03:04'":                "1 day 02:03:04",
	} {
		b.Exec(t, "drop table if exists v cascade; create table v as select 1 as id, "+column+" as v limit 0; alter table v add primary key (id)")
		b.Exec(t, "alter publication pub set table v")
		b.Exec(t, "select pg_drop_replication_slot($1)", b.slot)
		b.Exec(t, "select pg_create_logical_replication_slot($1, 'pgoutput')", b.slot)
		b.Exec(t, "insert into v select 1, "+column)
		s := b.stream(t)
		if got := next(t, s).payloads[0]; got != want {
			t.Errorf("%s: %q, want %q", column, got, want)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// Law: a server in fast shutdown is not kept waiting by a stream that has
// confirmed what it got (I14), and the stream hears of it.
func TestFastShutdownDoesNotWaitForUs(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			p := harness.StartPostgres(t, harness.PostgresOptions{Major: major})
			b := newBench(t, p)
			b.insert(t, "x")
			s := b.stream(t)
			if err := s.Confirm(next(t, s).commit.EndLSN, false); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				for {
					f, err := s.Next(time.Now().Add(time.Second))
					if err == nil && f.Kind == FrameKeepalive {
						err = s.Confirm(f.WALEnd, false)
					}
					if err != nil {
						ended <- err
						return
					}
				}
			}()
			start := time.Now()
			p.Stop(t, "fast")
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("the stop took %v", took)
			}
			err := <-ended
			if c := Classify(err).Class; c != ClassServerStopping && c != ClassRetry {
				t.Errorf("ended with %v of class %v", err, c)
			}
		})
	}
}

// Law: a message to the stream outside any transaction arrives although no
// row does: it proves that the stream lives.
func TestLogicalMessagesArrive(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		s := b.stream(t)
		b.Exec(t, "select pg_logical_emit_message(false, 'heartbeat', 'nonce')")
		for end := time.Now().Add(20 * time.Second); ; {
			f, err := s.Next(end)
			if err != nil || f.Kind == FrameNone {
				t.Fatalf("got %+v, %v", f, err)
			}
			if f.Kind == FrameData && f.Data[0] == 'M' {
				return
			}
		}
	})
}

// Law: Start takes the position it is given, and a cancelled context ends a
// command.
// Case F30 of docs/guarantees.md.
func TestStartPosition(t *testing.T) {
	t.Parallel()
	b := newBench(t, harness.SharedPostgres(t, 15))
	b.insert(t, "skipped")
	b.insert(t, "wanted")
	s := b.stream(t)
	end := next(t, s).commit.EndLSN
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s = open(t, streamConfigOf(t, b.DSN()))
	if err := s.Confirm(0, false); err == nil {
		t.Error("Confirm before Start succeeded")
	}
	if err := s.Start(t.Context(), StartOptions{Slot: b.slot, Publication: "pub", LSN: end}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, s).payloads[0]; got != "wanted" {
		t.Errorf("started at %v and got %q", end, got)
	}
	if err := s.Start(t.Context(), StartOptions{Slot: b.slot, Publication: "pub"}); err == nil {
		t.Error("a second Start succeeded")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	s = open(t, streamConfigOf(t, b.DSN()))
	if _, err := s.TimelineHistory(cancelled, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a command under a cancelled context: %v", err)
	}
	if _, err := Open(cancelled, streamConfigOf(t, b.DSN())); err == nil {
		t.Error("Open under a cancelled context succeeded")
	}
}

// Law: identity is the server's, and the notices of other sorts do not end
// anything. The error of the server stays in the chain.
func TestIdentity(t *testing.T) {
	t.Parallel()
	eachMajor(t, func(t *testing.T, b *bench) {
		s := open(t, streamConfigOf(t, b.DSN()))
		id := s.Identity()
		if id.SystemID != b.Query1(t, "select system_identifier from pg_control_system()") || id.Timeline != 1 || id.Database != b.Name() ||
			id.ServerVersion != b.Server().Version() || id.BackendPID == 0 || id.WALEnd == 0 {
			t.Errorf("identity %+v", id)
		}
		if forks, err := s.TimelineHistory(t.Context(), 1); err != nil || forks != nil {
			t.Errorf("timeline 1 has the history %v, %v", forks, err)
		}
		_, err := s.TimelineHistory(t.Context(), 99)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			t.Errorf("the history of a timeline that never was: %v", err)
		}
	})
}
