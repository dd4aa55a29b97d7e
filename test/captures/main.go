package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/test/harness/pgserver"
)

func main() {
	out := flag.String("out", filepath.Join("decode", "testdata"), "directory to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *out, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "captures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, args []string) error {
	majors, err := parseMajors(args)
	if err != nil {
		return err
	}
	for _, major := range majors {
		if err := record(ctx, out, major); err != nil {
			return fmt.Errorf("recording PostgreSQL %d: %w", major, err)
		}
	}
	return nil
}

func parseMajors(args []string) ([]int, error) {
	var majors []int
	for _, arg := range args {
		major, err := strconv.Atoi(arg)
		if err != nil {
			return nil, fmt.Errorf("reading the major %q: %w", arg, err)
		}
		majors = append(majors, major)
	}
	if len(majors) > 0 {
		return majors, nil
	}
	for major := pgserver.OldestMajor; major <= pgserver.NewestMajor; major++ {
		majors = append(majors, major)
	}
	return majors, nil
}

// record runs the script on a fresh server and writes both captures.
func record(ctx context.Context, out string, major int) (err error) {
	server, err := pgserver.New(ctx, pgserver.Options{
		Major:    major,
		Settings: map[string]string{"autovacuum": "off"}, // no transactions but ours
		Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer func() {
		if closing := server.Close(); err == nil {
			err = closing
		}
	}()
	if err := runScript(ctx, server.SocketDSN("postgres")); err != nil {
		return err
	}
	for _, format := range []string{"text", "binary"} {
		frames, err := readSlot(ctx, server.SocketDSN("postgres"), format)
		if err != nil {
			return fmt.Errorf("reading the slot in the %s format: %w", format, err)
		}
		normalise(frames)
		path := filepath.Join(out, fmt.Sprintf("capture-%d-%s.txt", major, format))
		if err := write(path, major, format, frames); err != nil {
			return err
		}
		fmt.Printf("%s: %d messages\n", path, len(frames))
	}
	return nil
}

func write(path string, major int, format string, frames [][]byte) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	fmt.Fprintf(w, "# PostgreSQL %d, pgoutput protocol version 1, %s format: written by test/captures, do not edit.\n", major, format)
	for i, frame := range frames {
		fmt.Fprintf(w, "# %d %s, %d bytes\n%x\n", i, decode.Kind(frame[0]), len(frame), frame)
	}
	if err := w.Flush(); err != nil {
		_ = file.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return file.Close()
}
