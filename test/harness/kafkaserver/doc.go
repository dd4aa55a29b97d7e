// Package kafkaserver runs Apache Kafka in KRaft mode from its published jars,
// one node or three, on loopback. It knows nothing of package testing.
//
// It needs java (17 or later) and, until the jars are in the cache, mvn.
//
// Laws:
//
//   - Only the Java processes that this package started are signalled, by pid.
//   - A node is ready when it acknowledged a record, not when a port is open.
//   - When this process dies, however it dies, its nodes are killed and their
//     directories go (package guard).
//
// Start with New, or with NewSetup and Attach for a node that something else
// runs, for example in a container, and that needs no java here. CreateTopic
// and Dump work on any cluster, kfake included.
package kafkaserver
