package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

// options are the flags.
type options struct {
	tier     string
	race     bool
	run      string
	timeout  string
	packages []string

	everything bool // no package was named
}

var errUsage = errors.New("usage: suite [-tier unit|pg|kafka|all] [-race] [-run PATTERN] [packages]")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := suite(ctx, os.Args[1:])
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode()) // gotestsum has said why
	default:
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	flags.StringVar(&o.tier, "tier", "all", "what may run: `unit` (no servers), pg (and PostgreSQL), kafka or all (and real Kafka)")
	flags.BoolVar(&o.race, "race", false, "detect data races")
	flags.StringVar(&o.run, "run", "", "only tests that match this `pattern`")
	flags.StringVar(&o.timeout, "timeout", "30m", "time limit of each package")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if !slices.Contains(harness.Tiers, o.tier) {
		return o, fmt.Errorf("there is no tier %q: %w", o.tier, errUsage)
	}
	o.packages = flags.Args()
	if len(o.packages) == 0 {
		o.packages, o.everything = []string{"./..."}, true
	}
	return o, nil
}

func suite(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	tiers := survey(ctx, o.tier)
	printTable(os.Stdout, tiers)
	if missing := demanded(tiers); len(missing) > 0 && harness.CI() {
		return fmt.Errorf("CI=true and these tiers are missing: %s", strings.Join(missing, ", "))
	}
	tiers = prefetch(ctx, tiers)
	if missing := demanded(tiers); len(missing) > 0 && harness.CI() {
		printTable(os.Stdout, tiers)
		return fmt.Errorf("CI=true and these tiers could not be fetched: %s", strings.Join(missing, ", "))
	}
	err = test(ctx, o)
	if available(tiers, docker) && o.tier == "all" {
		err = errors.Join(err, testContainers(ctx))
	}
	for _, t := range tiers {
		if t.missing != nil {
			fmt.Printf("NOT RUN: %s: %v\n", t.name, t.missing)
		}
	}
	return err
}
