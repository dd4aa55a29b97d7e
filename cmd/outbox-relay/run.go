package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox-relay/admin"
	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/config"
	"github.com/outboxrelay/outbox-relay/migrations"
	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/sink"
)

func (a *app) runCommand() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "run",
		Short: "publish until told to stop",
		Long: `Publish the outbox until told to stop. An outage of Postgres or Kafka is waited
out, for ever; a mistake that only a person can correct ends the program before
it has begun, with the exit code that the manual lists, and later puts it into
the state failed, which /readyz and the log explain.

The first SIGTERM or SIGINT stops gracefully: records in flight are waited for
(shutdown.grace), positions are confirmed, exit code 0. The second stops at
once, exit code 130: nothing is lost, some events are published again.`,
		Example: "  outbox-relay run -c /etc/outbox-relay/outbox-relay.yaml\n  OUTBOX_RELAY_LOG__LEVEL=debug outbox-relay run",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o := a.loadOptions()
			if c.Flags().Changed("listen") {
				o.Flags = append(o.Flags, config.FlagValue{Flag: "listen", Path: "listen.probes", Text: listen})
			}
			l, err := config.Load(o)
			if err != nil {
				return err
			}
			return a.run(c.Context(), l)
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "host:port for probes and metrics (listen.probes)")
	return c
}

// daemon is the running program.
type daemon struct {
	cfg     *config.Config
	log     zerolog.Logger
	metrics *prometheus.Registry
	health  *health
}

// run wires everything and waits for its end.
func (a *app) run(ctx context.Context, l *config.Loaded) error {
	d := &daemon{cfg: &l.Config, log: a.logger(&l.Config), metrics: prometheus.NewRegistry(), health: &health{}}
	b := buildInfo()
	d.log.Info().Str("version", b.Version).Str("revision", b.Revision).Strs("files", l.Files).Str("relay", d.cfg.Relay.Name).
		Str("slot", d.cfg.Slot.Name).Str("publication", d.cfg.Publication.Name).Str("table", d.cfg.Table.Name).Msg("starting")
	for _, w := range l.Warnings {
		d.log.Warn().Str("setting", w).Msg("the configuration allows a connection that is not verified")
	}
	if err := d.collectors(b); err != nil {
		return err
	}
	kafka, r, err := d.parts()
	if err != nil {
		return err
	}
	defer kafka.Close()
	if err := d.serve(ctx, r); err != nil {
		return err
	}
	d.log.Info().Msg("stopped")
	if errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	return nil
}

// collectors registers what is about the process and not about the stream.
func (d *daemon) collectors(b build) error {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outbox_relay_build_info", Help: "Always 1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.Go},
	})
	info.Set(1)
	for _, c := range []prometheus.Collector{info, newPipelineInfo(d.cfg, d.health), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := d.metrics.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// parts makes sink and relay; neither connects yet. What they refuse is a
// mistake in the configuration.
func (d *daemon) parts() (*sink.Kafka, *relay.Relay, error) {
	wrong := func(err error) (*sink.Kafka, *relay.Relay, error) {
		return nil, nil, &failure{code: exitUsage, err: err, next: "outbox-relay config validate"}
	}
	stream, err := d.cfg.Stream(d.log)
	if err != nil {
		return wrong(err)
	}
	statements, err := d.cfg.Store(d.log)
	if err != nil {
		return wrong(err)
	}
	kafkaConfig, err := d.cfg.Sink(d.log, d.metrics)
	if err != nil {
		return wrong(err)
	}
	relayConfig, err := d.cfg.RelayConfig()
	if err != nil {
		return wrong(err)
	}
	kafka, err := sink.New(kafkaConfig)
	if err != nil {
		return wrong(err)
	}
	r, err := relay.New(relayConfig, relay.Deps{Stream: stream, Store: statements, Sink: kafka, Logger: d.log, Registerer: d.metrics})
	if err != nil {
		kafka.Close()
		return wrong(err)
	}
	return kafka, r, nil
}

// serve answers probes while the relay runs. The probes answer until the
// relay has stopped, so that a slow graceful stop is seen as one; a listener
// that breaks stops the relay.
func (d *daemon) serve(ctx context.Context, r *relay.Relay) error {
	probing, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	group, ctx := errgroup.WithContext(ctx)
	if d.cfg.Listen.Probes != "" {
		server, err := admin.Open(ctx, admin.Config{Address: d.cfg.Listen.Probes, Health: d.health, Metrics: d.metrics, Logger: d.log})
		if err != nil {
			return &failure{code: exitUsage, err: err, hint: "choose another listen.probes, or end the program that uses it"}
		}
		d.log.Info().Str("address", server.Addr()).Msg("listening for probes and metrics")
		group.Go(func() error { return server.Run(probing) })
	}
	group.Go(func() error {
		defer over()
		if err := d.ready(ctx); err != nil {
			return err
		}
		d.health.started(r)
		return r.Run(ctx)
	})
	return group.Wait()
}

// The waits between two looks at the schema while Postgres is away.
const (
	schemaRetryFirst = 500 * time.Millisecond
	schemaRetryLast  = 10 * time.Second
)

// ready waits for Postgres and checks that the relay's tables fit the
// program. A schema that does not fit, and what only a person can correct,
// end the program.
func (d *daemon) ready(ctx context.Context) error {
	conn, err := d.cfg.QueryConn()
	if err != nil {
		return &failure{code: exitUsage, err: err}
	}
	for wait := schemaRetryFirst; ; wait = min(2*wait, schemaRetryLast) {
		err := migrations.Check(ctx, conn)
		var version *migrations.VersionError
		if errors.As(err, &version) && version.Database < version.Program && d.cfg.Observe.MigrateAuto {
			d.log.Info().Int("from", version.Database).Int("to", version.Program).Msg("migrating the schema, as migrate.auto says")
			_, err = migrations.Up(ctx, conn)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if errors.As(err, &version) || cdc.Classify(err).Class.Permanent() {
			return err
		}
		d.health.waiting("Postgres cannot be reached: " + err.Error())
		d.log.Warn().Err(err).Dur("retry_in", wait).Msg("cannot look at the schema yet")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}
