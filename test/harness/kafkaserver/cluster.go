package kafkaserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/certs"
	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// Cluster is a Kafka cluster of one or three nodes, numbered from 1, each of
// them broker and controller. It lives until Close, at the latest until this
// process ends. Methods are safe for concurrent use on different nodes.
type Cluster struct {
	options Options
	java    string
	lib     string // the jars
	dir     string // certificates, and a directory per node
	id      string // cluster id
	ca      *certs.Authority
	nodes   []*node
	probes  atomic.Int64 // topics used to ask for readiness
}

// New formats and starts a cluster. It returns when a record was acknowledged
// by all nodes. Errors that wrap ErrMissing mean that Kafka cannot be had on
// this machine.
func New(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	path, err := java()
	if err != nil {
		return nil, err
	}
	lib, err := Fetch(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		c := &Cluster{options: o, java: path, lib: lib}
		err := c.create(ctx)
		if err == nil {
			return c, nil
		}
		taken := strings.Contains(c.LogTail(), "Address already in use")
		err = errors.Join(fmt.Errorf("creating a Kafka cluster: %w\n%s", err, c.LogTail()), c.Close())
		if !taken || try == 3 {
			return nil, err
		}
	}
}

func (c *Cluster) create(ctx context.Context) (err error) {
	if c.dir, err = guard.Dir("kafka"); err != nil {
		return err
	}
	if c.id, err = uuid(); err != nil {
		return err
	}
	if c.options.has(TLS, SASLTLS) {
		if err := c.writeCertificates(); err != nil {
			return fmt.Errorf("writing certificates: %w", err)
		}
	}
	if err := os.WriteFile(c.dir+"/log4j2.properties", []byte(logging), 0o600); err != nil {
		return err
	}
	for i := range c.options.Nodes {
		n, err := newNode(i+1, c.options.Listeners)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.format(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.launch(n); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// uuid is random, and written as Kafka does. One that begins with a dash would
// be taken for an option.
func uuid() (string, error) {
	for {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return "", fmt.Errorf("making an id: %w", err)
		}
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id, nil
		}
	}
}

func (c *Cluster) writeCertificates() error {
	ca, err := certs.New()
	if err != nil {
		return err
	}
	pair, err := ca.Issue("localhost")
	if err != nil {
		return err
	}
	c.ca = ca
	return errors.Join(
		os.WriteFile(c.CAFile(), ca.PEM(), 0o644),
		os.WriteFile(c.dir+"/server.pem", append(pair.Key, pair.Cert...), 0o600),
	)
}

// CAFile is the authority of the nodes' certificates; it exists with a TLS
// listener only.
func (c *Cluster) CAFile() string { return filepath.Join(c.dir, "ca.pem") }

// TLSConfig is good for a client of a TLS listener. A name that is not "" makes
// it show a client certificate with that common name.
func (c *Cluster) TLSConfig(name string) (*tls.Config, error) {
	if c.ca == nil {
		return nil, errors.New("making a TLS configuration: the cluster has no TLS listener")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.ca.PEM())
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name == "" {
		return config, nil
	}
	pair, err := c.ca.Issue(name)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading a client certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{cert}
	return config, nil
}

// Nodes is how many nodes the cluster has, running or not.
func (c *Cluster) Nodes() int { return len(c.nodes) }

// Brokers gives the addresses of the plain listener of all nodes.
func (c *Cluster) Brokers() []string { return c.BrokersOf(Plain) }

// BrokersOf gives the addresses of a listener that Options named.
func (c *Cluster) BrokersOf(l Listener) []string {
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.address(l))
	}
	return addresses
}

// Close kills the nodes that run and removes everything they had. A second call
// does nothing.
func (c *Cluster) Close() error {
	var err error
	for _, n := range c.nodes {
		err = errors.Join(err, n.kill(), n.remove())
	}
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// LogTail is the end of the nodes' logs without the frames of Java's stacks,
// for messages.
func (c *Cluster) LogTail() string {
	var b strings.Builder
	for _, n := range c.nodes {
		text := strings.TrimSpace(n.log())
		if text == "" {
			continue
		}
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "\tat ")
		})
		fmt.Fprintf(&b, "node %d:\n%s\n", n.id, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
	return b.String()
}
