package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envRole makes this test binary play the process that dies.
const envRole = "OUTBOX_RELAY_GUARD_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		play(role)
	}
	os.Exit(m.Run())
}

// play starts a guarded child, says where, and dies as told.
func play(role string) {
	dir, err := Dir("victim")
	if err != nil {
		panic(err)
	}
	p, err := Start(exec.Command("sleep", "600"), dir, "TERM")
	if err != nil {
		panic(err)
	}
	fmt.Println(dir, p.Pid())
	switch role {
	case "panic":
		panic("as the test wants")
	case "return":
		os.Exit(0)
	default: // waits to be killed
		select {}
	}
}

// Law: child and directory go when their process ends, however it ends.
func TestNothingOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"return", "panic", "kill"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envRole+"="+role)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var dir string
			var pid int
			if _, err := fmt.Sscan(line, &dir, &pid); err != nil {
				t.Fatal(err)
			}
			if role == "kill" {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err = Poll(ctx, "the end of "+strings.TrimSpace(line), nil, func() (bool, error) {
				_, err := os.Stat(dir)
				return os.IsNotExist(err) && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Law: Stop ends a child that ignores its signal when the context ends, and
// says so.
func TestStopKillsInTheEnd(t *testing.T) {
	t.Parallel()
	dir, err := Dir("stubborn")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; touch ready; while :; do sleep 1; done")
	cmd.Dir = dir
	p, err := Start(cmd, dir, "KILL")
	if err != nil {
		t.Fatal(err)
	}
	err = Poll(t.Context(), "the trap", p.Done(), func() (bool, error) {
		_, err := os.Stat(dir + "/ready")
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx, syscall.SIGTERM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop gave %v", err)
	}
	if p.Running() || p.Err() == nil {
		t.Errorf("running %v, ended by %v", p.Running(), p.Err())
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal after the end: %v", err)
	}
}
