package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// DefaultMajor is downloaded when no major is asked for and none is installed.
const DefaultMajor = 17

// ErrMissing is wrapped by errors that say a server's binaries cannot be had.
var ErrMissing = errors.New("PostgreSQL binaries are missing")

// Source says where binaries come from.
type Source string

// The sources, in the order in which they are tried.
const (
	FromEnv      Source = "environment"
	FromMachine  Source = "machine"
	FromCache    Source = "cache"
	FromDownload Source = "download"
)

// EnvName is the variable that names the bin directory of a major.
func EnvName(major int) string { return fmt.Sprintf("OUTBOX_RELAY_TEST_PG_%d", major) }

// Find looks for the binaries of a major without downloading. Where only a
// download is left it gives FromDownload and no directory.
func Find(major int) (bin string, from Source, err error) {
	if dir := os.Getenv(EnvName(major)); dir != "" {
		if got := majorOf(dir); got != major {
			return "", "", fmt.Errorf("%w: %s=%s holds major %d", ErrMissing, EnvName(major), dir, got)
		}
		return dir, FromEnv, nil
	}
	for _, dir := range candidates(major) {
		if complete(dir) && majorOf(dir) == major {
			return dir, FromMachine, nil
		}
	}
	if dir, ok := cached(major); ok {
		return dir, FromCache, nil
	}
	if _, ok := downloads[major]; ok {
		return "", FromDownload, nil
	}
	return "", "", fmt.Errorf("%w: major %d: set %s to a bin directory", ErrMissing, major, EnvName(major))
}

// Fetch makes the binaries of a major available and gives their directory. It
// downloads when nothing else is left.
func Fetch(ctx context.Context, major int, progress io.Writer) (bin string, err error) {
	bin, from, err := Find(major)
	if err != nil || from != FromDownload {
		return bin, err
	}
	return download(ctx, major, progress)
}

// Choose settles major 0: the newest that is on the machine without this
// package, or else DefaultMajor. Any other major is given back.
func Choose(major int) int {
	if major != 0 {
		return major
	}
	for m := NewestMajor; m >= OldestMajor; m-- {
		if _, from, err := Find(m); err == nil && (from == FromEnv || from == FromMachine) {
			return m
		}
	}
	return DefaultMajor
}

// candidates are the places where packages put a server's programs.
func candidates(major int) []string {
	n := strconv.Itoa(major)
	dirs := []string{
		"/usr/lib/postgresql/" + n + "/bin",
		"/usr/pgsql-" + n + "/bin",
		"/opt/homebrew/opt/postgresql@" + n + "/bin",
		"/usr/local/opt/postgresql@" + n + "/bin",
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	return dirs
}

// complete says whether a bin directory has what tests need; test_decoding is
// a package of its own on some systems.
func complete(bin string) bool {
	for _, program := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return false
		}
	}
	lib := filepath.Join(bin, "..", "lib")
	for _, dir := range []string{lib, filepath.Join(lib, "postgresql")} {
		for _, ext := range []string{".so", ".dylib"} {
			if _, err := os.Stat(filepath.Join(dir, "test_decoding"+ext)); err == nil {
				return true
			}
		}
	}
	return false
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf asks the program; 0 when it does not answer.
func majorOf(bin string) int {
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1]))
	return major
}
