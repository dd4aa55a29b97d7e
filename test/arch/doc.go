// Package arch holds the tests that enforce the shape of the repository:
// which package may import which, what each may use from outside, how long
// files and functions may be, that no test sleeps, and that every package says
// what it is for.
//
// The rules are in rules_test.go, as tables. Each rule is also run against
// sources that break it, because a rule that cannot fail is none.
package arch
