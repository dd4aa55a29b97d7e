// Package e2e runs the built binary against a real Postgres and a real Kafka
// and has the judge decide.
//
// It refuses to know anything about the inside of the relay: what it does to
// it are signals, lost servers and settings, what it reads are topics, tables
// and probes. A fault that was not seen to bite fails the test.
//
// Start with site_test.go.
package e2e
