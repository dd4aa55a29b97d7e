package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/outboxrelay/outbox-relay/test/harness"
	"github.com/outboxrelay/outbox-relay/test/harness/kafkaserver"
	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

// docker is the name of the tier that is never demanded.
const docker = "docker"

// tier is a group of parts that tests need.
type tier struct {
	name    string
	source  string // where the part comes from
	missing error  // why it cannot be had; nil when it can
	install string // the one command that brings it
	demand  bool   // a failure when missing with CI=true
	fetch   func(context.Context) error
}

// survey looks at the machine and downloads nothing.
func survey(ctx context.Context, chosen string) []tier {
	tiers := []tier{{name: "unit + kfake", source: "in process", demand: true}}
	if chosen == "unit" {
		return tiers
	}
	for major := pgserver.OldestMajor; major <= pgserver.NewestMajor; major++ {
		tiers = append(tiers, postgres(major))
	}
	if chosen == "pg" {
		return tiers
	}
	tiers = append(tiers, kafka(ctx))
	if chosen == "all" {
		tiers = append(tiers, engine(ctx))
	}
	return tiers
}

func postgres(major int) tier {
	_, from, err := pgserver.Find(major)
	t := tier{
		name: harness.PostgresMajor(major).Name, source: string(from), missing: err, demand: true,
		install: fmt.Sprintf("export %s=/path/to/postgresql-%d/bin", pgserver.EnvName(major), major),
	}
	if from == pgserver.FromDownload {
		t.source = "download, 15 MB"
		t.fetch = func(ctx context.Context) error {
			_, err := pgserver.Fetch(ctx, major, nil)
			return err
		}
	}
	return t
}

// kafka comes from Java, or in a container where variables ask for that. Where
// it is missing and an engine answers, that way is named too.
func kafka(ctx context.Context) tier {
	t := tier{
		name: harness.RealKafka.Name, source: "cache", missing: harness.RealKafka.Check(), demand: true,
		install: packages("default-jre-headless maven", "java-21-openjdk-headless maven", "openjdk maven"),
	}
	switch {
	case harness.KafkaInContainer():
		t.source = "container of " + os.Getenv(harness.EnvKafkaImage)
	case t.missing != nil && engineAnswers(ctx):
		t.install += ", or: " + containerCommand
		t.missing = fmt.Errorf("%w; in a container, one node without TLS and SASL: %s", t.missing, containerCommand)
	case !kafkaserver.Cached():
		t.source = "mvn, 54 MB"
		t.fetch = func(ctx context.Context) error {
			_, err := kafkaserver.Fetch(ctx, nil)
			return err
		}
	}
	return t
}

// containerCommand runs this program, and the tests, with Kafka in a container.
const containerCommand = "GOFLAGS=-tags=containers " + harness.EnvContainers + "=1 " +
	harness.EnvKafkaImage + "=" + harness.KafkaImage + " make test"

func engine(ctx context.Context) tier {
	t := tier{name: docker, source: "engine", install: packages("docker.io", "docker", "colima")}
	if !engineAnswers(ctx) {
		t.missing = errors.New("no Docker engine answers")
	}
	return t
}

// engineAnswers asks the Docker engine, which answers within a second or is not
// there.
func engineAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run() == nil
}

// packages gives the command of this machine's package manager.
func packages(debian, fedora, homebrew string) string {
	sudo := "sudo "
	if os.Geteuid() == 0 {
		sudo = ""
	}
	for _, m := range []struct{ program, command string }{
		{"apt-get", sudo + "apt-get install -y " + debian},
		{"dnf", sudo + "dnf install -y " + fedora},
		{"brew", "brew install " + homebrew},
	} {
		if _, err := exec.LookPath(m.program); err == nil {
			return m.command
		}
	}
	return "install " + debian + " (Debian's names)"
}

// printTable shows what will run and how to get what will not.
func printTable(w io.Writer, tiers []tier) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "TIER\tAVAILABLE\tFROM / TO GET IT")
	for _, t := range tiers {
		from := t.source
		if t.missing != nil {
			from = t.install
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", t.name, yesNo(t.missing == nil), from)
	}
	_ = table.Flush()
	_, _ = fmt.Fprintln(w, "CPUs: "+strconv.Itoa(cpus()))
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// demanded names the missing tiers that CI does not forgive.
func demanded(tiers []tier) []string {
	var names []string
	for _, t := range tiers {
		if t.demand && t.missing != nil {
			names = append(names, t.name)
		}
	}
	return names
}

func available(tiers []tier, name string) bool {
	for _, t := range tiers {
		if t.name == name {
			return t.missing == nil
		}
	}
	return false
}
