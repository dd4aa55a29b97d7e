// Package cache keeps downloaded parts (server binaries, jars) between runs,
// in one directory per user, with locks between processes.
package cache
