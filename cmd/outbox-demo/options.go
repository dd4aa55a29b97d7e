package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// dsnEnv names the variable for a connection string with a password, which a
// flag would show to every user of the machine.
const dsnEnv = "OUTBOX_DEMO_DSN"

type output string

const (
	asTable output = "table"
	asJSON  output = "json"
)

type faultPlan uint8

const (
	withFaults faultPlan = iota
	withoutFaults
)

// options are what the command line says.
type options struct {
	duration time.Duration // how long the writers write
	rate     int           // rows per second
	output   output
	faults   faultPlan
	relay    string // path of the binary, "" to build or find it
	dsn      string // of a server to use, "" for a throw-away one
}

const usage = `outbox-demo shows the relay at work on throw-away servers, with faults, and judges it.

usage: outbox-demo [flags]      (or: make demo ARGS="flags")

`

// parse reads the command line. flag.ErrHelp means that help was printed.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{output: asTable}
	f := flag.NewFlagSet("outbox-demo", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		f.PrintDefaults()
	}
	f.DurationVar(&o.duration, "for", 45*time.Second, "how long to write, at least 3s; the broker stops at one third, the relay is killed at two")
	f.IntVar(&o.rate, "rate", 500, "rows per second, 1 to 20000")
	f.StringVar((*string)(&o.output), "output", string(asTable), "the verdict on standard output: table or json (one line)")
	noFaults := f.Bool("no-faults", false, "neither stop the broker nor kill the relay")
	f.StringVar(&o.relay, "relay", "", "path of outbox-relay (default: build it from the source at hand, else beside this program)")
	f.StringVar(&o.dsn, "dsn", os.Getenv(dsnEnv), "use this PostgreSQL server, in a database of its own (default: $"+dsnEnv+", else a throw-away server)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *noFaults {
		o.faults = withoutFaults
	}
	return o, o.check(f.Args())
}

func (o options) check(rest []string) error {
	var wrong []error
	if len(rest) > 0 {
		wrong = append(wrong, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	if o.duration < 3*time.Second || o.duration > 24*time.Hour {
		wrong = append(wrong, fmt.Errorf("--for %v: want 3s to 24h", o.duration))
	}
	if o.rate < 1 || o.rate > 20000 {
		wrong = append(wrong, fmt.Errorf("--rate %d: want 1 to 20000", o.rate))
	}
	if o.output != asTable && o.output != asJSON {
		wrong = append(wrong, fmt.Errorf("--output %q: want table or json", string(o.output)))
	}
	return errors.Join(wrong...)
}
