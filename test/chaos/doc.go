// Package chaos hurts the built program, its database and its broker, and has
// the judge decide what became of the rows.
//
// Laws of its tests:
//
//   - A fault that was not seen to bite fails the test: an exit by SIGKILL, a
//     process id that changed, a line of a log, a row of the catalog.
//   - The verdict is the judge's, over everything that committed; no test
//     asserts a time, but for limits that the product states.
//   - Every wait has a deadline, every loop a bound.
//
// Start with failpoint_test.go: the relay is killed at each point of a row's
// path.
package chaos
