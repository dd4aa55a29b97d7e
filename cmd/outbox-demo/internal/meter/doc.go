// Package meter measures the demo: how long each row took from its commit to a
// reader of the topic, what is on its way, and how that went over the last
// minute. Writers and reader are one process, so every time is a difference of
// the monotonic clock; no two clocks are compared.
//
// It refuses to judge: what was lost or out of order is the verdict's to say,
// from the topics and the table.
//
// Laws:
//
//   - A latency starts just before COMMIT is sent, so the commit's own time is
//     in it: the figures err on the long side.
//   - A row counts in the calm figures only if no fault overlaps the time
//     between its commit and its arrival.
//   - Memory is bounded by what is on its way, not by what has passed.
//
// Start with Ledger.
package meter
