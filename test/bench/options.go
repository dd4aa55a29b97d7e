package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Links to PostgreSQL. The brokers are always reached over TCP.
const (
	tcp  = "tcp"
	unix = "unix"
)

// options are the command line.
type options struct {
	rows    int
	repeat  int
	shapes  []int // rows in one transaction
	links   []string
	only    []string // scenarios; empty: all
	rates   []int    // rows a second, of the latency scenarios
	measure time.Duration
	warmUp  time.Duration

	payload    int // bytes
	partitions int
	codec      string
	writeBack  string // of the latency scenarios
	gulp       time.Duration

	out       string
	relay     string // path of the binary; "": it is built
	inProcess bool
	profile   string // directory for CPU profiles of the relay; implies inProcess
	quiet     time.Duration
	limit     time.Duration
	strict    bool

	peer     string // "": none
	peerJars string // directory
}

// families are what --only may name.
var families = []string{"raw", "null", "kfake", "kafka-off", "kafka-status", "franz", "outage", "kill", "latency", "restart"}

const usage = `bench measures the relay beside the limit of its parts.

  go run ./test/bench [flags]

  a first look (the defaults)   200,000 rows, 3 repetitions, over TCP
  the full measurement          --rows 1000000 --repeat 5 --link tcp,unix --rates 200,2000,10000
  one transaction of 200,000    --only outage --shape 200000 --repeat 1
  one part                      --only raw,kafka-off --shape 10 --repeat 1
  beside a peer                 --only raw,kafka-off --peer debezium --peer-jars build/debezium

`

// parseOptions reads the command line. It gives flag.ErrHelp when help was
// asked for and printed.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprint(out, usage)
		f.PrintDefaults()
	}
	f.IntVar(&o.rows, "rows", 200_000, "rows of each backlog")
	f.IntVar(&o.repeat, "repeat", 3, "runs of each scenario; the median is shown")
	shapes := f.String("shape", "10,1", "rows in a transaction; one backlog for each")
	links := f.String("link", tcp, "links to PostgreSQL: tcp, unix")
	only := f.String("only", "", "scenarios, of "+strings.Join(families, ", ")+" (default: all)")
	rates := f.String("rates", "200,2000", "rows a second of the latency scenarios")
	f.DurationVar(&o.measure, "latency-time", 10*time.Second, "how long each latency run is measured")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "how long each latency run writes before that")
	f.IntVar(&o.payload, "payload", 500, "bytes of a payload")
	f.IntVar(&o.partitions, "partitions", 6, "partitions of the topics")
	f.StringVar(&o.codec, "codec", "none", "compression of the records: none, gzip, snappy, lz4, zstd")
	f.StringVar(&o.writeBack, "latency-write-back", "status", "write-back of the relay in the latency and restart scenarios")
	f.DurationVar(&o.gulp, "gulp", 20*time.Millisecond, "how long a reader far behind on TCP holds back a read; 0 is off")
	f.StringVar(&o.out, "out", "build/bench.jsonl", "file of the results, one JSON object a line; replaced")
	f.StringVar(&o.relay, "relay", "", "path of an outbox-relay binary (default: it is built)")
	f.BoolVar(&o.inProcess, "in-process", false, "wire the relay inside a child of this program instead of running the binary")
	f.StringVar(&o.profile, "profile", "", "directory for CPU profiles of the relay, one a run; implies --in-process")
	f.DurationVar(&o.quiet, "quiet", 10*time.Second, "wait so long at most for an idle machine before each run")
	f.DurationVar(&o.limit, "limit", 5*time.Minute, "give a run up after this time")
	f.BoolVar(&o.strict, "strict", false, "exit with 1 when a bar is missed")
	f.StringVar(&o.peer, "peer", "", "measure a peer too: "+debezium+" (default: none)")
	f.StringVar(&o.peerJars, "peer-jars", "", "directory of the peer's jars; docs/performance.md says how to make one")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.inProcess = o.inProcess || o.profile != ""
	o.links, o.only = words(*links), words(*only)
	var errShapes, errRates error
	o.shapes, errShapes = numbers(*shapes)
	o.rates, errRates = numbers(*rates)
	return o, errors.Join(errShapes, errRates, o.check(f.Args()))
}

func (o options) check(rest []string) error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(len(rest) == 0, "unexpected argument %q", strings.Join(rest, " "))
	need(o.rows >= 1000 && o.repeat >= 1, "want at least 1000 rows and 1 repetition")
	need(len(o.shapes) > 0 && len(o.links) > 0, "want at least one shape and one link")
	need(o.payload >= 100, "want a payload of at least 100 bytes")
	need(o.partitions >= 1 && o.partitions <= 1000, "want 1 to 1000 partitions")
	need(o.measure > 0 && o.warmUp >= 0 && o.limit > 0, "want a positive --latency-time and --limit")
	for _, l := range o.links {
		need(l == tcp || l == unix, "unknown link %q: want tcp or unix", l)
	}
	if err := checkPeer(o.peer, o.peerJars); err != nil {
		errs = append(errs, err)
	}
	need(o.peer == "" || slices.Contains(o.links, tcp), "%s reads over TCP only: want tcp among the links", o.peer)
	for _, s := range o.only {
		if s == o.peer {
			continue // it runs in any case
		}
		need(s != debezium, "scenario %s runs only with --peer %s --peer-jars DIR", s, s)
		need(s == debezium || slices.Contains(families, s), "unknown scenario %q: want one of %s", s, strings.Join(families, ", "))
	}
	return errors.Join(errs...)
}

// wants says whether a scenario was asked for.
func (o options) wants(family string) bool {
	return len(o.only) == 0 || slices.Contains(o.only, family)
}

func (o options) wantsAny(of ...string) bool { return slices.ContainsFunc(of, o.wants) }

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func numbers(list string) ([]int, error) {
	var all []int
	for _, w := range words(list) {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive number", w)
		}
		all = append(all, n)
	}
	return all, nil
}
