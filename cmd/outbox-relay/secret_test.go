package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
)

// nasty breaks home-made parsers of every kind. Each of its pieces begins
// with Zq, so that any piece that leaks is found.
const (
	nasty  = `Zq1@Zq2:Zq3/Zq4%25Zq5#Zq6?Zq7&Zq8=Zq9' "Zqa\Zqb+ Zqcé${ZqD}$Zqe`
	canary = "Zq"
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func keywordQuoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// No part of a secret shows, whatever it is spelled like and whatever goes
// wrong: every command, at debug level, in both formats, with right and wrong
// connection strings, against servers that are dead or refuse the password.
// Cases F54, F55 of docs/guarantees.md.
func TestSecretsNeverShow(t *testing.T) {
	t.Parallel()
	server := harness.StartPostgres(t, harness.PostgresOptions{HBA: []string{"host all victim 127.0.0.1/32 scram-sha-256"}})
	server.CreateRole(t, "victim", "another password", "replication")
	live := fmt.Sprintf("127.0.0.1:%d", server.Port())
	host, port, _ := net.SplitHostPort(live)
	password := file(t, "password", nasty)
	encoded := func(host string) string {
		return (&url.URL{Scheme: "postgres", User: url.UserPassword("victim", nasty), Host: host, Path: "/postgres"}).String()
	}
	kafka := fmt.Sprintf("OUTBOX_RELAY_KAFKA__SASL__PASSWORD_FILE=%s", password)
	for name, env := range map[string][]string{
		"url, dead server":          {"OUTBOX_RELAY_POSTGRES__REPLICATION=" + encoded("127.0.0.1:1")},
		"url, password refused":     {"OUTBOX_RELAY_POSTGRES__REPLICATION=" + encoded(live)},
		"url, not encoded":          {"OUTBOX_RELAY_POSTGRES__REPLICATION=postgres://victim:" + nasty + "@" + live + "/postgres"},
		"database url, not encoded": {"DATABASE_URL=postgres://victim:" + nasty + "@" + live + "/postgres"},
		"keywords":                  {"OUTBOX_RELAY_POSTGRES__REPLICATION=host=" + host + " port=" + port + " user=victim dbname=postgres password=" + keywordQuoted(nasty)},
		"keywords, not quoted":      {"OUTBOX_RELAY_POSTGRES__REPLICATION=host=" + host + " port=" + port + " user=victim dbname=postgres password=" + nasty},
		"file, password refused":    {"OUTBOX_RELAY_POSTGRES__REPLICATION=postgres://victim@" + live + "/postgres", "OUTBOX_RELAY_POSTGRES__PASSWORD_FILE=" + password},
		"query alone":               {"OUTBOX_RELAY_POSTGRES__REPLICATION=postgres://victim@" + live + "/postgres", "OUTBOX_RELAY_POSTGRES__QUERY=" + encoded(live)},
		"query, not encoded":        {"OUTBOX_RELAY_POSTGRES__REPLICATION=postgres://victim@" + live + "/postgres", "OUTBOX_RELAY_POSTGRES__QUERY=postgres://victim:" + nasty + "@" + live},
	} {
		env = append(env, kafka, "OUTBOX_RELAY_KAFKA__SASL__MECHANISM=plain", "OUTBOX_RELAY_KAFKA__SASL__USERNAME=u", "OUTBOX_RELAY_KAFKA__BROKERS=127.0.0.1:1",
			"OUTBOX_RELAY_LOG__LEVEL=debug")
		for _, args := range [][]string{
			{"config", "print", "--show-origin"}, {"config", "print", "-o", "json"}, {"config", "validate"}, {"config", "validate", "-o", "json"},
			{"status"}, {"status", "-o", "json"}, {"slot", "list"}, {"slot", "create"}, {"slot", "drop", "--confirm", "x"}, {"migrate", "up"}, {"migrate", "status"},
			{"setup", "--print"}, {"setup", "--apply", "--yes"}, {"setup", "--apply"}, {"healthcheck"},
			{"run", "--listen", "127.0.0.1:0"}, {"run", "--listen", "127.0.0.1:0", "--log-format", "console"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			r := call(ctx, env, args...)
			cancel()
			if strings.Contains(r.out, canary) || strings.Contains(r.err, canary) {
				t.Errorf("%s: %v shows a piece of the secret:\n%s\n%s", name, args, r.out, r.err)
			}
		}
	}
}

// authority makes certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue gives a certificate and its key in PEM form, good for the name.
func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// serve gives a broker's TLS configuration, which demands a client
// certificate of this authority.
func (a *authority) serve(t *testing.T, name string) *tls.Config {
	t.Helper()
	cert, key := a.issue(t, name)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
}

// securedSite is a database that is reached over TLS with a nasty password.
func securedSite(t *testing.T) (db *harness.Database, settings string) {
	t.Helper()
	server := harness.StartPostgres(t, harness.PostgresOptions{TLS: true, HBA: []string{"hostssl all relay 127.0.0.1/32 scram-sha-256", "hostnossl all relay all reject"}})
	server.CreateRole(t, "relay", nasty, "replication", "superuser")
	db = server.CreateDatabase(t)
	return db, fmt.Sprintf("postgres:\n  replication: %q\n  password_file: %q\n", server.TLSDSN(db.Name(), "relay", ""), file(t, "pg", nasty+"\n"))
}

// Everything verified: Postgres by TLS and SCRAM, Kafka by mutual TLS and
// each SASL mechanism, with a password full of special characters from files.
// Events arrive, all connections of the relay are encrypted, and no piece of a
// secret is in the log.
func TestRunSecured(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	db, settings := securedSite(t)
	cert, key := ca.issue(t, "relay")
	for i, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		topic := "secured." + mechanism
		kafka := harness.StartKfake(t, harness.KfakeOptions{Options: []kfake.Opt{
			kfake.NumBrokers(1), kfake.TLS(ca.serve(t, "127.0.0.1")), kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "relay", nasty), kfake.SeedTopics(1, topic),
		}})
		config := writeConfig(t, settings+fmt.Sprintf(`kafka:
  brokers: [%q]
  tls: {enabled: true, ca_file: %q, cert_file: %q, key_file: %q}
  sasl: {mechanism: %s, username: relay, password_file: %q}
route: {template: %s}
log: {level: debug}
`, kafka.Brokers()[0], file(t, "ca", string(ca.pem)), file(t, "cert", string(cert)), file(t, "key", string(key)), mechanism, file(t, "kafka", nasty), topic))
		if r := call(t.Context(), nil, "setup", "--apply", "--yes", "-c", config); r.code != exitOK {
			t.Fatalf("setup: %+v", r)
		}
		d := start(t, nil, "-c", config)
		db.Exec(t, `insert into public.outbox (aggregate_type, event_type, payload) values ('a', 'b', 'c')`)
		d.until(t, mechanism+": the record", func() bool {
			return db.Query1(t, "select count(*) from public.outbox where status = 2") == fmt.Sprint(i+1)
		})
		plain := db.Query1(t, `select count(*) from pg_stat_activity a join pg_stat_ssl s using (pid) where a.usename = 'relay' and not s.ssl`)
		secured := db.Query1(t, `select count(*) from pg_stat_activity a join pg_stat_ssl s using (pid) where a.usename = 'relay' and s.ssl and a.backend_type = 'walsender'`)
		if plain != "0" || secured != "1" {
			t.Errorf("%s: %s connections in plain text, %s encrypted streams", mechanism, plain, secured)
		}
		if code := d.end(t); code != exitOK {
			t.Errorf("%s: ended with %d", mechanism, code)
		}
		if strings.Contains(d.err.String(), canary) {
			t.Errorf("%s: the log shows a piece of the secret:\n%s", mechanism, d.err.String())
		}
	}
}

// The same on a real Kafka, whose handshakes are its own.
func TestRunSecuredOnRealKafka(t *testing.T) {
	t.Parallel()
	kafka := harness.StartKafka(t, harness.KafkaOptions{Listeners: []kafkaserver.Listener{kafkaserver.SASLTLS}})
	user := kafkaserver.DefaultUser
	db, settings := securedSite(t)
	for i, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		topic := "secured." + mechanism
		kafka.CreateTopic(t, topic, 1, nil)
		config := writeConfig(t, settings+fmt.Sprintf("kafka:\n  brokers: [%q]\n  tls: {enabled: true, ca_file: %q}\n  sasl: {mechanism: %s, username: %s, password_file: %q}\nroute: {template: %s}\n",
			kafka.BrokersOf(kafkaserver.SASLTLS)[0], kafka.CAFile(), mechanism, user.Name, file(t, "kafka", user.Password+"\n"), topic))
		if r := call(t.Context(), nil, "setup", "--apply", "--yes", "-c", config); r.code != exitOK {
			t.Fatalf("setup: %+v", r)
		}
		d := start(t, nil, "-c", config)
		db.Exec(t, `insert into public.outbox (aggregate_type, event_type, payload) values ('a', 'b', 'c')`)
		d.until(t, mechanism+": the record", func() bool {
			return db.Query1(t, "select count(*) from public.outbox where status = 2") == fmt.Sprint(i+1)
		})
		if records := kafka.Dump(t, topic); len(records) != 1 {
			t.Errorf("%s: %d records", mechanism, len(records))
		}
		if code := d.end(t); code != exitOK || strings.Contains(d.err.String(), user.Password) {
			t.Errorf("%s: ended with %d:\n%s", mechanism, code, d.err.String())
		}
	}
}

// A broker whose certificate is for another name, or of another authority,
// gets nothing: the row keeps its status, and /readyz says why.
func TestKafkaTLSFailsClosed(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	for name, served := range map[string]*tls.Config{"another name": ca.serve(t, "other.example"), "another authority": stranger.serve(t, "127.0.0.1")} {
		served.ClientAuth = tls.NoClientCert
		kafka := harness.StartKfake(t, harness.KfakeOptions{Options: []kfake.Opt{kfake.NumBrokers(1), kfake.TLS(served), kfake.SeedTopics(1, "t")}})
		s := newSite(t, "route: {template: t}\n")
		s.must(t, "setup", "--apply", "--yes")
		d := start(t, []string{"OUTBOX_RELAY_KAFKA__BROKERS=" + kafka.Brokers()[0], "OUTBOX_RELAY_SHUTDOWN__GRACE=200ms", "OUTBOX_RELAY_KAFKA__TLS__ENABLED=true", "OUTBOX_RELAY_KAFKA__TLS__CA_FILE=" + file(t, "ca", string(ca.pem))}, "-c", s.file)
		s.Exec(t, `insert into public.outbox (aggregate_type, event_type, payload) values ('a', 'b', 'c')`)
		env := []string{"OUTBOX_RELAY_LISTEN__PROBES=" + d.listening(t)}
		d.until(t, name+": the reason", func() bool {
			r := call(t.Context(), env, "healthcheck", "--ready")
			return strings.Contains(r.out+r.err, "certificate")
		})
		if status := s.Query1(t, "select status from public.outbox"); status != "0" {
			t.Errorf("%s: the row says %s", name, status)
		}
		if code := d.end(t); code != exitOK {
			t.Errorf("%s: ended with %d", name, code)
		}
	}
}

// TLS that is asked for and cannot be had fails closed: a server without TLS,
// an unknown authority. The message says what
// to do, and the code is that of a configuration fault.
func TestTLSFailsClosed(t *testing.T) {
	t.Parallel()
	plain := harness.SharedPostgres(t, 0)
	secured := harness.StartPostgres(t, harness.PostgresOptions{TLS: true})
	other := file(t, "ca", string(newAuthority(t).pem))
	for name, dsn := range map[string]string{
		"no TLS":            fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=verify-full", plain.Port()),
		"no TLS, require":   fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=require", plain.Port()),
		"unknown authority": fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=verify-full sslrootcert=%s", secured.Port(), other),
	} {
		config := writeConfig(t, fmt.Sprintf("postgres: {replication: %q}\n", dsn))
		if r := call(t.Context(), nil, "status", "-c", config); r.code != exitUsage || r.out != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A connection to another machine without verification is allowed only by
// name, and is in the log at each start.
func TestInsecureIsLoggedAtEachStart(t *testing.T) {
	t.Parallel()
	config := writeConfig(t, "postgres: {replication: \"host=192.0.2.1 user=u sslmode=disable connect_timeout=1\", insecure: true}\nkafka: {brokers: [localhost:1]}\n")
	d := start(t, nil, "-c", config)
	d.until(t, "the warning", func() bool {
		return strings.Contains(d.err.String(), `"setting":"postgres.replication: plain text to 192.0.2.1:5432"`)
	})
}
