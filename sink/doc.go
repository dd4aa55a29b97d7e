// Package sink turns events into Kafka records and gives each exactly one
// outcome, in strict order per key.
//
// It refuses to guess: a record is Acked only when all in-sync replicas have
// it, Refused only when it was refused alone, and everything else (an outage,
// a missing topic, a missing right) is charged to no row: it blocks the topic,
// says why, and heals by itself.
//
// Its laws:
//
//   - One lane per partition. A lane gathers while its chunk is in flight and
//     hands over the next one only when every record of the last is decided.
//   - One chunk is one batch of the client. A record that would begin a second
//     batch of its chunk is turned away by the partitioner (see guard), so
//     nothing of a chunk can be stored after an earlier part of it failed.
//   - A key that is held lets nothing pass: it is looked up when a chunk is
//     formed, which is also before each record of a single re-send.
//   - Nothing blocks in the client's callback: it stores an error in memory
//     that it owns, and the last one of a chunk signals the pump.
//   - A producer id never starts a partition's sequence anew. Purging a topic
//     from the client does just that, and a broker that still knows the id
//     then acknowledges a new batch as the copy of an old one without writing
//     it. So a client that must forget a topic is replaced, not purged.
//
// All state belongs to one goroutine, the pump. Start with Kafka and Session,
// then pump.turn, then lane.go.
package sink
