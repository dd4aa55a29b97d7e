package kafkaserver

import (
	"fmt"
	"io"
	"slices"
)

// Listener is one of the ways into a node.
type Listener string

// Every cluster has Plain; the others come when Options name them.
const (
	Plain   Listener = "PLAIN"   // no TLS, no password
	TLS     Listener = "TLS"     // TLS; a client certificate is taken, not demanded
	SASL    Listener = "SASL"    // PLAIN and SCRAM without TLS
	SASLTLS Listener = "SASLTLS" // PLAIN and SCRAM over TLS
)

// protocols are the names of Kafka's own for the listeners.
var protocols = map[Listener]string{
	Plain: "PLAINTEXT", TLS: "SSL", SASL: "SASL_PLAINTEXT", SASLTLS: "SASL_SSL", controller: "PLAINTEXT",
}

// controller is the listener of the quorum; clients do not use it.
const controller Listener = "CONTROLLER"

// User can log in on the SASL listeners by PLAIN, SCRAM-SHA-256 and
// SCRAM-SHA-512.
type User struct{ Name, Password string }

// DefaultUser is there when Options name no users.
var DefaultUser = User{Name: "relay", Password: "relay-secret"}

// Options says which cluster is wanted. The zero value is one node with the
// plain listener.
type Options struct {
	Nodes     int // 1 or 3; 0 = 1
	Listeners []Listener
	Users     []User // none = DefaultUser
	// Settings win over the defaults, on every node.
	Settings map[string]string
	// JVM are further arguments of the nodes' Java; they win over the defaults,
	// which favour a quick start. A benchmark wants -XX:TieredStopAtLevel=4.
	JVM []string
	// Progress is told about a download; nil is silent.
	Progress io.Writer
}

// complete checks o and fills in what is left out.
func (o Options) complete() (Options, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Nodes != 1 && o.Nodes != 3 {
		return o, fmt.Errorf("choosing %d Kafka nodes: 1 and 3 are supported", o.Nodes)
	}
	listeners := []Listener{Plain}
	for _, l := range o.Listeners {
		if _, ok := protocols[l]; !ok || l == controller {
			return o, fmt.Errorf("choosing Kafka listener %q: no such listener", l)
		}
		if !slices.Contains(listeners, l) {
			listeners = append(listeners, l)
		}
	}
	o.Listeners = listeners
	if len(o.Users) == 0 {
		o.Users = []User{DefaultUser}
	}
	return o, nil
}

func (o Options) has(any ...Listener) bool {
	return slices.ContainsFunc(any, func(l Listener) bool { return slices.Contains(o.Listeners, l) })
}
