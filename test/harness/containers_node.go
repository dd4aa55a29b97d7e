//go:build containers

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// containerNode is a container as a kafkaserver.Process: one run of it after
// the other. engine may be nil where only Running and Err are asked.
type containerNode struct {
	c      *testcontainers.DockerContainer
	engine client.APIClient
}

// state asks the engine, within callTimeout.
func (n containerNode) state() (*api.State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	state, err := n.c.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the container's state: %w", err)
	}
	return state, nil
}

// Pid is the one on the engine's machine, 0 when the container has ended.
func (n containerNode) Pid() int {
	state, err := n.state()
	if err != nil {
		return 0
	}
	return state.Pid
}

func (n containerNode) Running() bool {
	state, err := n.state()
	return err == nil && state.Running
}

// Err says how the container ended, also with exit code 0; nil while it runs.
func (n containerNode) Err() error {
	state, err := n.state()
	switch {
	case err != nil:
		return err
	case state.Running:
		return nil
	case state.OOMKilled:
		return errors.New("the container ran out of memory")
	}
	return fmt.Errorf("the container ended with exit code %d", state.ExitCode)
}

func (n containerNode) Signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("sending %v to a container: not a number", sig)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := n.engine.ContainerKill(ctx, n.c.GetContainerID(), client.ContainerKillOptions{Signal: strconv.Itoa(int(number))})
	if err != nil && n.Running() {
		return fmt.Errorf("sending %v to the container: %w", sig, err)
	}
	return nil
}

func (n containerNode) Stop(ctx context.Context, sig os.Signal) error {
	if err := n.Signal(sig); err != nil {
		return err
	}
	if err := n.wait(ctx); err == nil || ctx.Err() == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := errors.Join(n.Signal(syscall.SIGKILL), n.wait(last)); err != nil {
		return err
	}
	return fmt.Errorf("waiting for the container after %v: %w", sig, ctx.Err())
}

func (n containerNode) wait(ctx context.Context) error {
	return guard.Poll(ctx, "the end of the container", nil, func() (bool, error) {
		state, err := n.state()
		return err == nil && !state.Running, err
	})
}

// containerLog is what a container has said, or why that is not known.
func containerLog(c *testcontainers.DockerContainer) string {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	r, err := c.Logs(ctx)
	if err != nil {
		return fmt.Sprintf("asking for the container's log: %v", err)
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Sprintf("reading the container's log: %v", err)
	}
	return string(text)
}

// logTail is the end of that.
func logTail(c *testcontainers.DockerContainer) string {
	lines := strings.Split(strings.TrimSpace(containerLog(c)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
