package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// Env names the variable that moves the cache elsewhere.
const Env = "OUTBOX_RELAY_TEST_CACHE"

// Dir gives the path of a directory in the cache, without making it. For root
// the user's own cache is out of the reach of the unprivileged user that runs
// a server, so the system's cache directory is used.
func Dir(elem ...string) (string, error) {
	root := os.Getenv(Env)
	if root == "" && os.Geteuid() == 0 {
		root = "/var/cache/outbox-relay"
	}
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's cache directory (set %s): %w", Env, err)
		}
		root = filepath.Join(user, "outbox-relay")
	}
	return filepath.Join(append([]string{root}, elem...)...), nil
}

// Fill returns the directory name of the cache, filled once: when it is not
// there, fill is called with an empty directory that takes its place when fill
// succeeds. A half-filled directory is never seen. Several processes may ask at
// once; one fills, the others wait until ctx ends.
func Fill(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	dir, err := Dir(name)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // another process was quicker
	}
	return dir, fillLocked(dir, fill)
}

func fillLocked(dir string, fill func(dir string) error) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), ".filling-")
	if err != nil {
		return fmt.Errorf("making a working directory: %w", err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	if err := fill(work); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	return os.Rename(work, dir)
}

// lock takes an advisory lock that the kernel frees when this process dies.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening lock file: %w", err)
	}
	err = guard.Poll(ctx, "the lock "+path, nil, func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// SHA256 gives the hexadecimal digest of a file.
func SHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hashing %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
