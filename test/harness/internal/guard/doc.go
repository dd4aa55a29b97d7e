// Package guard makes directories and child processes that cannot outlive the
// process that made them.
//
// One small shell waits for the end of this process: the write end of its
// standard input is held by this process alone, so it sees end of file however
// this process dies (return, panic, kill -9). It then stops the child
// processes that are still recorded and removes the directories. Servers that
// several tests share therefore need no TestMain.
//
// It refuses to touch any process or directory that it did not make.
package guard
