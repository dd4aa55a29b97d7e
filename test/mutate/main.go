package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	only     string
	list     bool
	markdown bool
	parallel int
	seeds    int
	verbose  bool
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.StringVar(&o.only, "only", "", "only the mutants of these laws, or whose words contain this: `I5,I8`")
	flags.BoolVar(&o.list, "list", false, "say what there is and run nothing")
	flags.BoolVar(&o.markdown, "md", false, "write the table into "+document)
	flags.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "how many mutants are tried at a time")
	flags.IntVar(&o.seeds, "seeds", 0, "run no killers; look among this many seeds of the simulation for the first that kills")
	flags.BoolVar(&o.verbose, "v", false, "show the output of the tests that died")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.parallel < 1 {
		return o, errors.New("usage: mutate [-only I5] [-list] [-md] [-parallel N] [-seeds N] [-v]")
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := mutate(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func mutate(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	chosen := choose(mutants, o.only)
	if o.seeds > 0 {
		chosen = slices.DeleteFunc(chosen, func(m mutant) bool { return !simulated(m) })
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %s chooses no mutant", o.only)
	}
	if err := checkTable(root, mutants); err != nil {
		return err
	}
	if o.markdown {
		if err := writeDocument(root, mutants); err != nil {
			return err
		}
	}
	if o.list {
		printList(os.Stdout, chosen)
		return nil
	}
	began := time.Now()
	results, err := runAll(ctx, root, chosen, o)
	printResults(os.Stdout, results, o)
	fmt.Fprintf(os.Stdout, "%d mutants in %.0f s\n", len(results), time.Since(began).Seconds())
	return errors.Join(err, verdict(results))
}

// choose gives the mutants of the named laws, or those whose words contain one
// of the given ones.
func choose(all []mutant, only string) []mutant {
	if only == "" {
		return slices.Clone(all)
	}
	var chosen []mutant
	for _, m := range all {
		if slices.ContainsFunc(strings.Split(only, ","), func(want string) bool {
			return strings.EqualFold(m.law, want) || (len(want) > 3 && strings.Contains(m.what, want))
		}) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// verdict is an error when a mutant lived or could not be tried.
func verdict(results []result) error {
	var bad []string
	for _, r := range results {
		if r.err != nil {
			bad = append(bad, fmt.Sprintf("%s, %s: %v", r.mutant.law, r.mutant.what, r.err))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d mutants are not killed:\n  %s", len(bad), len(results), strings.Join(bad, "\n  "))
	}
	return nil
}
