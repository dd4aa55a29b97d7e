package pgserver

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user that servers run as. The zero value is this user.
type owner struct {
	uid, gid int
	other    bool // true: not this user, so files must be handed over
}

// serverOwner picks an unprivileged user where this process is root.
func serverOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID == nil && errGID == nil {
			return owner{uid: uid, gid: gid, other: true}, nil
		}
	}
	return owner{}, fmt.Errorf("choosing a user for the server: running as root and there is no user postgres or nobody")
}

func (o owner) attr() *syscall.SysProcAttr {
	if !o.other {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: uint32(o.uid), Gid: uint32(o.gid), NoSetGroups: true,
	}}
}

// give hands a tree over to the server's user.
func (o owner) give(root string) error {
	if !o.other {
		return nil
	}
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, o.uid, o.gid)
	})
}

// writeFile writes a file that the server's user owns.
func (o owner) writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, data, mode); err != nil {
		return err
	}
	if !o.other {
		return nil
	}
	return os.Chown(path, o.uid, o.gid)
}
