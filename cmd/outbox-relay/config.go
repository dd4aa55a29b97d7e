package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/config"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "look at and check the configuration",
		"Look at and check the configuration. Nothing here connects to anything.",
		a.configPrintCommand(), a.configValidateCommand(), a.configExampleCommand())
}

func (a *app) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "print a file with every key, its default and a line of help",
		Example: "  outbox-relay config example > outbox-relay.yaml",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(a.out, config.Example())
			return err
		},
	}
}

func (a *app) configPrintCommand() *cobra.Command {
	var origins bool
	c := &cobra.Command{
		Use:   "print",
		Short: "print the configuration in force, secrets masked",
		Long: `Print the configuration in force: file, environment, flags and defaults put
together. Secrets are masked; connection strings show where they lead.`,
		Example: "  outbox-relay config print --show-origin\n  outbox-relay config print -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			o := a.loadOptions()
			o.Incomplete = true
			l, err := config.Load(o)
			if err != nil {
				return err
			}
			if a.format == formatJSON {
				return writeJSON(a.out, struct {
					document
					Files []string       `json:"files"`
					Keys  []config.Entry `json:"keys"`
				}{newDocument(), append([]string{}, l.Files...), l.Entries()})
			}
			_, err = fmt.Fprint(a.out, l.Print(config.PrintOptions{Origins: origins}))
			return err
		},
	}
	c.Flags().BoolVar(&origins, "show-origin", false, "add where each value comes from: file:line:column, environment, flag or default")
	return c
}

// mistake is one entry of config validate -o json.
type mistake struct {
	Place string `json:"place"`
	Key   string `json:"key,omitempty"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
}

func (a *app) configValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "report every mistake in the configuration at once",
		Long: `Read file, environment and flags, and report every mistake at once, each with
its place and what to do. Also reads the files that are named (passwords,
certificates). Exit code 2 when there are mistakes.`,
		Example: "  outbox-relay config validate -c outbox-relay.yaml",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := config.Load(a.loadOptions())
			if err == nil {
				err = l.CheckFiles()
			}
			if a.format == formatJSON {
				return a.validationDocument(l, err)
			}
			if err != nil {
				return err
			}
			for _, w := range l.Warnings {
				fmt.Fprintf(a.err, "warning: %s\n", w)
			}
			_, err = fmt.Fprintln(a.out, "the configuration is valid")
			return err
		},
	}
}

func (a *app) validationDocument(l *config.Loaded, err error) error {
	var mistakes config.Mistakes
	if err != nil && !errors.As(err, &mistakes) {
		return err
	}
	doc := struct {
		document
		Valid    bool      `json:"valid"`
		Files    []string  `json:"files"`
		Mistakes []mistake `json:"mistakes"`
		Warnings []string  `json:"warnings"`
	}{newDocument(), len(mistakes) == 0, append([]string{}, l.Files...), []mistake{}, append([]string{}, l.Warnings...)}
	for _, m := range mistakes {
		doc.Mistakes = append(doc.Mistakes, mistake{m.Place.String(), m.Key, m.Text, m.Hint})
	}
	if err := writeJSON(a.out, doc); err != nil {
		return err
	}
	if !doc.Valid {
		return usage("the configuration has %d mistakes", len(mistakes))
	}
	return nil
}
