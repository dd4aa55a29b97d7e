package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/config"
)

func (a *app) setupCommand() *cobra.Command {
	var o setupOptions
	c := &cobra.Command{
		Use:   "setup (--print | --apply)",
		Short: "prepare the database: role, tables, publication, slot",
		Long: `Prepare the database for the relay: a role with no more rights than it needs,
the outbox table, its publication, the relay's own tables, the grants, and last
the slot.

--print shows the statements in order and connects to nothing.

--apply looks at what is there, says what it would do, asks, and does what the
role of postgres.query may do. Each step is reported; it can be repeated. Run it
as the table's owner or a superuser, by giving that connection to this one
command:

  OUTBOX_RELAY_POSTGRES__QUERY='host=db user=owner dbname=app' \
    outbox-relay setup --apply --role relay`,
		Example: "  outbox-relay setup --print --role relay > setup.sql\n  outbox-relay setup --apply --yes",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.print == o.apply:
				return usage("setup takes either --print or --apply")
			case o.print:
				return a.printSetup(o)
			default:
				return a.applySetup(c.Context(), o)
			}
		},
	}
	f := c.Flags()
	f.BoolVar(&o.print, "print", false, "print the statements, change nothing")
	f.BoolVar(&o.apply, "apply", false, "do what is missing")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.StringVar(&o.role, "role", "", "the role that the relay connects as (default: the user of postgres.replication)")
	return c
}

type setupOptions struct {
	print, apply, yes bool
	role              string
}

// printSetup prints the plan as one SQL script.
func (a *app) printSetup(o setupOptions) error {
	l, err := config.Load(func() config.LoadOptions { lo := a.loadOptions(); lo.Incomplete = true; return lo }())
	if err != nil {
		return err
	}
	p, err := newPlan(&l.Config, o.role)
	if err != nil {
		return err
	}
	if a.format == formatJSON {
		return writeJSON(a.out, struct {
			document
			Role  string      `json:"role"`
			Steps []*planStep `json:"steps"`
		}{newDocument(), p.role, p.steps})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- Set-up for relay %s: run it as the owner of the database, top to bottom.\n", l.Config.Relay.Name)
	for i, s := range p.steps {
		fmt.Fprintf(&b, "\n-- %d. %s\n", i+1, s.Title)
		for _, note := range s.Notes {
			fmt.Fprintf(&b, "-- %s\n", note)
		}
		for _, sql := range s.SQL {
			fmt.Fprintf(&b, "%s;\n", sql)
		}
	}
	_, err = fmt.Fprint(a.out, b.String())
	return err
}

// agreed asks on standard error, and reads the answer from standard input.
func (a *app) agreed(question string) bool {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.in).ReadString('\n') // no answer is no
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
