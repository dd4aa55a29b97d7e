package sink

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// I4: every ticket gets exactly one outcome, whatever happens to its event on
// the way: acknowledged, refused by us or by the broker, diverted, blocked and
// healed, waiting for a topic, moved with its topic's partitions. (Answers that
// the client repeats are left to other tests: see drawPlan for the fake's one
// epoch.)
func TestEveryTicketGetsExactlyOneOutcome(t *testing.T) {
	t.Parallel()
	k := fake(t, 1)
	for _, topic := range []string{"fine", "poisoned", "shut", "grows"} {
		k.CreateTopic(t, topic, 3, map[string]string{"max.message.bytes": "3000"})
	}
	poisons(k.Cluster, "poisoned", 3, "POISON", kerr.InvalidRecord)
	shut := k.Cluster.Fault(kfake.Fault{Keys: produceKey, Topic: "shut", Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := start(t, k.Brokers(), plainCodec)
	topics := []string{"fine", "poisoned", "shut", "grows", "later", "no such name!"}
	for i := range 3000 {
		e := ev(topics[i%len(topics)], "k"+strconv.Itoa(i%31), i)
		switch {
		case i%97 == 0:
			e.Payload = make([]byte, 5000)
		case i%89 == 0:
			e.Headers = "["
		case i%83 == 0:
			e.Payload = []byte("POISON")
		case i%5 == 0:
			keyless(e)
		}
		r.publish(e)
		switch i {
		case 1000:
			r.blocked("later")
			k.CreateTopic(t, "later", 2, nil)
		case 1500:
			r.blocked("shut")
			shut.Remove()
		case 2000:
			if _, err := admin(t, k).CreatePartitions(t.Context(), 4, "grows"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.settle()
	acked := r.verdicts()[outbox.Acked]
	total := 0
	for _, topic := range topics[:5] {
		total += len(k.Dump(t, topic))
	}
	if total != acked {
		t.Errorf("%d acknowledged, %d records in the topics", acked, total)
	}
	turned := make(chan struct{})
	for range 20 { // whatever might still come has had its turns
		r.session.Beat()
		r.kafka.pump.box.call(func() { turned <- struct{}{} })
		<-turned
	}
	r.settle()
}

// A broker with TLS and SASL is used with the right words; with the wrong
// password everything waits and the reason is shown, without the password.
func TestTLSAndSASL(t *testing.T) {
	t.Parallel()
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Certificate())
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "a"), kfake.EnableSASL(),
		kfake.TLS(&tls.Config{Certificates: certificate.TLS.Certificates}),
		kfake.Superuser("PLAIN", "relay", "word"), kfake.Superuser("SCRAM-SHA-512", "relay", "word"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	secure := &tls.Config{RootCAs: roots}
	for name, change := range map[string]func(*Config){
		"PLAIN":         func(c *Config) { c.SASL = plain.Auth{User: "relay", Pass: "word"}.AsMechanism() },
		"SCRAM-SHA-512": func(c *Config) { c.SASL = scram.Auth{User: "relay", Pass: "word"}.AsSha512Mechanism() },
	} {
		r := start(t, k.ListenAddrs(), change, func(c *Config) { c.TLS = secure })
		r.publish(ev("a", name, 1))
		r.allAcked()
	}
	r := start(t, k.ListenAddrs(), func(c *Config) {
		c.TLS, c.SASL = secure, plain.Auth{User: "relay", Pass: "not the w0rd"}.AsMechanism()
	})
	r.kafka.pump.box.call(func() { r.kafka.pump.pace.request = 300 * time.Millisecond })
	r.publish(ev("a", "k", 1))
	eventually(t, "the address to be named", func() bool { return strings.Contains(r.blocked("").Reason, k.ListenAddrs()[0]) })
	if reason := r.blocked("").Reason; strings.Contains(reason, "w0rd") {
		t.Errorf("the password is shown: %s", reason)
	}
	findings, err := r.kafka.Check(t.Context(), []string{"a"})
	if err != nil || len(findings) != 1 || findings[0].Severity != Error {
		t.Errorf("check with a wrong password: %+v, %v", findings, err)
	}
	if r.decided() != 0 {
		t.Error("a row was charged for a wrong password")
	}
}
