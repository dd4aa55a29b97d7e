package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// debezium is the one peer there is: Kafka Connect, standalone, with Debezium's
// PostgreSQL connector and its outbox router. Nothing of it runs, and nothing
// is fetched for it, unless it is asked for.
const debezium = "debezium"

// peerJars are what the directory must hold, of any version. The rest of what
// they need is not checked; Java names it.
var peerJars = []string{
	"debezium-connector-postgres-*.jar", // the connector
	"debezium-connect-plugins-*.jar",    // the router and the converter
	"connect-runtime-*.jar",             // Kafka Connect
	"connect-json-*.jar",
	"kafka-clients-*.jar",
	"postgresql-*.jar",
}

// peerFetch makes such a directory.
const peerFetch = `mvn -q -f test/bench/debezium.pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/build/debezium"`

// checkPeer wants a known peer and the jars that it is made of.
func checkPeer(peer, jars string) error {
	switch {
	case peer == "" && jars == "":
		return nil
	case peer == "":
		return fmt.Errorf("--peer-jars without --peer: want --peer %s too", debezium)
	case peer != debezium:
		return fmt.Errorf("unknown peer %q: want %s", peer, debezium)
	case jars == "":
		return fmt.Errorf("--peer %s needs --peer-jars, the directory of its jars; this makes one:\n  %s", peer, peerFetch)
	}
	var missing []string
	for _, name := range peerJars {
		if found, err := filesLike(jars, name); err != nil {
			return fmt.Errorf("looking for the jars of %s: %w; this makes such a directory:\n  %s", peer, err, peerFetch)
		} else if len(found) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks jars of %s: %s; this makes a directory that has them:\n  %s", jars, peer, strings.Join(missing, ", "), peerFetch)
	}
	return nil
}

func filesLike(dir, pattern string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if like, err := filepath.Match(pattern, e.Name()); err != nil {
			return nil, err
		} else if like {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// peerSpec is all that differs between runs of the peer.
type peerSpec struct {
	DSN     string
	Slot    string
	Brokers []string
	Topic   string
	Rest    string // address of Connect's own interface
	Offsets string // file
	Tuned   bool
}

// setting is one line of a properties file.
type setting struct{ key, value string }

// secret is the one setting that is never shown.
const secret = "database.password"

// worker are the settings of Connect itself.
func (s peerSpec) worker() []setting {
	list := []setting{
		{"bootstrap.servers", strings.Join(s.Brokers, ",")},
		{"listeners", "HTTP://" + s.Rest},
		{"offset.storage.file.filename", s.Offsets},
		{"key.converter", "org.apache.kafka.connect.storage.StringConverter"},
		{"value.converter", "io.debezium.converters.BinaryDataConverter"},
		{"topic.creation.enable", "false"},
	}
	if s.Tuned {
		list = append(list, setting{"offset.flush.interval.ms", "1000"})
	}
	return list
}

// connector are the settings of the connector and of the router, which gives
// the same key, value and headers as the relay as far as it can. There is no
// heartbeat: the converter refuses one.
func (s peerSpec) connector(at *pgconn.Config) []setting {
	list := []setting{
		{"name", "bench"},
		{"connector.class", "io.debezium.connector.postgresql.PostgresConnector"},
		{"tasks.max", "1"},
		{"plugin.name", "pgoutput"},
		{"database.hostname", at.Host},
		{"database.port", strconv.Itoa(int(at.Port))},
		{"database.user", at.User},
		{secret, at.Password},
		{"database.dbname", at.Database},
		{"topic.prefix", "peer"},
		{"table.include.list", "public.outbox"},
		{"slot.name", s.Slot},
		{"publication.name", publication},
		{"publication.autocreate.mode", "disabled"},
		{"snapshot.mode", "no_data"},
		{"tombstones.on.delete", "false"},
		{"binary.handling.mode", "bytes"},
		{"transforms", "outbox"},
		{"transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"},
		{"transforms.outbox.table.field.event.id", "event_id"},
		{"transforms.outbox.table.field.event.key", "aggregate_id"},
		{"transforms.outbox.table.field.event.payload", "payload"},
		{"transforms.outbox.table.fields.additional.placement", "event_type:header:event_type"},
		{"transforms.outbox.route.by.field", "aggregate_type"},
		{"transforms.outbox.route.topic.replacement", s.Topic},
	}
	if s.Tuned {
		list = append(list, peerTuning...)
	}
	return list
}

// peerTuning is what people who measured the connector set.
var peerTuning = []setting{
	{"poll.interval.ms", "5"},
	{"max.batch.size", "8192"},
	{"max.queue.size", "32768"},
	{"status.update.interval.ms", "1000"},
	{"producer.override.linger.ms", "5"},
	{"producer.override.batch.size", "262144"},
	{"producer.override.enable.idempotence", "true"},
	{"producer.override.max.in.flight.requests.per.connection", "5"},
	{"producer.override.compression.type", "lz4"},
}

// peerJVM are the flags that Connect's own start script gives by default.
var peerJVM = []string{"-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
	"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

var escapeProperty = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// properties is a file that Java reads.
func properties(list []setting) []byte {
	var text strings.Builder
	for _, s := range list {
		fmt.Fprintf(&text, "%s=%s\n", s.key, escapeProperty.Replace(s.value))
	}
	return []byte(text.String())
}

// showPeer prints every setting of the peer. What differs between runs is in
// angle brackets; the password is left out.
func showPeer(out io.Writer, jars string) {
	each := peerSpec{Brokers: []string{"<broker>"}, Rest: "<free>", Offsets: "<file>", Slot: "<fresh copy>", Topic: "<fresh>"}
	at := &pgconn.Config{Host: "127.0.0.1", User: "<user>", Database: "<database>"}
	versions, err := peerVersions(jars)
	if err != nil {
		versions = []string{err.Error()}
	}
	fmt.Fprintf(out, "\n%s: %s\n", debezium, strings.Join(versions, ", "))
	fmt.Fprintln(out, "Measured from the slot being taken until the topic holds every row; its slot is confirmed later, so that is not waited for.")
	fmt.Fprintf(out, "java %s\n", strings.Join(peerJVM, " "))
	showSettings(out, "Connect", each.worker())
	showSettings(out, "connector", each.connector(at))
	showSettings(out, debezium+"-tuned has besides", append([]setting{{"offset.flush.interval.ms", "1000"}}, peerTuning...))
}

func showSettings(out io.Writer, title string, list []setting) {
	fmt.Fprintf(out, "%s:\n", title)
	for _, s := range list {
		if s.key == "database.port" {
			s.value = "<port>"
		}
		if s.key != secret {
			fmt.Fprintf(out, "  %s=%s\n", s.key, s.value)
		}
	}
}

// peerVersions names the jars that matter.
func peerVersions(jars string) (names []string, err error) {
	for _, pattern := range peerJars[:3] {
		found, e := filesLike(jars, pattern)
		err = errors.Join(err, e)
		for _, f := range found {
			names = append(names, strings.TrimSuffix(f, ".jar"))
		}
	}
	return names, err
}
