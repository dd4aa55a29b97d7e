package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := untilSignal(context.Background())
	code := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ()).execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// untilSignal gives a context that the first SIGINT or SIGTERM ends: stop
// gracefully. The second ends the process at once; nothing is lost by that,
// only repeated. stop gives the signals back and waits for the goroutine.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel(errSignal)
		case <-over:
			return
		}
		select {
		case <-signals:
			os.Exit(exitForced)
		case <-over:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-done
		cancel(nil)
	}
}
