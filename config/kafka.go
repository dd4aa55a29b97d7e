package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// brokers gives every address with its port.
func (k Kafka) brokers() []string {
	all := make([]string, len(k.Brokers))
	for i, b := range k.Brokers {
		all[i] = withPort(b)
	}
	return all
}

// local says whether every broker named is on this machine. (The brokers may
// name others later; those are reached with the same transport security.)
func (k Kafka) local() bool {
	return !slices.ContainsFunc(k.brokers(), func(b string) bool {
		host, _, err := net.SplitHostPort(b)
		return err != nil || !loopback(host)
	})
}

func (k Kafka) tlsEnabled() bool { return k.TLS.Enabled.Or(!k.local()) }

// tlsConfig gives the transport security towards the brokers; nil is plain
// text. The client certificate is read at each handshake, so that a renewed
// one is used; the authorities are read now. The server's name is filled in
// per broker by the client.
func (k Kafka) tlsConfig() (*tls.Config, error) {
	if !k.tlsEnabled() {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: k.Insecure} // #nosec G402 -- asked for with insecure: true, and warned about
	if k.TLS.CAFile != "" {
		pem, err := readFile(k.TLS.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading kafka.tls.ca_file %s: %w", k.TLS.CAFile, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading kafka.tls.ca_file %s: no certificate in PEM form", k.TLS.CAFile)
		}
	}
	if k.TLS.CertFile != "" {
		if _, err := k.clientCertificate(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return k.clientCertificate()
		}
	}
	return c, nil
}

func (k Kafka) clientCertificate() (*tls.Certificate, error) {
	for _, f := range []struct{ key, name string }{{"cert_file", k.TLS.CertFile}, {"key_file", k.TLS.KeyFile}} {
		if _, err := readFile(f.name); err != nil {
			return nil, fmt.Errorf("reading kafka.tls.%s %s: %w", f.key, f.name, err)
		}
	}
	pair, err := tls.LoadX509KeyPair(k.TLS.CertFile, k.TLS.KeyFile)
	if err != nil {
		return nil, errors.New("reading kafka.tls.cert_file and key_file: they are not a certificate and its key in PEM form")
	}
	return &pair, nil
}

// saslMechanism gives the mechanism; nil is none. The password is read each
// time a connection is authenticated.
func (k Kafka) saslMechanism() sasl.Mechanism {
	s := k.SASL
	scramAuth := func(context.Context) (scram.Auth, error) {
		password, err := s.password()
		return scram.Auth{User: s.Username, Pass: password}, err
	}
	switch s.Mechanism {
	case "plain":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.Username, Pass: password}, err
		})
	case "scram-sha-256":
		return scram.Sha256(scramAuth)
	case "scram-sha-512":
		return scram.Sha512(scramAuth)
	}
	return nil
}

func (s SASL) password() (string, error) {
	password, err := readSecret(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("reading kafka.sasl.password_file %s: %w", s.PasswordFile, err)
	}
	return password, nil
}
