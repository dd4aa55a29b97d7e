// Package config reads the one strict YAML file of the relay, lays the
// environment and the flags over it, and turns the result into the Config of
// each package.
//
// It refuses to guess. An unknown key, an unknown environment variable of
// ours, a value of the wrong kind and two values that contradict each other
// are all mistakes, and all mistakes are reported at once, each with the place
// it came from. It refuses to show secrets: what a person may see is an
// allow-list (see key.show), and an error never quotes a value outside it.
//
// Its laws:
//
//   - flags win over the environment, the environment over files, a later
//     file over an earlier one, files over defaults.
//   - The table in reference.go is the only place that knows a key. Reading,
//     checking, the environment, print and example all walk that table, so
//     that none of them can forget a key.
//   - A secret is read when a connection is made, not when the file is read:
//     rotating a password needs no restart.
//   - TLS is verified unless the peer is on this machine. Anything weaker has
//     to be asked for with "insecure: true", and is named in
//     Loaded.Warnings.
//
// Start with Load, then Config, then reference.go.
package config
