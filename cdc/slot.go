package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SlotOptions says which slot to make.
type SlotOptions struct {
	Name      string
	Failover  bool // 17+: standbys keep a copy
	Temporary bool // ends with the Admin's connection
	// Waiting is told every 2 s which transactions the creation waits for.
	// Nil is allowed.
	Waiting func([]Blocker)
}

// Blocker is a transaction that the creation of a slot waits for: a slot
// starts only where every transaction that was running has ended.
type Blocker struct {
	PID             uint32        `json:"pid"`
	User            string        `json:"user"`
	ApplicationName string        `json:"application_name"`
	State           string        `json:"state"`
	OpenFor         time.Duration `json:"open_for_ns"`
}

const (
	// blockerEvery is how often a creation that hangs says why.
	blockerEvery = 2 * time.Second
	// cancelGrace is how long a cancelled creation may take to end. If we
	// only hung up, the server might finish it later and keep WAL for a
	// slot that nobody knows of.
	cancelGrace = 10 * time.Second
	// minFailover is the first version with failover slots.
	minFailover = 170000
)

// CreateSlot makes a logical slot for pgoutput. Make the publication first:
// rows written before it exists can never be decoded. It waits until all
// transactions that run now have ended; when ctx ends first nothing is left
// behind, and the error names those that were waited for.
func (a *Admin) CreateSlot(ctx context.Context, o SlotOptions) error {
	if err := CheckSlotName(o.Name); err != nil {
		return err
	}
	sql := "select pg_create_logical_replication_slot($1::text, 'pgoutput', $2::boolean, false)"
	if o.Failover {
		var version int
		if err := a.ask(ctx, &version, "select to_jsonb(current_setting('server_version_num')::int)"); err != nil {
			return fmt.Errorf("creating slot %q: %w", o.Name, err)
		}
		if version < minFailover {
			return fmt.Errorf("creating slot %q: failover slots need PostgreSQL 17, this server is %d", o.Name, version/10000)
		}
		sql = "select pg_create_logical_replication_slot($1::text, 'pgoutput', $2::boolean, false, true)"
	}
	if err := a.create(ctx, o, sql); err != nil {
		return fmt.Errorf("creating slot %q: %w", o.Name, err)
	}
	return nil
}

// create runs the creation beside a watch on what it waits for.
func (a *Admin) create(ctx context.Context, o SlotOptions, sql string) error {
	done := make(chan error, 1)
	go func() {
		_, err := a.conn.Exec(context.WithoutCancel(ctx), sql, o.Name, o.Temporary)
		done <- err
	}()
	ticker := time.NewTicker(blockerEvery)
	defer ticker.Stop()
	var blockers []Blocker
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			if b, err := a.blockers(ctx); err == nil && len(b) > 0 {
				blockers = b
				if o.Waiting != nil {
					o.Waiting(b)
				}
			}
		case <-ctx.Done():
			return a.abandon(ctx, done, blockers)
		}
	}
}

// abandon cancels the creation on the server and waits for its end.
func (a *Admin) abandon(ctx context.Context, done <-chan error, blockers []Blocker) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	failed := a.conn.PgConn().CancelRequest(grace)
	select {
	case err := <-done:
		if err == nil {
			return nil // it was faster
		}
	case <-grace.Done():
		failed = errors.Join(failed, errors.New("the server did not end the creation: see pg_replication_slots"))
		_ = a.conn.PgConn().Conn().Close() // ends the goroutine's Exec
		<-done
	}
	if len(blockers) == 0 {
		return errors.Join(context.Cause(ctx), failed)
	}
	b := blockers[0]
	return errors.Join(fmt.Errorf("%w: still waiting for %d transactions to end, first the one of process %d (user %q, application %q, %s, open for %v)",
		context.Cause(ctx), len(blockers), b.PID, b.User, b.ApplicationName, b.State, b.OpenFor.Round(time.Second)), failed)
}

const blockersSQL = `select jsonb_agg(jsonb_build_object('pid', pid, 'user', usename, 'application_name', application_name,
    'state', coalesce(state, 'hidden'), 'open_for_ns', coalesce((extract(epoch from clock_timestamp() - xact_start) * 1e9)::bigint, 0)) order by xact_start)
  from pg_stat_activity where pid = any(pg_blocking_pids($1::int))`

// blockers asks over a second connection, since ours is waiting.
func (a *Admin) blockers(ctx context.Context) ([]Blocker, error) {
	second, err := OpenAdmin(ctx, a.config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = second.Close(context.WithoutCancel(ctx)) }()
	var b []Blocker
	err = second.ask(ctx, &b, blockersSQL, int32(a.conn.PgConn().PID()))
	return b, err
}

// DropSlot drops a slot that nobody reads; a busy one gives the server's
// error (ClassSlotBusy). Rows that were not read through it yet can then only
// be found in the table.
func (a *Admin) DropSlot(ctx context.Context, name string) error {
	if _, err := a.conn.Exec(ctx, "select pg_drop_replication_slot($1::text)", name); err != nil {
		return fmt.Errorf("dropping slot %q: %w", name, err)
	}
	return nil
}

const listSQL = `with flush as materialized (
  select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end as lsn)
select coalesce(jsonb_agg(to_jsonb(s) || jsonb_build_object('name', s.slot_name, 'type', s.slot_type,
    'restart_lsn', pg_wal_lsn_diff(s.restart_lsn, '0/0'), 'confirmed_lsn', pg_wal_lsn_diff(s.confirmed_flush_lsn, '0/0'),
    'retained_bytes', pg_wal_lsn_diff(f.lsn, s.restart_lsn), 'lag_bytes', pg_wal_lsn_diff(f.lsn, s.confirmed_flush_lsn),
    'catalog_xmin_age', age(s.catalog_xmin), 'safe_wal_bytes', s.safe_wal_size) order by s.slot_name), '[]')
  from pg_replication_slots s, flush f`

// ListSlots lists all slots of the server, those of others included.
func (a *Admin) ListSlots(ctx context.Context) ([]Slot, error) {
	var slots []Slot
	if err := a.ask(ctx, &slots, listSQL); err != nil {
		return nil, fmt.Errorf("listing the slots: %w", err)
	}
	return slots, nil
}

// PublicationSQL is the statement that makes the publication as the relay
// needs it: this table alone, inserts alone, and for a partitioned table
// under its own name.
func PublicationSQL(name, schema, table string, partitioned bool) string {
	with := "publish = 'insert'"
	if partitioned {
		with += ", publish_via_partition_root = true"
	}
	return fmt.Sprintf("create publication %s for table %s with (%s)", QuoteIdentifier(name), quoteTable(schema, table), with)
}

// CreatePublication makes the publication; the role must own the table and
// may create in the database. Make it before the slot.
func (a *Admin) CreatePublication(ctx context.Context, t Target) error {
	if err := checkIdentifier("publication", t.Publication); err != nil {
		return err
	}
	info, err := a.table(ctx, t)
	if err != nil {
		return err
	}
	if info == nil {
		return fmt.Errorf("creating publication %q: there is no table %s", t.Publication, quoteTable(t.Schema, t.Table))
	}
	if _, err := a.conn.Exec(ctx, PublicationSQL(t.Publication, t.Schema, t.Table, info.Partitioned())); err != nil {
		return fmt.Errorf("creating publication %q: %w", t.Publication, err)
	}
	return nil
}

// Termination says what TerminateStale found and did.
type Termination struct {
	PID        uint32        `json:"pid"`         // 0: nobody reads the slot
	ReplyAge   time.Duration `json:"reply_age"`   // of its last reply; only if ReplyKnown
	ReplyKnown bool          `json:"reply_known"` // false: hidden without pg_monitor, or no reply yet
	OwnRole    bool          `json:"own_role"`
	Terminated bool          `json:"terminated"`
}

const terminateSQL = `with reader as materialized (
  select a.pid, a.usename = $2::text as own, clock_timestamp() - r.reply_time as age
    from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid
    left join pg_stat_replication r on r.pid = a.pid
   where s.slot_name = $1::text)
select jsonb_build_object('pid', pid, 'own_role', coalesce(own, false), 'reply_known', age is not null,
    'reply_age', coalesce((extract(epoch from age) * 1e9)::bigint, 0),
    'terminated', case when own and age > $3::bigint * interval '1 microsecond' then pg_terminate_backend(pid) else false end)
  from reader`

// TerminateStale ends the walsender that holds the slot if it belongs to role
// and its client has not replied for longer than age: a relay that is gone or
// hangs, whose successor waits. A walsender whose last reply cannot be seen
// is left alone; wal_sender_timeout ends it. The caller needs the rights of
// the role, and the old relay's writes must be fenced by other means.
func (a *Admin) TerminateStale(ctx context.Context, slot, role string, age time.Duration) (Termination, error) {
	var t Termination
	if err := a.ask(ctx, &t, terminateSQL, slot, role, age.Microseconds()); err != nil {
		return t, fmt.Errorf("ending the stale reader of slot %q: %w", slot, err)
	}
	return t, nil
}
