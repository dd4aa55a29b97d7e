// Command captures records what real servers send, for the golden tests of
// package decode. On a server of each major it runs script.sql, reads the
// result through two pgoutput slots, one in the text and one in the binary
// format, and writes each message as one line of hexadecimal digits.
//
// What differs from run to run is replaced in the messages, keeping order and
// equality: LSNs, commit times, transaction ids and the OIDs of what the script
// creates. So a new run changes a file only where the server or the script
// changed.
//
// Usage: go run ./test/captures [-out decode/testdata] [major ...]
//
// Without majors it records all that the relay supports. Package
// test/harness/pgserver says where the servers come from.
package main
