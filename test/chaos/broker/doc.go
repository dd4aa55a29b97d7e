// Package broker hurts Apache Kafka while the built relay works, and has the
// judge decide.
//
// It refuses to believe that a fault happened because it was asked for: each
// test sees it bite, by the broker's process, by leader epochs and metadata, by
// an answer to a client of its own, or by the relay's own words. What it does
// to the relay are signals and settings, what it reads are topics, tables,
// probes and metrics.
//
// Tests that need three nodes share one cluster (TestThreeNodes). Start with
// tools_test.go.
package broker
