package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	relayName    = "outbox-relay"
	relayPackage = "github.com/outboxrelay/outbox-relay/cmd/outbox-relay"
)

// findRelay gives the path of the relay's binary and says where it is from: the
// one that was asked for, else one built into dir, else the one beside this
// program.
func findRelay(ctx context.Context, asked, dir string) (path, from string, err error) {
	if asked != "" {
		if path, err = filepath.Abs(asked); err != nil {
			return "", "", fmt.Errorf("finding %s: %w", asked, err)
		}
		return path, "as given", runnable(path)
	}
	if sourceAtHand(ctx) {
		path = filepath.Join(dir, relayName)
		return path, "built from the source at hand", build(ctx, path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", fmt.Errorf("finding this program's own path: %w", err)
	}
	path = filepath.Join(filepath.Dir(self), relayName)
	if err := runnable(path); err != nil {
		return "", "", fmt.Errorf("finding outbox-relay: name it with --relay, or run from the source's directory with go in the PATH, or put it beside this program: %w", err)
	}
	return path, "beside this program", nil
}

func runnable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

// sourceAtHand says whether go can see the relay's package from here.
func sourceAtHand(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "go", "list", relayPackage).Run() == nil
}

// build uses "go run" to copy the program rather than to run it: go keeps what
// it links for go run, so a second demo does not link again (10 times cheaper
// than go build -o, which always links).
func build(ctx context.Context, path string) error {
	out, err := exec.CommandContext(ctx, "go", "run", "-exec", "cp", relayPackage, path).CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("building outbox-relay: %w\n%s", err, out)
	}
	return runnable(path)
}
