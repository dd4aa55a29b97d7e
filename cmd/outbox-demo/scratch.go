package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// keeper waits for the end of its input, which comes with the end of this
// process however it dies. Then it kills the relay that is noted, if one is,
// and removes the directory.
const keeper = `
trap '' INT TERM HUP
pid=
while read -r line; do pid=$line; done
[ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
rm -rf "$1"
`

// scratch is a temporary directory that cannot outlive this process, nor can
// the one child that is noted in it. Its methods are safe for concurrent use.
type scratch struct {
	dir  string
	cmd  *exec.Cmd
	mu   sync.Mutex // guards writes to the keeper
	note io.WriteCloser
}

func newScratch() (*scratch, error) {
	dir, err := os.MkdirTemp("", "outbox-demo-")
	if err != nil {
		return nil, fmt.Errorf("making a temporary directory: %w", err)
	}
	cmd := exec.Command("/bin/sh", "-c", keeper, "outbox-demo-keeper", dir)
	// Its own group: Ctrl-C at a terminal must not end it before its work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = "/"
	note, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the keeper of %s: %w", dir, err), os.Remove(dir))
	}
	return &scratch{dir: dir, cmd: cmd, note: note}, nil
}

// hold notes the child to kill if this process dies; 0 notes that it ended.
func (s *scratch) hold(pid int) {
	line := "\n"
	if pid != 0 {
		line = fmt.Sprintf("%d\n", pid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.note, line)
}

// Close removes the directory.
func (s *scratch) Close() error {
	if err := errors.Join(s.note.Close(), s.cmd.Wait()); err != nil {
		return fmt.Errorf("removing %s: %w", s.dir, errors.Join(err, os.RemoveAll(s.dir)))
	}
	return nil
}
