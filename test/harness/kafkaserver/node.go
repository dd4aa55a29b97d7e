package kafkaserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// jvmDefaults keep a node at some 340 MB of memory, and halve what its start
// costs (seen: 3.1 CPU seconds instead of 6.7): the first compiler alone, and
// the collector without threads of its own.
var jvmDefaults = []string{"-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// node is one Java process and what it owns.
type node struct {
	id      int
	dir     string // "" when it runs elsewhere
	host    string
	ports   map[Listener]int
	remote  *Remote // who runs it elsewhere; nil = this package
	outside string  // the address that NewSetup was given, only there

	mu   sync.Mutex
	proc Process // nil before the first start
}

func newNode(id int, listeners []Listener) (*node, error) {
	dir, err := guard.Dir("kafka-node")
	if err != nil {
		return nil, err
	}
	n := &node{id: id, dir: dir, host: "127.0.0.1", ports: map[Listener]int{}}
	for _, l := range append([]Listener{controller}, listeners...) {
		if n.ports[l], err = guard.Port(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *node) address(l Listener) string {
	return net.JoinHostPort(n.host, strconv.Itoa(n.ports[l]))
}

func (n *node) logFile() string { return filepath.Join(n.dir, "log") }

// log gives what the node has said, "" where that cannot be had.
func (n *node) log() string {
	if n.remote != nil {
		return n.remote.Log()
	}
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		return ""
	}
	return string(text)
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }

func (n *node) config() string { return filepath.Join(n.dir, "server.properties") }

func (n *node) remove() error { return os.RemoveAll(n.dir) }

// running gives the process while it runs.
func (n *node) running() (Process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.Running() {
		return nil, fmt.Errorf("using Kafka node %d: it does not run", n.id)
	}
	return n.proc, nil
}

// kill ends the node at once; one that does not run is no error.
func (n *node) kill() error {
	p, err := n.running()
	if err != nil {
		return nil
	}
	return p.Stop(context.Background(), syscall.SIGKILL)
}

// format writes the configuration of each node and formats its data directory:
// the first one by Kafka's tool, the others as copies of it with an identity
// of their own, because each Java process costs a second or more of the CPU.
func (c *Cluster) format(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := os.WriteFile(n.config(), format(c.properties(n)), 0o600); err != nil {
			return err
		}
	}
	first := c.nodes[0]
	args := append(c.jvm(), "kafka.tools.StorageTool", "format", "-t", c.id, "-c", first.config())
	if c.options.has(SASL, SASLTLS) {
		for _, u := range c.options.Users {
			for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
				args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, u.Name, u.Password))
			}
		}
	}
	if out, err := exec.CommandContext(ctx, c.java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("formatting a data directory: %w\n%s", err, out)
	}
	for _, n := range c.nodes[1:] {
		if err := c.copyFormat(first, n); err != nil {
			return fmt.Errorf("copying a formatted data directory: %w", err)
		}
	}
	return nil
}

// copyFormat copies a fresh data directory. Its meta.properties must name the
// node and hold an id of the directory that no other has.
func (c *Cluster) copyFormat(from, to *node) error {
	if err := os.CopyFS(to.data(), os.DirFS(from.data())); err != nil {
		return err
	}
	id, err := uuid()
	if err != nil {
		return err
	}
	meta := format(map[string]string{
		"version": "1", "cluster.id": c.id, "node.id": strconv.Itoa(to.id), "directory.id": id,
	})
	return os.WriteFile(filepath.Join(to.data(), "meta.properties"), meta, 0o600)
}

// jvm gives the arguments that every Java process has. Java itself expands the
// asterisk.
func (c *Cluster) jvm() []string {
	args := append(slices.Clone(jvmDefaults), c.options.JVM...)
	return append(args, "-Dlog4j2.configurationFile="+c.dir+"/log4j2.properties", "-cp", c.lib+"/*")
}

// launch starts the process of a node and does not wait for it.
func (c *Cluster) launch(n *node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return fmt.Errorf("starting Kafka node %d: it runs already", n.id)
	}
	start := func() (Process, error) { return c.startJava(n) }
	if n.remote != nil {
		start = n.remote.Launch
	}
	p, err := start()
	if err != nil {
		return err
	}
	n.proc = p
	return nil
}

func (c *Cluster) startJava(n *node) (*guard.Process, error) {
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the node's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// Not CommandContext: the node outlives the context of its start.
	cmd := exec.Command(c.java, append(c.jvm(), "kafka.Kafka", n.config())...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	return guard.Start(cmd, n.dir, "KILL")
}

// node gives a node by its number.
func (c *Cluster) node(id int) (*node, error) {
	if id < 1 || id > len(c.nodes) {
		return nil, fmt.Errorf("using Kafka node %d: there are nodes 1 to %d", id, len(c.nodes))
	}
	return c.nodes[id-1], nil
}

// KillNode kills a node with SIGKILL and waits for its end.
func (c *Cluster) KillNode(id int) error { return c.endNode(context.Background(), id, syscall.SIGKILL) }

// StopNode asks a node to stop cleanly and waits for its end. When ctx ends
// first, the node is killed.
func (c *Cluster) StopNode(ctx context.Context, id int) error {
	return c.endNode(ctx, id, syscall.SIGTERM)
}

func (c *Cluster) endNode(ctx context.Context, id int, sig syscall.Signal) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	p, err := n.running()
	if err != nil {
		return err
	}
	return p.Stop(ctx, sig)
}

// StartNode starts a stopped node on its ports and waits until the nodes that
// run acknowledge a record together.
func (c *Cluster) StartNode(ctx context.Context, id int) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	if err := c.launch(n); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// PauseNode freezes a node with SIGSTOP: its connections stay open and nothing
// answers. ResumeNode lets it go on.
func (c *Cluster) PauseNode(id int) error { return c.signal(id, syscall.SIGSTOP) }

// ResumeNode ends PauseNode.
func (c *Cluster) ResumeNode(id int) error { return c.signal(id, syscall.SIGCONT) }

func (c *Cluster) signal(id int, sig syscall.Signal) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	p, err := n.running()
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

// Pid is the process id of a node, 0 when it does not run.
func (c *Cluster) Pid(id int) int {
	n, err := c.node(id)
	if err != nil {
		return 0
	}
	p, err := n.running()
	if err != nil {
		return 0
	}
	return p.Pid()
}
