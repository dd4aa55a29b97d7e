package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// reaper waits for end of file on its input, then ends what is recorded under
// the root ($1) and removes it. A child gets its own stop signal first and
// SIGKILL after five seconds.
const reaper = `
trap '' INT TERM HUP
cat >/dev/null
each() { for f in "$1"/*/pid; do [ -r "$f" ] && read -r pid sig <"$f" && $2; done; }
ask() { kill -CONT "$pid"; kill -"$sig" "$pid"; }
force() { kill -KILL "$pid"; }
alive() { kill -0 "$pid" && left=1; }
each "$1" ask
n=0
while [ $n -lt 50 ]; do
  left=0; each "$1" alive; [ $left = 0 ] && break
  sleep 0.1; n=$((n+1))
done
each "$1" force
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
`

// root is the one directory of this process that holds all others.
var root struct {
	sync.Mutex
	path  string
	input io.Closer // never closed: its end is the end of this process
	next  int
}

// Dir makes a fresh directory with a short path. It is removed with everything
// in it when this process has ended; callers remove it earlier when they can.
// Safe for concurrent use.
func Dir(name string) (string, error) {
	root.Lock()
	defer root.Unlock()
	if root.path == "" {
		if err := startReaper(); err != nil {
			return "", fmt.Errorf("starting the guard of temporary directories: %w", err)
		}
	}
	root.next++
	dir := filepath.Join(root.path, name+"-"+strconv.Itoa(root.next))
	// 0711: a server that runs under another user must pass through.
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", fmt.Errorf("making directory for %s: %w", name, err)
	}
	return dir, nil
}

// base is short, because the path of a unix socket may hold some 100 bytes.
func base() string {
	if info, err := os.Stat("/tmp"); err == nil && info.IsDir() {
		return "/tmp"
	}
	return os.TempDir()
}

// startReaper is called with root locked.
func startReaper() error {
	path, err := os.MkdirTemp(base(), "outbox-relay-")
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o711); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	cmd := exec.Command("/bin/sh", "-c", reaper, "outbox-relay-guard", path)
	// Its own group: Ctrl-C at a terminal must not end it before its work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = "/"
	input, err := cmd.StdinPipe()
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	root.path, root.input = path, input
	return nil
}
