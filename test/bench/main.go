package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// childArgument is the first argument of the hidden modes.
const childArgument = "child"

func main() {
	if len(os.Args) == 4 && os.Args[1] == childArgument {
		os.Exit(childMain(os.Args[2], os.Args[3]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(benchMain(ctx, os.Args[1:]))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a run failed, or with --strict a bar was missed
	exitUsage  = 2
)

func benchMain(ctx context.Context, args []string) int {
	o, err := parseOptions(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return exitUsage
	}
	b := &bench{o: o, progress: newProgress(os.Stderr)}
	defer b.close()
	err = b.measure(ctx)
	met := true
	if len(b.cells) > 0 {
		results := summarise(b.cells)
		met = b.show(os.Stdout, results)
		err = errors.Join(err, writeLines(o.out, results))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return exitFailed
	}
	if o.strict && !met {
		return exitFailed
	}
	return exitOK
}

// childMain runs a hidden mode until its standard input ends.
func childMain(mode, spec string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process: nothing can interrupt the read
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := runChild(ctx, mode, []byte(spec)); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", mode, err)
		return exitFailed
	}
	return exitOK
}

func runChild(ctx context.Context, mode string, spec []byte) error {
	say := json.NewEncoder(os.Stdout).Encode
	switch mode {
	case "null":
		return child1(spec, func(s nullSpec) error {
			r, err := nullChild(ctx, s)
			return errors.Join(err, say(r))
		})
	case "kfake":
		return kfakeChild(ctx, say)
	case "franz":
		return child1(spec, func(s franzSpec) error { return franzChild(ctx, s, say) })
	case "relay":
		return child1(spec, func(s relaySpec) error { return relayChild(ctx, s) })
	case "floor":
		return child1(spec, func(s floorSpec) error { return floorChild(ctx, s) })
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// child1 reads a mode's one argument.
func child1[T any](spec []byte, run func(T) error) error {
	var s T
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	return run(s)
}
