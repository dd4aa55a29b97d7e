// Command outbox-relay publishes the rows of an outbox table to Kafka.
//
// It refuses to start work by itself: without a command it prints help. Each
// command lives in a file of its own and says in its help what it reads and
// what it changes. Data goes to standard output, everything else to standard
// error; exit.go has all exit codes.
package main
