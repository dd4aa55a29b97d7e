//go:build containers

package harness

import (
	"os"
	"testing"
)

// Law: where variables ask for it, the same call gives a server in a container.
func TestContainerServesDatabases(t *testing.T) {
	if os.Getenv(EnvContainers) != "1" {
		t.Skip("NOT RUN: " + EnvContainers + " is not 1")
	}
	if os.Getenv(envImage) == "" {
		t.Setenv(envImage, "postgres:17")
	}
	d := StartPostgres(t, PostgresOptions{}).CreateDatabase(t)
	d.Exec(t, "select pg_create_logical_replication_slot('s', 'pgoutput')")
	if got := d.Query1(t, "show wal_level"); got != "logical" {
		t.Errorf("wal_level is %s", got)
	}
	if err := d.Server().Server.Start(t.Context()); err == nil {
		t.Error("a server that belongs to a container was started")
	}
}
