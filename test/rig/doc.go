// Package rig runs the built program against real servers for tests: one Site
// is a database with an outbox, a broker and a configuration; its Processes
// are the relays that serve it.
//
// It refuses to know anything about the inside of the relay: what it does to
// one are signals, settings and lost servers, what it reads are topics,
// tables, probes and logs.
//
// Laws:
//
//   - The program is built once per test process and kind, never found
//     somewhere.
//   - Only processes that this package started are signalled, and none of them
//     outlives its test.
//
// Start with New; a package that uses it calls Main from its TestMain.
package rig
