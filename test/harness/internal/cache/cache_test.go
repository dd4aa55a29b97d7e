package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Law: of many who ask at once, one fills; all get the whole directory. A
// failed fill leaves nothing, and the next one may succeed.
func TestFillOnce(t *testing.T) {
	t.Setenv(Env, t.TempDir())
	if _, err := Fill(t.Context(), "part", func(string) error { return errors.New("no") }); err == nil {
		t.Fatal("a failed fill passed")
	}
	var fills atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			dir, err := Fill(t.Context(), "part", func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if sum, err := SHA256(filepath.Join(dir, "file")); err != nil || sum[:8] != "2d711642" {
				t.Errorf("digest %s, %v", sum, err)
			}
		})
	}
	wait.Wait()
	if fills.Load() != 1 {
		t.Errorf("filled %d times", fills.Load())
	}
}

// Law: whoever waits for the lock of another gives up when its context ends.
func TestFillGivesUp(t *testing.T) {
	t.Setenv(Env, t.TempDir())
	filling, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := Fill(context.Background(), "part", func(string) error {
			close(filling)
			<-release
			return nil
		})
		done <- err
	}()
	<-filling
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Fill(ctx, "part", func(string) error { return errors.New("called twice") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second gave %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
