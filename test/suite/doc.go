// Command suite is the test runner of this repository, what make test calls.
//
// Before anything runs it prints which tiers of parts this machine has
// (PostgreSQL majors, real Kafka, Docker) and the one command that brings each
// missing one; then it fetches what the tiers need, and runs go test through
// gotestsum. Its last lines name each tier that was NOT RUN.
//
// With CI=true a missing tier is a failure before the first test; Docker
// alone is never demanded.
//
//	go run ./test/suite [-tier unit|pg|kafka|all] [-race] [-run PATTERN] [packages]
package main
