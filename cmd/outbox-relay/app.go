package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/config"
)

// app is one call of the program: its streams, its environment and the flags
// that every command has.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      config.Env

	files     []string
	format    string
	logLevel  string
	logFormat string
	noColor   bool
	timeout   time.Duration

	stop context.CancelFunc // of --timeout's context; nil without one
}

func newApp(in io.Reader, out, err io.Writer, env []string) *app {
	return &app{in: in, out: out, err: err, env: env}
}

// execute runs the command line and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	command, err := root.ExecuteContextC(ctx)
	if a.stop != nil {
		defer a.stop()
	}
	if err == nil {
		return exitOK
	}
	if c := command.Context(); c != nil {
		ctx = c
	}
	return report(ctx, a.err, err)
}

const rootHelp = `Outbox Relay publishes the rows of an outbox table in PostgreSQL to Kafka, in
the order in which they were committed.

A first start, step by step:

  outbox-relay config example > outbox-relay.yaml   # then edit it
  outbox-relay config validate
  outbox-relay setup --print                        # what the database needs
  outbox-relay setup --apply                        # does it, asks first
  outbox-relay run

Settings come from flags, then from the environment (OUTBOX_RELAY_...), then
from the file, then from the defaults. Secrets are never flags: they would show
in the list of processes.`

// root builds the command tree. Without a command it prints help.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "outbox-relay",
		Short:             "publish an outbox table to Kafka",
		Long:              rootHelp,
		Args:              noArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.prepare,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	flags := root.PersistentFlags()
	flags.StringArrayVarP(&a.files, "config", "c", nil, "configuration file; may be repeated, later ones win\n(default: $OUTBOX_RELAY_CONFIG, ./outbox-relay.yaml, /etc/outbox-relay/outbox-relay.yaml)")
	flags.StringVarP(&a.format, "output", "o", formatTable, "table for people, json for programs")
	flags.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error")
	flags.StringVar(&a.logFormat, "log-format", "", "auto, json or console")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours in console logs (also: NO_COLOR)")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up after this time, with exit code 124; 0 is never")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &failure{code: exitUsage, err: err, next: c.CommandPath() + " --help"}
	})
	root.AddCommand(a.runCommand(), a.setupCommand(), a.slotCommand(), a.statusCommand(), a.migrateCommand(),
		a.configCommand(), a.healthcheckCommand(), a.versionCommand())
	return root
}

// prepare checks the flags that every command has, and starts the clock of
// --timeout.
func (a *app) prepare(c *cobra.Command, _ []string) error {
	if a.format != formatTable && a.format != formatJSON {
		return usage("unknown output %q: want table or json", a.format)
	}
	if a.timeout < 0 {
		return usage("--timeout is never negative")
	}
	if a.timeout > 0 {
		ctx, cancel := context.WithTimeoutCause(c.Context(), a.timeout, errTimeout)
		c.SetContext(ctx)
		a.stop = cancel
	}
	return nil
}

// noArgs refuses arguments, and says which command was probably meant.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	f := usage("unknown command or argument %q for %q", args[0], c.CommandPath())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		f.hint = "did you mean " + c.CommandPath() + " " + near[0] + "?"
	}
	f.next = c.CommandPath() + " --help"
	return f
}

// group is a command that only holds others.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	g.SuggestionsMinimumDistance = 2
	g.AddCommand(commands...)
	return g
}

// loadForDatabase reads it for a command that talks to Postgres alone: it
// does not ask where the brokers are.
func (a *app) loadForDatabase() (*config.Loaded, error) {
	o := a.loadOptions()
	o.Incomplete = true
	l, err := config.Load(o)
	if err != nil {
		return nil, err
	}
	return l, l.NeedsDatabase(a.env)
}

func (a *app) loadOptions() config.LoadOptions {
	o := config.LoadOptions{Files: a.files, Env: a.env}
	for _, f := range []config.FlagValue{
		{Flag: "log-level", Path: "log.level", Text: a.logLevel},
		{Flag: "log-format", Path: "log.format", Text: a.logFormat},
	} {
		if f.Text != "" {
			o.Flags = append(o.Flags, f)
		}
	}
	return o
}
