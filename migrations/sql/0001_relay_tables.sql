-- +goose Up

-- How far each relay has come: one row per relay. Every write of a session
-- names the row's session, so a session that lost the slot writes nothing.
create table if not exists outbox_relay.position (
  relay             text        primary key,
  slot              text        not null,
  system_identifier text        not null,
  timeline          int         not null,
  lsn               pg_lsn      not null,            -- every transaction that ends at or below is settled
  next_commit       pg_lsn,                          -- of the next transaction, the rows
  next_index        int         not null default 0,  -- below this index are settled too
  reached           pg_lsn,                          -- highest commit position of any outcome ever written
  session           uuid        not null,            -- nonce of the session that owns the slot
  stopped_at        timestamptz,                     -- stopped by policy; survives restarts
  stopped_why       text,
  updated_at        timestamptz not null
);

-- What waits: one ordering key, or one event where no order is kept.
create table if not exists outbox_relay.line (
  id               bigint      generated always as identity primary key,
  relay            text        not null,
  topic            text        not null,
  order_key        bytea,                            -- null: a single event
  order_hash       bytea       not null,             -- sha256 of topic and key: a key may be too long for an index
  holds            boolean     not null,             -- later events of the key wait behind
  priority         smallint    not null default 0,
  attempts         int         not null default 0,   -- of the head
  crashes          int         not null default 0,   -- claims from an expired lease
  deferrals        int         not null default 0,   -- outages, never charged
  next_attempt_at  timestamptz,
  parked_at        timestamptz,
  claim_generation int         not null default 0,
  claimed_by       text,
  locked_until     timestamptz,
  error_class      text,
  error_code       text,
  error_detail     text,
  since            timestamptz not null,
  constraint line_one_state check (num_nonnulls(next_attempt_at, parked_at, locked_until) = 1),
  constraint line_error_detail_size check (error_detail is null or octet_length(error_detail) <= 2048)
);
create unique index if not exists line_held on outbox_relay.line (relay, order_hash) where holds;
create index if not exists line_due on outbox_relay.line (next_attempt_at) where next_attempt_at is not null;
create index if not exists line_leased on outbox_relay.line (locked_until) where locked_until is not null;
create index if not exists line_parked on outbox_relay.line (parked_at) where parked_at is not null;

-- The events of the lines, whole, in order. There is no cascade: nothing but
-- the owner of a claim takes an event away.
create table if not exists outbox_relay.line_event (
  seq             bigint      generated always as identity primary key,
  line_id         bigint      not null references outbox_relay.line,
  relay           text        not null,
  timeline        int,                               -- these three are the event's identity;
  commit_lsn      pg_lsn,                            -- null where it never came
  commit_index    int,                               -- through the log
  row_key         text        not null,              -- JSON array of the key columns' texts
  event_id        uuid,
  reason          text        not null,
  mark            text,                              -- a person's wish; the claim's owner executes it
  record          bytea       not null,              -- topic, timestamp and headers
  key             bytea,
  value           bytea,
  added_at        timestamptz not null,
  first_failed_at timestamptz,
  last_attempt_at timestamptz,
  constraint line_event_reason check (reason in ('refused', 'behind', 'scheduled', 'orphan', 'replay')),
  constraint line_event_mark check (mark in ('retry', 'discard'))
);
create unique index if not exists line_event_position on outbox_relay.line_event (relay, timeline, commit_lsn, commit_index)
  where reason not in ('orphan', 'replay');
create unique index if not exists line_event_orphan on outbox_relay.line_event (relay, row_key) where reason = 'orphan';
create index if not exists line_event_order on outbox_relay.line_event (line_id, commit_lsn, commit_index, seq);

-- Statuses that could not be written when their event was settled.
create table if not exists outbox_relay.pending_status (
  relay      text        not null,
  row_hash   bytea       not null,                   -- sha256 of row_key: a key's JSON may be too long for an index
  row_key    text        not null,
  event_id   text,                                   -- null where the outbox has none
  status     smallint,                               -- null: delete the row
  error_code text,
  at         timestamptz not null,
  xid        xid8        not null default pg_current_xact_id(), -- younger than the writer of the row
  primary key (relay, row_hash)
);

-- What people did: never updated, never deleted by the relay.
create table if not exists outbox_relay.audit (
  id     bigint      generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  who    text        not null,
  relay  text        not null,
  verb   text        not null,
  filter text,
  reason text,
  count  bigint,
  before text,
  after  text
);
create index if not exists audit_at on outbox_relay.audit (at);

-- Shares of the keys in poll mode, each leased to one worker.
create table if not exists outbox_relay.poll_slot (
  relay        text        not null,
  slot         int         not null,
  owner        text,
  generation   int         not null default 0,
  locked_until timestamptz,
  primary key (relay, slot),
  constraint poll_slot_lease check (num_nulls(owner, locked_until) in (0, 2))
);

-- Where the recovery of a lost slot stands, so that it can go on after a
-- restart.
create table if not exists outbox_relay.recovery (
  relay      text        primary key,
  phase      text        not null,
  snapshot   text,
  lsn        pg_lsn,
  started_at timestamptz not null,
  updated_at timestamptz not null
);
