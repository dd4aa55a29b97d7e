-- One row, one jsonb: everything about the slot and the publication that can
-- change while the relay runs. All differences of positions are computed here,
-- so that they are of one moment.
--
-- $1 slot, $2 publication, $3 schema, $4 table.
--
-- Columns that not every version has are read through to_jsonb(row): a column
-- that is not there gives null, without asking for the version.
with flush as materialized (
    -- Never pg_last_wal_replay_lsn() first: on a promoted server it keeps its
    -- last value for ever. Never the write position: it runs ahead of the disk.
    select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end as lsn
), slots as materialized (
    select s.*, to_jsonb(s) as j from pg_replication_slots s
), rel as (
    select c.oid
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $3::text and c.relname = $4::text
), leaves as (
    -- the table itself when it is not partitioned
    select n.nspname, c.relname
      from rel, pg_partition_tree(rel.oid) t
      join pg_class c on c.oid = t.relid join pg_namespace n on n.oid = c.relnamespace
     where t.isleaf
), published as materialized (
    select p.schemaname, p.tablename, to_jsonb(p) as j,
           p.schemaname = $3::text and p.tablename = $4::text as is_root,
           exists (select from leaves l where l.nspname = p.schemaname and l.relname = p.tablename) as is_leaf
      from pg_publication_tables p
     where p.pubname = $2::text
)
select jsonb_build_object(
    'at', clock_timestamp(),
    'server_version', current_setting('server_version_num')::int,
    'in_recovery', pg_is_in_recovery(),
    'system_id', (select system_identifier::text from pg_control_system()),
    'timeline', case when pg_is_in_recovery() then 0
                     else ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint end,
    'database', current_database(),
    'flush_lsn', (select pg_wal_lsn_diff(lsn, '0/0') from flush),
    'synchronous_standby_names', current_setting('synchronous_standby_names'),
    'slot', (
        select jsonb_build_object(
            'name', s.slot_name, 'plugin', s.plugin, 'type', s.slot_type, 'database', s.database,
            'temporary', s.temporary, 'active', s.active, 'active_pid', s.active_pid,
            'restart_lsn', pg_wal_lsn_diff(s.restart_lsn, '0/0'),
            'confirmed_lsn', pg_wal_lsn_diff(s.confirmed_flush_lsn, '0/0'),
            'retained_bytes', pg_wal_lsn_diff(f.lsn, s.restart_lsn),
            'lag_bytes', pg_wal_lsn_diff(f.lsn, s.confirmed_flush_lsn),
            'catalog_xmin_age', age(s.catalog_xmin),
            'wal_status', s.wal_status, 'safe_wal_bytes', s.safe_wal_size,
            'two_phase', s.j -> 'two_phase', 'conflicting', s.j -> 'conflicting',
            'invalidation_reason', s.j -> 'invalidation_reason', 'inactive_since', s.j -> 'inactive_since',
            'failover', s.j -> 'failover', 'synced', s.j -> 'synced')
          from slots s, flush f where s.slot_name = $1::text),
    'walsender', (
        select jsonb_build_object(
            'pid', a.pid, 'user', a.usename, 'application_name', a.application_name,
            'wait_event', a.wait_event, 'started', a.backend_start,
            'sync_state', r.sync_state, 'reply_time', r.reply_time)
          from slots s join pg_stat_activity a on a.pid = s.active_pid
          left join pg_stat_replication r on r.pid = a.pid
         where s.slot_name = $1::text),
    'publication', (
        select jsonb_build_object(
            'name', p.pubname, 'all_tables', p.puballtables,
            'insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete, 'truncate', p.pubtruncate,
            'via_root', p.pubviaroot,
            'has_table', exists (select from published where is_root)
                or exists (select from rel join pg_publication_rel pr on pr.prrelid = rel.oid where pr.prpubid = p.oid)
                or (exists (select from leaves) and
                    (select count(*) from leaves) = (select count(*) from published where is_leaf)),
            'row_filter', (select min(j ->> 'rowfilter') from published where is_root or is_leaf),
            'columns', (select j -> 'attnames' from published
                         where (is_root or is_leaf) and jsonb_typeof(j -> 'attnames') = 'array'
                         order by jsonb_array_length(j -> 'attnames') limit 1),
            'others', (select count(*) from published where not is_root and not is_leaf),
            'other', (select min(quote_ident(schemaname) || '.' || quote_ident(tablename))
                        from published where not is_root and not is_leaf))
          from pg_publication p where p.pubname = $2::text),
    'table_oid', (select oid::bigint from rel)
)
