package rig

import (
	"bytes"
	"sync"
)

// Log is what a process has written. It may be read while the process runs.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String gives all that was written up to now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Tail gives at most the last n bytes of s.
func Tail(s string, n int) string { return s[max(0, len(s)-n):] }
