// Package certs makes a throw-away certificate authority and certificates for
// servers and clients on loopback.
package certs
