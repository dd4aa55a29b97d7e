// Package verdict compares what is in the topics with what is in the table, and
// says what the relay did with it: lost, out of order, more than once, never
// committed, altered.
//
// It refuses to believe anybody's counters: not the relay's, not the writers',
// not the live reader's. Rows come from the table, records from the topics,
// read again from their beginning when all has ended.
//
// Laws:
//
//   - A row is lost if it is committed in the table and in no topic.
//   - Order is that of the numbers that the writers took inside their
//     transactions, under a lock, for each aggregate: the order of commits.
//     Only first copies are compared; a later copy is a duplicate.
//   - Good means that nothing at all was found, and that there was something
//     to look at.
//
// Start with Judge.
package verdict
