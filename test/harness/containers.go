//go:build containers

package harness

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/testcontainers/testcontainers-go"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// envImage names the image, for example postgres:17.
const envImage = "OUTBOX_RELAY_TEST_PG_IMAGE"

func init() { container = startContainer }

// startContainer starts the server in a container, which ends with the test.
// It gives false where the variables do not ask for one, or the options want
// what a container cannot do here.
func startContainer(t testing.TB, o PostgresOptions) (*Postgres, bool) {
	t.Helper()
	image := os.Getenv(envImage)
	if os.Getenv(EnvContainers) != "1" || image == "" || o.TLS || len(o.HBA)+len(o.InitArgs) > 0 {
		return nil, false
	}
	const password = "postgres"
	command := []string{"postgres", "-c", "wal_level=logical", "-c", "max_replication_slots=20", "-c", "max_wal_senders=20"}
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		command = append(command, "-c", name+"="+o.Settings[name])
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := testcontainers.Run(ctx, image, testcontainers.WithCmd(command...),
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": password}),
		testcontainers.WithExposedPorts("5432/tcp"))
	testcontainers.CleanupContainer(t, c)
	if err != nil {
		t.Fatalf("starting a container of %s: %v", image, err)
	}
	p, err := attachContainer(ctx, c, password)
	if err != nil {
		t.Fatal(err)
	}
	return p, true
}

// attachContainer waits for a login through the mapped port. Nothing less says
// that the server is there: the engine's proxy accepts connections before it,
// and a look from inside wants tools that an image may lack.
func attachContainer(ctx context.Context, c *testcontainers.DockerContainer, password string) (*Postgres, error) {
	host, err := c.Host(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the container's host: %w", err)
	}
	port, err := c.MappedPort(ctx, "5432/tcp")
	if err != nil {
		return nil, fmt.Errorf("asking for the container's port: %w", err)
	}
	var last error
	node := containerNode{c: c}
	p := &Postgres{}
	err = guard.Poll(ctx, "the server in the container", nil, func() (bool, error) {
		p.Server, last = pgserver.Attach(ctx, pgserver.Remote{Host: host, Port: int(port.Num()), Password: password})
		if last == nil {
			return true, nil
		}
		return false, node.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("%w; the last login: %w\nend of the container's log:\n%s", err, last, logTail(c))
	}
	return p, nil
}
