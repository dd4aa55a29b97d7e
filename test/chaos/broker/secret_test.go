package broker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// TestRotatedSecret proves that a password may change under load without a
// restart: a relay whose password is refused waits, says so, and goes on as soon
// as its file has the new one; one whose file and password change together never
// stops. The broker asks for the password again every five seconds, and every
// connection is cut besides.
// Case F43 of docs/guarantees.md.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	user := kafkaserver.User{Name: "outbox", Password: "first secret"}
	k := harness.StartKafka(t, harness.KafkaOptions{
		Listeners: []kafkaserver.Listener{harness.SASL}, Users: []kafkaserver.User{user},
		Settings: map[string]string{"connections.max.reauth.ms": "5000"}})
	s, a := newSite(t, k), admin(t, k.Brokers())
	b := inFront(t, k.BrokersOf(harness.SASL)[0])
	b.advertise.Store(&b.address) // every connection can be cut here
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		must(t, os.WriteFile(file+".new", []byte(password), 0o600), os.Rename(file+".new", file))
	}
	rotate := func(password string) {
		t.Helper()
		done, err := a.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user.Name, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password}})
		must(t, err)
		must(t, done.Error())
	}
	write(user.Password)
	s.Set("kafka", "brokers", []string{b.address})
	s.Set("kafka", "sasl", map[string]any{"mechanism": "scram-sha-512", "username": user.Name, "password_file": file})
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 72, Rate: 30})
	p.publishes(s.Topic, 300)

	rotate("second secret")
	if n := b.drop(); n == 0 {
		t.Fatal("the relay has no connection to cut")
	}
	t.Logf("named: %s", p.blocked("SASL_AUTHENTICATION_FAILED"))
	published := p.published(s.Topic)
	f.More(60)
	if after := p.published(s.Topic); after != published {
		t.Fatalf("the fault has not bitten: %d records with the old password, then %d", published, after)
	}
	write("second secret")
	changed := time.Now()
	p.publishes(s.Topic, 300)
	p.healthy()
	t.Logf("healed %v after the file was new", time.Since(changed))

	write("third secret")
	rotate("third secret")
	changed = time.Now()
	longer(t, changed, 12*time.Second) // asked again, twice
	if n := b.drop(); n == 0 {
		t.Fatal("the relay has no connection to cut")
	}
	p.publishes(s.Topic, 300)
	p.healthy()
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{NoLines: true}))
}
