package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/judge"
)

// TestMissingRightIsWaitedFor proves on a broker with Kafka's own authorizer
// that a topic which the relay may not write is named, refuses nothing and
// holds up no other topic, both from the start and when the right is taken away
// under load; and that it heals by itself once the right is granted. The relay
// has no other right than to write: it cannot read the topics' settings either.
// Case F42 of docs/guarantees.md.
func TestMissingRightIsWaitedFor(t *testing.T) {
	t.Parallel()
	user := kafkaserver.User{Name: "outbox", Password: "outbox secret"}
	k := harness.StartKafka(t, harness.KafkaOptions{
		Listeners: []kafkaserver.Listener{harness.SASL}, Users: []kafkaserver.User{user},
		Settings: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS", // the harness, and the nodes themselves
		}})
	s, a := newSite(t, k), admin(t, k.Brokers())
	guarded := s.Topic + ".guarded"
	k.CreateTopic(t, guarded, 3, nil)
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte(user.Password), 0o600))
	s.Set("kafka", "brokers", k.BrokersOf(harness.SASL))
	s.Set("kafka", "sasl", map[string]any{"mechanism": "scram-sha-512", "username": user.Name, "password_file": password})
	write := func(topic string) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(topic).Operations(kadm.OpWrite).Allow("User:" + user.Name).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
	}
	grant := func(topic string) {
		t.Helper()
		done, err := a.CreateACLs(t.Context(), write(topic))
		must(t, err)
		for _, d := range done {
			must(t, d.Err)
		}
	}
	grant(s.Topic)
	tr := s.Truth(t)
	p := s.streaming(t)
	f := s.Flow(t, judge.Workload{Seed: 71, Rate: 30, Topics: []string{s.Topic, guarded}})
	// waits proves that the topic stands still while the other one flows.
	waits := func() {
		t.Helper()
		t.Logf("named: %s", p.blocked(guarded, "TOPIC_AUTHORIZATION_FAILED"))
		published := p.published(guarded)
		p.publishes(s.Topic, 300)
		if n := s.rows(t, fmt.Sprintf("topic = '%s' and status = 0", guarded)); n < 50 || p.published(guarded) != published {
			t.Fatalf("the fault has not bitten: %d rows wait, %d records before, %d after", n, published, p.published(guarded))
		}
		s.refusedNothing(t)
	}
	waits()
	if n := len(k.Dump(t, guarded)); n != 0 {
		t.Fatalf("%d records in a topic that nobody may write", n)
	}
	grant(guarded)
	granted := time.Now()
	p.publishes(guarded, 300)
	p.healthy()
	t.Logf("healed within %v", time.Since(granted))

	gone, err := a.DeleteACLs(t.Context(), write(guarded))
	must(t, err)
	if len(gone) != 1 || gone[0].Err != nil || len(gone[0].Deleted) != 1 {
		t.Fatalf("taking the right away: %+v", gone)
	}
	waits()
	grant(guarded)
	granted = time.Now()
	p.publishes(guarded, 300)
	p.healthy()
	t.Logf("healed again within %v", time.Since(granted))
	j := f.Stop()
	s.drained(t)
	s.refusedNothing(t)
	exactly(t, s.verdict(t, tr, j, judge.Rules{}, guarded))
}
