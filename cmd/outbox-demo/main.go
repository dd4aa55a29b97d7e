package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
)

// The exit codes.
const (
	exitGood        = 0
	exitBad         = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() { os.Exit(run(time.Now(), os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as parameters; it gives the exit code.
func run(started time.Time, args []string, stdout io.Writer, stderr *os.File) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitGood
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "outbox-demo: %v\n", err)
		return exitUsage
	}
	// Where somebody asks for SIGPIPE, a write to a closed pipe ("| head") is
	// an error and not the end of the process. It is not among the signals
	// that end the run, because each connection that the gate cuts brings one.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the process at once; the keeper then clears up.
	context.AfterFunc(ctx, stop)
	ctx, lost := context.WithCancel(ctx)
	defer lost()
	screen := view.NewScreen(stderr, lost)
	out, err := demonstrate(ctx, o, started, screen)
	screen.Leave()
	switch {
	case ctx.Err() != nil:
		screen.Line("interrupted")
		return exitInterrupted
	case err != nil:
		screen.Line("%v", err)
		return exitBad
	}
	if err := out.print(o.output, stdout, screen); err != nil {
		screen.Line("%v", err)
		return exitBad
	}
	if !out.OK {
		return exitBad
	}
	return exitGood
}
