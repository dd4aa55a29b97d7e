// Package judge decides whether a relay kept its promises, from the outside:
// what PostgreSQL committed, against what the topics hold and what the relay
// keeps in its lines.
//
// It shares no code with the packages that it judges. The truth is read
// through a replication slot of its own with the plugin test_decoding and SQL
// functions, by a parser of its own; topics are read raw; lines are read by SQL.
//
// Laws (Check has the exact words):
//
//   - no loss: each committed row is in a topic, or in a line and visible so;
//   - nothing invented: no record that is not a committed row;
//   - order: first copies of one key are in commit order, in one partition;
//   - duplicates come in replays: each partition's log is a chain of runs, each
//     of them a contiguous slice of the order of the first copies;
//   - copies are byte-identical.
//
// OpenTruth at the start of a test, Workload.Run in its middle, Check (or
// Verdict) at its end.
package judge
