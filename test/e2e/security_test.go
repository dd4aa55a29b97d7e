package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// nasty is a password of everything that breaks naive connection strings.
const nasty = `p@ss:w/rd%25#?&=' "\x+ é`

// secret writes a password file as a secret store would mount it.
func secret(t *testing.T, password string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestServersThatDemandTLSAndPasswords proves that the relay works against
// servers that demand it: Postgres over verified TLS with SCRAM and a role
// without superuser, Kafka over verified TLS with PLAIN and both SCRAMs, all
// with a password full of special characters; and that no piece of it shows.
// Cases F54, F55 of docs/guarantees.md.
func TestServersThatDemandTLSAndPasswords(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.RealKafka)
	pg := harness.StartPostgres(t, harness.PostgresOptions{TLS: true, HBA: []string{
		"hostnossl all relay all reject", "hostssl all relay all scram-sha-256"}})
	k := harness.StartKafka(t, harness.KafkaOptions{
		Listeners: []kafkaserver.Listener{kafkaserver.Plain, kafkaserver.SASLTLS, kafkaserver.TLS},
		Users:     []kafkaserver.User{{Name: "relay", Password: nasty}}})
	s := newSite(t, pg, k)
	pg.CreateRole(t, "relay", nasty, "REPLICATION")
	s.db.Exec(t, `grant select, update (status, sent_at) on public.outbox to relay`)
	s.db.Exec(t, `grant usage on schema outbox_relay to relay; grant all on all tables in schema outbox_relay to relay; grant all on all sequences in schema outbox_relay to relay`)
	s.config["postgres"] = map[string]any{
		"replication":   fmt.Sprintf("host=localhost port=%d user=relay dbname=%s sslmode=verify-full sslrootcert=%s", pg.Port(), s.db.Name(), pg.CAFile()),
		"password_file": secret(t, nasty)}
	n := 0
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512", "none"} {
		listener, sasl := kafkaserver.SASLTLS, map[string]any{"mechanism": mechanism, "username": "relay", "password_file": secret(t, nasty)}
		if mechanism == "none" {
			listener, sasl = kafkaserver.TLS, map[string]any{}
		}
		s.config["kafka"] = map[string]any{"brokers": k.BrokersOf(listener),
			"tls": map[string]any{"enabled": true, "ca_file": k.CAFile()}, "sasl": sasl}
		p := s.start(t)
		p.ready()
		s.insert(t, "a", "b")
		s.settled(t)
		if n += 2; len(k.Dump(t, s.topic)) != n {
			t.Fatalf("%s: %d records, want %d", mechanism, len(k.Dump(t, s.topic)), n)
		}
		if got := s.db.Query1(t, `select bool_and(ssl)::text from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'relay'`); got != "true" {
			t.Fatalf("connections of the relay over TLS: %s", got)
		}
		p.stop()
		for _, piece := range []string{"p@ss", "w/rd", "%25#"} {
			if strings.Contains(p.log.String(), piece) {
				t.Fatalf("%s: the log shows a piece of the password", mechanism)
			}
		}
	}
}

// foreignAuthority writes a certificate that has signed nothing here.
func foreignAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody else"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestWrongAuthorityAndWrongPasswordAreRefused proves that verification is
// not only claimed: a certificate of another authority, and a wrong password,
// end the start with their exit codes.
func TestWrongAuthorityAndWrongPasswordAreRefused(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.PostgresOptions{TLS: true, HBA: []string{
		"hostnossl all relay all reject", "hostssl all relay all scram-sha-256"}})
	s := newSite(t, pg, harness.StartKfake(t, harness.KfakeOptions{}))
	pg.CreateRole(t, "relay", nasty, "REPLICATION")
	for name, c := range map[string]struct {
		authority, password string
		code                int
	}{
		"wrong authority": {foreignAuthority(t), nasty, 2},
		"wrong password":  {pg.CAFile(), "guess", 14},
	} {
		s.config["postgres"] = map[string]any{
			"replication":   fmt.Sprintf("host=localhost port=%d user=relay dbname=%s sslmode=verify-full sslrootcert=%s", pg.Port(), s.db.Name(), c.authority),
			"password_file": secret(t, c.password)}
		p := s.start(t)
		if got := p.exitCode(); got != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, got, c.code, tail(p.log.String(), 2000))
		}
		if strings.Contains(p.log.String(), "p@ss") {
			t.Errorf("%s: the output shows a piece of the password", name)
		}
	}
}
