package chaos

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/rig"
)

// TestServersThatRefuse proves that a server which cannot decode or does not
// let the relay in ends the start with a code and words that name the cause,
// and nothing is published.
// Cases F23, F24, F54, F55, F59 of docs/guarantees.md.
func TestServersThatRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(t *testing.T, s *rig.Site)
		code int
		says string
	}{
		"wal_level of a replica":   {replicaLevel, 2, "server.wal_level"},
		"role without REPLICATION": {noReplication, 14, "REPLICATION"},
		"pg_hba.conf":              {func(t *testing.T, s *rig.Site) { asRole(t, s, "nosy") }, 14, "pg_hba.conf"},
		"server without TLS": {func(_ *testing.T, s *rig.Site) {
			s.Set("postgres", "replication", strings.Replace(s.DB.DSN(), "sslmode=disable", "sslmode=require", 1))
		}, 2, "server refused TLS connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := harness.StartPostgres(t, harness.PostgresOptions{HBA: []string{"host all nosy all reject", "local all nosy reject"}})
			s := rig.New(t, rig.Options{Postgres: pg, Kafka: harness.StartKfake(t, harness.KfakeOptions{})})
			s.Insert(t, "a")
			c.harm(t, s)
			refused(t, s, c.code, c.says)
		})
	}
}

// replicaLevel takes from the server what decoding needs.
func replicaLevel(t *testing.T, s *rig.Site) {
	t.Helper()
	s.DB.Exec(t, `select pg_drop_replication_slot($1)`, s.Slot())
	s.DB.Exec(t, `alter system set wal_level = 'replica'`)
	s.DB.Server().Restart(t)
	if got := s.DB.Query1(t, `show wal_level`); got != "replica" {
		t.Fatalf("wal_level is %s: the setting has not bitten", got)
	}
	s.Set("slot", "on_missing", "create")
}

// noReplication takes the attribute from the relay's own role.
func noReplication(t *testing.T, s *rig.Site) {
	t.Helper()
	asRole(t, s, "relay")
	s.DB.Exec(t, `alter role relay noreplication`)
	if got := s.DB.Query1(t, `select rolreplication or rolsuper from pg_roles where rolname = 'relay'`); strings.HasPrefix(got, "t") {
		t.Fatalf("the role may still replicate: %s", got)
	}
}
