// Package migrations makes and describes the tables that the relay needs in
// a database: its own, in schema outbox_relay, and the outbox that an
// application writes to.
//
// It refuses to touch the application's table: the outbox, its publication
// and the grants are returned as statements, and the caller shows them or
// runs them. Only the relay's own schema is migrated, by numbered SQL files
// that are embedded, applied once each and never edited after a release.
//
// Its laws:
//
//   - Up may be run again at any time, and by two processes at once.
//   - Up needs no more than the ownership of the schema: it asks whether the
//     schema exists before it tries to create it, because CREATE SCHEMA IF
//     NOT EXISTS demands CREATE on the database even when there is nothing
//     to do.
//   - Check and Status read only; they never make the version table.
//   - What Print gives to another migration tool leaves the same tables and
//     the same version behind as Up.
//
// Start with Up, then Check, then OutboxDDL.
package migrations
