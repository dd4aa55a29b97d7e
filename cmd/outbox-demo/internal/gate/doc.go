// Package gate is a TCP proxy with a door: while the door is shut, every
// connection through it is cut and every new one is refused with a reset. The
// demo puts it before its broker, so that a stopped broker looks to the relay
// as a real one does, and counts what the stop really did.
//
// It refuses to look into the bytes.
//
// Law: a shut gate carries no byte in either direction, and Cut and Refused
// count connections that were there, never attempts that were only meant.
//
// Start with Listen.
package gate
