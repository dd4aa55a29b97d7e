// Command bench measures the relay beside the limit of its parts: how fast a
// slot can be drained at all, what each part of the path costs, and how far a
// record's latency lies above its floor.
//
// It starts its own PostgreSQL and Kafka, and runs every part that is measured
// in a process of its own, so that the kernel's books say what each one costs.
// It prints a table and writes one JSON object a line.
//
// Laws:
//
//   - A backlog is written once for each shape. Every run reads it through a
//     fresh copy of the same slot, so every run decodes the same WAL.
//   - The clock starts when the walsender takes the slot and stops when the
//     slot's confirmed position has passed the last row (for the raw drain:
//     when pg_recvlogical has received it and ends).
//   - A run whose rows are not all there afterwards is an error, never a figure.
//   - Repetitions go round the scenarios, so that a slow minute of the machine
//     hits all of them alike. Medians are shown, with the least and the most.
//
// It refuses to run without /proc, and never stops a process that it did not
// start. Start reading at main.go; docs/performance.md says what the columns
// mean.
package main
