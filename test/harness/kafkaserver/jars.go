package kafkaserver

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/cache"
)

// Version is the version of Apache Kafka that pom.xml names.
const Version = "4.3.1"

// oldestJava is what Kafka 4 needs.
const oldestJava = 17

// ErrMissing is wrapped by errors that say that Kafka cannot be had here.
var ErrMissing = errors.New("there is no Apache Kafka")

//go:embed pom.xml
var pom []byte

//go:embed jars.sha256
var digests string

const cacheName = "kafka-" + Version

// Available says why Kafka cannot be had on this machine, nil when it can,
// perhaps after a download.
func Available() error {
	if _, err := java(); err != nil {
		return err
	}
	if Cached() {
		return nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("%w: its jars are not in the cache and there is no mvn to fetch them", ErrMissing)
	}
	return nil
}

// Cached says whether the jars are on the machine.
func Cached() bool {
	dir, err := cache.Dir(cacheName)
	if err != nil {
		return false
	}
	_, err = os.Stat(dir)
	return err == nil
}

// java gives the path of a Java that is new enough. It asks once per process,
// because the question itself starts a Java.
var java = sync.OnceValues(findJava)

func findJava() (string, error) {
	path := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("%w: there is no java (%d or later)", ErrMissing, oldestJava)
	}
	out, err := exec.Command(path, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: asking %s for its version: %w", ErrMissing, path, err)
	}
	if major := javaMajor(string(out)); major < oldestJava {
		return "", fmt.Errorf("%w: %s is version %d, want %d or later", ErrMissing, path, major, oldestJava)
	}
	return path, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func javaMajor(text string) int {
	m := javaVersion.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(m[1])
	return major
}

// Fetch gives the directory of the jars. The first time on a machine it lets
// mvn fetch them (54 MB) and compares each with its recorded digest.
func Fetch(ctx context.Context, progress io.Writer) (lib string, err error) {
	if err := Available(); err != nil {
		return "", err
	}
	if progress == nil {
		progress = io.Discard
	}
	lib, err = cache.Fill(ctx, cacheName, func(dir string) error {
		_, _ = fmt.Fprintf(progress, "fetching Apache Kafka %s with mvn (54 MB, once)\n", Version)
		return fetch(ctx, dir)
	})
	if err != nil {
		return "", fmt.Errorf("%w: fetching its jars: %w", ErrMissing, err)
	}
	return lib, nil
}

func fetch(ctx context.Context, dir string) error {
	work, err := os.MkdirTemp("", "outbox-relay-pom-")
	if err != nil {
		return fmt.Errorf("making a working directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+dir)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running mvn: %w\n%s", err, out)
	}
	return verify(dir)
}

// verify wants exactly the recorded jars, each with its digest.
func verify(dir string) error {
	known := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(digests))
	for lines.Scan() {
		want, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			return fmt.Errorf("reading jars.sha256: %q", lines.Text())
		}
		got, err := cache.SHA256(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("checking %s: sha256 is %s, want %s", name, got, want)
		}
		known[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !known[e.Name()] {
			return fmt.Errorf("checking the jars: %s is not recorded", e.Name())
		}
	}
	return nil
}
