// Package admin answers questions about the running relay over HTTP: does it
// live, is it ready, what do its metrics say.
//
// It refuses to change anything: every route is GET or HEAD, nothing is read
// from a request but the query of /readyz, and no request reaches Postgres or
// Kafka. It is safe to show to a monitoring network.
//
// Its laws:
//
//   - /livez fails only when the relay's own loop is stuck. An outage of
//     Postgres or Kafka never makes an orchestrator restart the relay in a
//     circle.
//   - /readyz says why not, in plain words, in its first line.
//   - A client that is slow, or many at once, cost bounded memory and never
//     the relay's own work.
//
// Start with Open, then Server.Run, then Health.
package admin
