//go:build containers

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

func init() {
	kafkaContainers = &containerMaker{
		asked: func() bool { return os.Getenv(EnvContainers) == "1" && os.Getenv(EnvKafkaImage) != "" },
		start: startKafkaContainer,
		share: shareKafkaContainer,
	}
}

// startKafkaContainer gives a node that ends with the test; false where the
// options want what a container cannot do.
func startKafkaContainer(t testing.TB, o KafkaOptions) (*Kafka, bool) {
	t.Helper()
	k, end := newKafkaContainer(t, o)
	if k == nil {
		return nil, false
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of Kafka's log:\n%s", k.LogTail())
		}
		if err := end(); err != nil {
			t.Errorf("removing Kafka's container: %v", err)
		}
	})
	return k, true
}

// sharing counts the tests that use the shared container. The last one removes
// it: nothing else is sure to do that when this process ends.
var sharing struct {
	sync.Mutex
	users int
	kafka *Kafka
	end   func() error
}

func shareKafkaContainer(t testing.TB) *Kafka {
	t.Helper()
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.users == 0 {
		sharing.kafka, sharing.end = newKafkaContainer(t, KafkaOptions{})
		sharing.kafka.shared = true
	}
	sharing.users++
	t.Cleanup(func() {
		sharing.Lock()
		defer sharing.Unlock()
		if sharing.users--; sharing.users > 0 {
			return
		}
		if err := sharing.end(); err != nil {
			t.Errorf("removing the shared container of Kafka: %v", err)
		}
	})
	return sharing.kafka
}

// newKafkaContainer starts a node and gives what ends it; nil where the options
// want what a container cannot do. Not t.Context(): a shared node outlives the
// test that came first.
func newKafkaContainer(t testing.TB, o KafkaOptions) (k *Kafka, end func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		k, end, err := tryKafkaContainer(ctx, os.Getenv(EnvKafkaImage), o.cluster(t))
		switch {
		case err == nil:
			return k, end
		case errors.Is(err, kafkaserver.ErrRemote):
			return nil, nil
		case !portTaken(err) || try == 3:
			t.Fatalf("starting a container of %s: %v", os.Getenv(EnvKafkaImage), err)
		}
	}
}

// portTaken says whether somebody took the port between its choice and its use.
func portTaken(err error) bool {
	return strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use")
}

func tryKafkaContainer(ctx context.Context, image string, o kafkaserver.Options) (*Kafka, func() error, error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, nil, fmt.Errorf("finding a Docker engine: %w", err)
	}
	at, err := publish(ctx, provider)
	if err != nil {
		return nil, nil, errors.Join(err, provider.Close())
	}
	setup, err := kafkaserver.NewSetup(o, at.address)
	if err != nil {
		return nil, nil, errors.Join(err, provider.Close())
	}
	c, err := testcontainers.Run(ctx, image, at.request(setup)...)
	end := func() error {
		return errors.Join(testcontainers.TerminateContainer(c), provider.Close())
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	cluster, err := kafkaserver.Attach(ctx, kafkaserver.Remote{
		Address: at.address,
		Launch:  func() (kafkaserver.Process, error) { return launch(c, provider.Client()) },
		Log:     func() string { return containerLog(c) },
	})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	k := &Kafka{Cluster: cluster, topics: topics{brokers: cluster.Brokers}}
	return k, func() error { return errors.Join(cluster.Close(), end()) }, nil
}

// launch starts a container, for the first time or again, on the same port.
func launch(c *testcontainers.DockerContainer, engine client.APIClient) (kafkaserver.Process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := engine.ContainerStart(ctx, c.GetContainerID(), client.ContainerStartOptions{}); err != nil {
		return nil, fmt.Errorf("starting the container: %w", err)
	}
	return containerNode{c: c, engine: engine}, nil
}

// place is where clients reach a node. It is chosen before the node starts,
// because the node tells it to them.
type place struct {
	address string
	binding network.PortBinding
}

func publish(ctx context.Context, provider *testcontainers.DockerProvider) (place, error) {
	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return place{}, fmt.Errorf("asking for the host of containers: %w", err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	port, err := guard.Port()
	if err != nil {
		return place{}, err
	}
	p := place{
		address: net.JoinHostPort(host, strconv.Itoa(port)),
		binding: network.PortBinding{HostPort: strconv.Itoa(port)},
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		p.binding.HostIP = ip
	}
	return p, nil
}

// request asks for a container that has its files but does not run yet.
func (p place) request(s kafkaserver.Setup) []testcontainers.ContainerCustomizer {
	inside := strconv.Itoa(kafkaserver.RemotePort) + "/tcp"
	var files []testcontainers.ContainerFile
	for path, content := range s.Files {
		files = append(files, testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: path, FileMode: 0o644,
		})
	}
	return []testcontainers.ContainerCustomizer{
		testcontainers.WithNoStart(),
		testcontainers.WithEntrypoint(s.Command...),
		testcontainers.WithCmd(),
		testcontainers.WithEnv(s.Env),
		testcontainers.WithFiles(files...),
		testcontainers.WithExposedPorts(inside),
		testcontainers.WithHostConfigModifier(func(c *api.HostConfig) {
			c.PortBindings = network.PortMap{network.MustParsePort(inside): {p.binding}}
		}),
	}
}
