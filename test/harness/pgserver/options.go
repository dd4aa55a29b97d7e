package pgserver

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The majors that the product supports.
const (
	OldestMajor = 14
	NewestMajor = 18
)

// Options says which server is wanted. The zero value is a good one.
type Options struct {
	// Major is 14 to 18; 0 takes the newest that is on the machine, or else
	// downloads DefaultMajor.
	Major int
	// Settings go to the end of postgresql.conf and so win over the defaults.
	Settings map[string]string
	// TLS switches ssl on with a certificate for localhost and 127.0.0.1 that
	// CAFile signs.
	TLS bool
	// HBA lines come before the lines that trust everybody on loopback.
	HBA []string
	// InitArgs are further arguments for initdb.
	InitArgs []string
	// Durable switches fsync and full-page writes on.
	Durable bool
	// Progress is told about a download; nil is silent.
	Progress io.Writer
}

func (o Options) check() error {
	if o.Major != 0 && (o.Major < OldestMajor || o.Major > NewestMajor) {
		return fmt.Errorf("choosing PostgreSQL %d: majors %d to %d are supported", o.Major, OldestMajor, NewestMajor)
	}
	return nil
}

// defaults are the settings of every server.
func (o Options) defaults() map[string]string {
	s := map[string]string{
		"listen_addresses":          "127.0.0.1",
		"wal_level":                 "logical",
		"max_replication_slots":     "20",
		"max_wal_senders":           "20",
		"max_prepared_transactions": "20",
		"max_connections":           "100",
		"shared_buffers":            "32MB",
		"logging_collector":         "off",
		"log_replication_commands":  "on",
		"log_line_prefix":           "%m [%p] %q%a %d ",
		"timezone":                  "UTC",
		"log_timezone":              "UTC",
		"lc_messages":               "C",
	}
	if !o.Durable {
		s["fsync"], s["full_page_writes"] = "off", "off"
	}
	return s
}

// conf writes settings in a stable order, quoted.
func conf(settings map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return b.String()
}

// hba gives pg_hba.conf: the caller's lines first, then trust on loopback.
func hba(lines []string) string {
	const trust = "local all all trust\n" +
		"host all all 127.0.0.1/32 trust\n" +
		"local replication all trust\n" +
		"host replication all 127.0.0.1/32 trust\n"
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	return b.String() + trust
}

// Mode says how a server is stopped.
type Mode string

// The modes of pg_ctl, and the one that pg_ctl warns of.
const (
	Smart     Mode = "smart"     // waits for clients
	Fast      Mode = "fast"      // disconnects clients, writes a checkpoint
	Immediate Mode = "immediate" // a crash: recovery at the next start
	Kill      Mode = "kill"      // SIGKILL of the postmaster
)
