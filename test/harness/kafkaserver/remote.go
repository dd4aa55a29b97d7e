package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// RemotePort is where the plain listener of a node made by NewSetup listens.
const RemotePort = 9092

// A node elsewhere has the layout of Kafka's distribution in remoteHome, and
// writes below /tmp, as any user may.
const (
	remoteHome    = "/opt/kafka"
	remoteDir     = "/tmp/outbox-relay"
	remoteConfig  = "/tmp/outbox-relay.properties"
	remoteLogging = "/tmp/outbox-relay-log4j2.properties"
)

// ErrRemote is wrapped by NewSetup where only a cluster of New will do.
var ErrRemote = errors.New("only one node with the plain listener alone can run elsewhere")

// Setup is what a node needs that runs elsewhere, for example in a container of
// the image apache/kafka.
type Setup struct {
	Files   map[string][]byte // by path; readable by everybody
	Env     map[string]string // for the scripts of Kafka's distribution
	Command []string          // formats the data directory once, then becomes the node
}

// NewSetup configures a node elsewhere. It listens on RemotePort of all
// addresses there; clients reach that at address (host:port).
func NewSetup(o Options, address string) (Setup, error) {
	o, err := o.complete()
	if err != nil {
		return Setup{}, err
	}
	if o.Nodes > 1 || len(o.Listeners) > 1 {
		return Setup{}, ErrRemote
	}
	id, err := uuid()
	if err != nil {
		return Setup{}, err
	}
	n := &node{id: 1, dir: remoteDir, outside: address}
	c := &Cluster{options: o, id: id, nodes: []*node{n}}
	script := fmt.Sprintf("set -e\n[ -e %s/meta.properties ] || %s format -t %s -c %s\nexec %s %[4]s",
		n.data(), remoteHome+"/bin/kafka-storage.sh", id, remoteConfig, remoteHome+"/bin/kafka-server-start.sh")
	return Setup{
		Files: map[string][]byte{remoteConfig: format(c.properties(n)), remoteLogging: []byte(logging)},
		Env: map[string]string{
			"KAFKA_HEAP_OPTS":            strings.Join(slices.Concat(jvmDefaults, o.JVM), " "),
			"KAFKA_JVM_PERFORMANCE_OPTS": "-server", // unset would choose another collector
			"KAFKA_LOG4J_OPTS":           "-Dlog4j2.configurationFile=" + remoteLogging,
			"EXTRA_ARGS":                 "-name kafkaServer", // unset would log each collection
		},
		Command: []string{"sh", "-c", script},
	}, nil
}

// Process is one run of a node, here or elsewhere. Its methods are safe for
// concurrent use.
type Process interface {
	// Pid is the process id where this program can see the process; it may be
	// gone. Elsewhere it may be 0.
	Pid() int
	// Running says whether the node has not ended yet.
	Running() bool
	// Err says how it ended: nil while it runs and after exit code 0.
	Err() error
	// Signal sends a signal. A node that has ended is no error.
	Signal(os.Signal) error
	// Stop sends a signal and waits for the end; when the context ends first,
	// the node is killed.
	Stop(context.Context, os.Signal) error
}

// Remote is a node with a Setup that something else runs.
type Remote struct {
	Address string                  // what NewSetup was given
	Launch  func() (Process, error) // starts the node, and starts it again
	Log     func() string           // what the node has said, at least its end
}

// Attach launches a node elsewhere and returns when it acknowledged a record
// through its address. Everything works on such a cluster but a second node and
// other listeners. Close kills the node; what it had is the caller's to remove.
func Attach(ctx context.Context, r Remote) (*Cluster, error) {
	host, text, err := net.SplitHostPort(r.Address)
	if err != nil {
		return nil, fmt.Errorf("reading a Kafka node's address: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("reading a Kafka node's port: %w", err)
	}
	o, err := Options{}.complete()
	if err != nil {
		return nil, err
	}
	n := &node{id: 1, host: host, ports: map[Listener]int{Plain: port}, remote: &r}
	c := &Cluster{options: o, nodes: []*node{n}}
	err = c.launch(n)
	if err == nil {
		err = c.WaitReady(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a Kafka node: %w\n%s", err, c.LogTail()), c.Close())
	}
	return c, nil
}
