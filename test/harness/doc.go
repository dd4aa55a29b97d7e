// Package harness gives tests real parts: PostgreSQL servers of any major from
// 14 to 18, Apache Kafka clusters, and franz-go's in-process kfake. Every part
// belongs to the test that asked for it, listens on loopback only, and is
// stopped and removed when that test ends, also when it panics or its process
// is killed.
//
// With the build tag containers and EnvContainers=1, PostgreSQL and Kafka come
// from Docker images instead, where an image is named and can do what the test
// asks for. There the engine's own reaper removes what a killed process left.
//
// Laws:
//
//   - Only processes that this package started are ever signalled, by pid.
//   - A part that cannot be had makes the test fail when CI=true and skip with
//     the words NOT RUN elsewhere (see Need). It is never replaced in silence.
//   - Nothing here waits by sleeping: it polls a condition with a deadline.
//
// The work is done in pgserver and kafkaserver, which do not know package
// testing and serve demos and benchmarks too; here are the thin wrappers.
// Start with StartPostgres, SharedPostgres, StartKafka and StartKfake.
package harness
