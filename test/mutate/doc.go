// Command mutate proves that the tests would notice if a law of the product
// were broken. For each entry of its table it removes or inverts the line that
// makes a law true, runs the tests that are named for it, and demands that
// they fail; without the mutation the same tests must pass.
//
// Nothing in the checkout is touched: the mutated file goes to a temporary
// folder, and the go command is told of it by -overlay. A mutant that does not
// build kills nothing and is an error, and so is an entry whose text is not
// found exactly once: then the code has moved on and the table has not.
//
//	go run ./test/mutate [-only I5,I8] [-list] [-md] [-parallel N] [-seeds N] [-v]
//
// A mutant that survives is a hole in the tests. It is closed there, never by
// taking the mutant out. Start with table.go.
package main
