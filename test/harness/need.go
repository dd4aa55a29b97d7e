package harness

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// EnvTier is the variable by which a run says which parts it wants: one of
// Tiers, "" = all. Parts beyond it are left out, also when CI=true.
const EnvTier = "OUTBOX_RELAY_TEST_TIER"

// EnvContainers set to 1 lets StartPostgres, StartKafka and SharedKafka use a
// container in a test that is built with the tag containers.
const EnvContainers = "OUTBOX_RELAY_TEST_CONTAINERS"

// EnvKafkaImage names the image of Kafka's container, for example KafkaImage.
const EnvKafkaImage = "OUTBOX_RELAY_TEST_KAFKA_IMAGE"

// KafkaImage is an image of the Apache Kafka project with the layout that a
// container needs.
const KafkaImage = "apache/kafka:4.1.0"

// Tiers: unit has no servers, pg has PostgreSQL, kafka and all have both.
var Tiers = []string{"unit", "pg", "kafka", "all"}

// Part is something that a test needs and that a machine may lack.
type Part struct {
	// Name is how reports call it.
	Name string
	// LeftOut are the tiers that leave the part out.
	LeftOut []string
	// Check says why the part cannot be had; nil when it can, perhaps after a
	// download.
	Check func() error
}

// RealKafka is Apache Kafka itself.
var RealKafka = Part{Name: "real kafka", LeftOut: []string{"unit", "pg"}, Check: kafkaAvailable}

func kafkaAvailable() error {
	if KafkaInContainer() {
		return nil
	}
	return kafkaserver.Available()
}

// PostgresMajor is a PostgreSQL server of one major.
func PostgresMajor(major int) Part {
	return Part{
		Name:    "postgres " + strconv.Itoa(major),
		LeftOut: []string{"unit"},
		Check: func() error {
			_, _, err := pgserver.Find(major)
			return err
		},
	}
}

// CI says whether a missing part is a failure.
func CI() bool {
	on, _ := strconv.ParseBool(os.Getenv("CI"))
	return on
}

// Need ends the test when a part cannot be had: as failed when CI=true, as
// skipped with NOT RUN elsewhere.
func Need(t testing.TB, parts ...Part) {
	t.Helper()
	for _, p := range parts {
		if tier := os.Getenv(EnvTier); slices.Contains(p.LeftOut, tier) {
			t.Skipf("NOT RUN: needs %s, which the tier %s leaves out", p.Name, tier)
		}
		if err := p.Check(); err != nil {
			notRun(t, p.Name, err)
		}
	}
}

func notRun(t testing.TB, name string, err error) {
	t.Helper()
	reason := fmt.Sprintf("NOT RUN: needs %s: %v", name, err)
	if CI() {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// startFailed ends the test after a part did not start: a missing part as Need
// does, anything else as a failure.
func startFailed(t testing.TB, name string, err error) {
	t.Helper()
	if errors.Is(err, pgserver.ErrMissing) || errors.Is(err, kafkaserver.ErrMissing) {
		notRun(t, name, err)
	}
	t.Fatalf("starting %s: %v", name, err)
}
