-- One row, one jsonb, or null: the outbox table. $1 schema, $2 table.
select jsonb_build_object(
    'oid', c.oid::bigint, 'schema', n.nspname, 'name', c.relname,
    'kind', c.relkind, 'persistence', c.relpersistence,
    'row_security', c.relrowsecurity, 'row_security_active', row_security_active(c.oid),
    'replica_identity', c.relreplident, 'is_partition', c.relispartition,
    'owner', pg_get_userbyid(c.relowner),
    'columns', (
        select coalesce(jsonb_agg(jsonb_build_object(
                   'name', a.attname, 'type_oid', a.atttypid::bigint, 'type_name', format_type(a.atttypid, null),
                   'not_null', a.attnotnull, 'generated', a.attgenerated <> '') order by a.attnum), '[]')
          from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
    'primary_key', (
        select coalesce(jsonb_agg(a.attname order by k.ord), '[]')
          from pg_index i cross join unnest(i.indkey) with ordinality k(attnum, ord)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
         where i.indrelid = c.oid and i.indisprimary))
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1::text and c.relname = $2::text
