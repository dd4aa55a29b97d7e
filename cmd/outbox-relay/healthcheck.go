package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox-relay/config"
)

const (
	healthcheckTimeout = 5 * time.Second
	maxAnswerBytes     = 4 << 10
)

func (a *app) healthcheckCommand() *cobra.Command {
	var ready bool
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "ask the running relay whether it lives (for containers without curl)",
		Long: `Ask the relay that runs on this machine, at listen.probes, whether it lives, or
with --ready whether it streams or could take over. Exit code 0 when it says
yes, 1 when it says no or cannot be reached.`,
		Example: "  HEALTHCHECK CMD [\"outbox-relay\", \"healthcheck\"]\n  outbox-relay healthcheck --ready",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o := a.loadOptions()
			o.Incomplete = true
			l, err := config.Load(o)
			if err != nil {
				return err
			}
			path := "/livez"
			if ready {
				path = "/readyz"
			}
			return a.ask(c.Context(), l.Config.Listen.Probes, path)
		},
	}
	c.Flags().BoolVar(&ready, "ready", false, "ask /readyz instead of /livez")
	return c
}

// ask prints the answer of a probe, and fails unless it is 200.
func (a *app) ask(ctx context.Context, listen, path string) error {
	if listen == "" {
		return usage("listen.probes is empty: there is no listener to ask")
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+local(listen)+path, nil)
	if err != nil {
		return fmt.Errorf("asking the relay: %w", err)
	}
	// No proxy: the relay is on this machine.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return &failure{code: exitRuntime, err: fmt.Errorf("asking the relay: %w", err), hint: "is it running, with the same listen.probes?"}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("reading the relay's answer: %w", err)
	}
	text := strings.TrimSpace(string(body))
	if answer.StatusCode != http.StatusOK {
		return &failure{code: exitRuntime, err: errors.New(text)}
	}
	_, err = fmt.Fprintln(a.out, text)
	return err
}

// local turns an address to listen on into one to connect to: a wildcard is
// reached by loopback.
func local(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
