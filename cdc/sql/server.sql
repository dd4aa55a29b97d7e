-- One row, one jsonb: settings, head-room and the roles' rights.
-- $1: the role of the replication connection.
select jsonb_build_object(
    'version', version(),
    -- from 19 on the effective level may be higher than the configured one
    'wal_level', coalesce(current_setting('effective_wal_level', true), current_setting('wal_level')),
    'max_replication_slots', current_setting('max_replication_slots')::int,
    'slots_used', (select count(*) from pg_replication_slots),
    'max_wal_senders', current_setting('max_wal_senders')::int,
    'senders_used', (select count(*) from pg_stat_replication),
    'has_standbys', exists (select from pg_replication_slots where slot_type = 'physical' and active),
    'max_slot_wal_keep_mb', (select setting::bigint from pg_settings where name = 'max_slot_wal_keep_size'),
    'idle_slot_timeout_s', (select case unit when 'min' then setting::bigint * 60 when 'ms' then setting::bigint / 1000 else setting::bigint end
                              from pg_settings where name = 'idle_replication_slot_timeout'),
    'synchronized_standby_slots', coalesce(current_setting('synchronized_standby_slots', true), ''),
    'query_user', current_user,
    'stream_role', (
        select jsonb_build_object(
            'name', r.rolname, 'superuser', r.rolsuper, 'replication', r.rolreplication,
            'create_db', r.rolcreatedb, 'create_role', r.rolcreaterole,
            'rds_replication', exists (select from pg_roles g where g.rolname = 'rds_replication' and pg_has_role(r.oid, g.oid, 'member')))
          from pg_roles r where r.rolname = $1::text)
)
