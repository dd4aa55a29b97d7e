package config

import "time"

const (
	second = int64(time.Second)
	hour   = int64(time.Hour)
	day    = 24 * hour
)

// ruleKeys are the keys that decide what happens to an event.
func ruleKeys() []key {
	return []key{
		open("route.topics", "map", "topic by event_type, else by aggregate_type; looked up before the template", func(c *Config) any { return &c.Route.Topics }),
		open("route.template", "text", "topic of an event that names none; ${aggregate_type} and ${event_type} are filled in", func(c *Config) any { return &c.Route.Template }).placeholders("aggregate_type", "event_type"),
		open("route.allow", "pattern list", "topics that may be written to; * stands for any run of characters; never names that begin with __", func(c *Config) any { return &c.Route.Allow }),
		open("route.on_missing_topic", "word", "a topic that Kafka does not have: wait stops the line until it is there, refuse parks the event", func(c *Config) any { return &c.Route.OnMissingTopic }).words("wait", "refuse"),
		open("policy.default", "word", "a refused event with a key: hold makes later events of the key wait behind it, skip lets them pass; without a key always skip", func(c *Config) any { return &c.Policy.Default }).words("hold", "skip").notYet("hold_until_parked", "stop"),
		open("policy.topics", "map of maps", "other policies: topic, then class of refusal (too_large, invalid, encode, route, broker_refused), then policy", func(c *Config) any { return &c.Policy.Topics }).words("hold", "skip").notYet("hold_until_parked", "stop"),
		open("write_back.mode", "word", "status shows SENT before the log is released, async behind it, delete deletes the row, off writes nothing", func(c *Config) any { return &c.WriteBack.Mode }).words("status", "async", "delete", "off"),
		open("write_back.rows", "rows", "outcomes in one transaction, at most", func(c *Config) any { return &c.WriteBack.Rows }).between(1, 10_000),
		open("write_back.interval", "duration", "an outcome waits for others no longer than this", func(c *Config) any { return &c.WriteBack.Interval }).between(second/1000, 10*second),
		open("limits.span_rows", "rows", "events read but not yet settled, at most", func(c *Config) any { return &c.Limits.SpanRows }).between(1, 10_000_000),
		open("limits.span_bytes", "bytes", "and their bytes, at most; a larger event travels alone. The process may take five times as much while brokers are slow", func(c *Config) any { return &c.Limits.SpanBytes }).between(64<<10, 1<<40),
		open("limits.lines_events", "events", "events that wait in lines, at most; then the stream stops and says so", func(c *Config) any { return &c.Limits.LinesEvents }).between(1, 1<<40),
		open("limits.lines_bytes", "bytes", "and their size in the database, at most", func(c *Config) any { return &c.Limits.LinesBytes }).between(1<<20, 1<<50),
		open("limits.record_bytes", "bytes", "refuse larger records, whatever their topic allows", func(c *Config) any { return &c.Limits.RecordBytes }).between(1<<10, 1<<29),
		open("shutdown.grace", "duration", "after the first signal, records in flight have this long to be acknowledged", func(c *Config) any { return &c.Shutdown.Grace }).between(second/10, hour),
		open("shutdown.server_stop_grace", "duration", "upper bound for leaving a server that shuts down; it is left at once, so there is nothing to set yet", func(c *Config) any { return &c.Shutdown.ServerStopGrace }).refused(),
	}
}

// processKeys are the keys of the process itself.
func processKeys() []key {
	return []key{
		open("listen.probes", "host:port", "/livez, /readyz and /metrics; empty: no listener", func(c *Config) any { return &c.Listen.Probes }).checked(listenAddress),
		open("listen.admin", "host:port", "the listener that can change things", func(c *Config) any { return &c.Listen.Admin }).refused(),
		open("log.level", "word", "debug, info, warn or error", func(c *Config) any { return &c.Observe.LogLevel }).words("debug", "info", "warn", "error"),
		open("log.format", "word", "auto is console on a terminal and json elsewhere", func(c *Config) any { return &c.Observe.LogFormat }).words("auto", "json", "console"),
		open("metrics.max_topics", "topics", "topics with series of their own; the rest are summed under _other", func(c *Config) any { return &c.Observe.MaxTopics }).between(1, 100_000),
		open("migrate.auto", "bool", "true lets run bring the relay's schema up to date itself", func(c *Config) any { return &c.Observe.MigrateAuto }),
	}
}

// laterKeys are the keys of parts that are not built yet. They are listed so
// that a file that keeps their defaults is right, and one that changes them
// is told.
func laterKeys() []key {
	later := func(path, unit, help string, at func(*Config) any) key {
		return open(path, unit, help, at).refused()
	}
	return []key{
		later("retry.schedule", "word", "waits between the tries of a refused event", func(c *Config) any { return &c.Retry.Schedule }),
		later("retry.jitter", "fraction", "each wait is longer or shorter by up to this", func(c *Config) any { return &c.Retry.Jitter }),
		later("retry.lease", "duration", "a claimed line belongs to its worker this long", func(c *Config) any { return &c.Retry.Lease }),
		later("poll.interval", "duration", "how often lines that are due are looked for", func(c *Config) any { return &c.Later.PollInterval }),
		later("poll.slots", "slots", "key ranges in mode poll", func(c *Config) any { return &c.Later.PollSlots }),
		later("poll.notify", "bool", "wake by LISTEN/NOTIFY", func(c *Config) any { return &c.Later.PollNotify }),
		later("poll.claim", "lines", "lines in one claim", func(c *Config) any { return &c.Later.PollClaim }),
		later("sweep.interval", "duration", "how often rows that never came out of the log are looked for", func(c *Config) any { return &c.Later.SweepInterval }),
		later("cleanup.enabled", "bool", "delete what is done with", func(c *Config) any { return &c.Later.Cleanup.Enabled }),
		later("cleanup.interval", "duration", "how often", func(c *Config) any { return &c.Later.Cleanup.Interval }),
		later("cleanup.sent", "duration", "SENT rows older than this", func(c *Config) any { return &c.Later.Cleanup.Sent }),
		later("cleanup.consumed", "duration", "CONSUMED rows older than this", func(c *Config) any { return &c.Later.Cleanup.Consumed }),
		later("cleanup.retain_until_consumed", "bool", "keep SENT rows until they are CONSUMED", func(c *Config) any { return &c.Later.Cleanup.RetainUntilConsumed }),
		later("cleanup.partitions", "bool", "make and drop partitions", func(c *Config) any { return &c.Later.Cleanup.Partitions }),
		later("admin.tokens_file", "path", "who may", func(c *Config) any { return &c.Later.TokensFile }),
		later("admin.tls", "map", "its certificate", func(c *Config) any { return &c.Later.AdminTLS }),
	}
}

// Default returns the configuration of an empty file. It lacks what has no
// sensible default: where the database is and where the brokers are.
func Default() Config {
	return Config{
		Relay:       Relay{Name: "default", Mode: "cdc"},
		Postgres:    Postgres{ConnectTimeout: 10 * time.Second},
		Slot:        Slot{Name: "outbox_relay", OnMissing: "fail", WALSenderTimeout: 30 * time.Second, Gulp: 20 * time.Millisecond},
		Publication: Publication{Name: "outbox_relay_pub"},
		Table:       Table{Name: "public.outbox", Columns: defaultColumns()},
		Kafka:       Kafka{Brokers: []string{}, ClientID: "outbox-relay", SASL: SASL{Mechanism: "none"}, Codec: "lz4"},
		Route: Route{
			Topics: map[string]string{}, Template: "outbox.event.${aggregate_type}", Allow: []string{"*"}, OnMissingTopic: "wait",
		},
		Policy:    Policy{Default: "hold", Topics: map[string]map[string]string{}},
		Retry:     Retry{Schedule: "standard", Jitter: 0.2, Lease: time.Minute},
		WriteBack: WriteBack{Mode: "status", Rows: 500, Interval: 50 * time.Millisecond},
		Limits: Limits{
			SpanRows: 20_000, SpanBytes: 32 << 20, LinesEvents: 1_000_000, LinesBytes: 1 << 30, RecordBytes: 64 << 20,
		},
		Shutdown: Shutdown{Grace: 30 * time.Second, ServerStopGrace: 10 * time.Second},
		Later:    defaultLater(),
		Listen:   Listen{Probes: "127.0.0.1:8080"},
		Observe:  Observe{LogLevel: "info", LogFormat: "auto", MaxTopics: 200},
	}
}

func defaultColumns() Columns {
	return Columns{
		ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Topic: "topic", Key: "message_key", Payload: "payload", ContentType: "content_type", Headers: "headers",
		Priority: "priority", DeliverAfter: "deliver_after", CreatedAt: "created_at",
		Status: "status", SentAt: "sent_at", ConsumedAt: "consumed_at",
	}
}

func defaultLater() Later {
	return Later{
		PollInterval: time.Second, PollSlots: 1, PollClaim: 200, SweepInterval: time.Minute,
		Cleanup: Cleanup{
			Interval: time.Minute, Sent: 7 * 24 * time.Hour, Consumed: 7 * 24 * time.Hour,
		},
		AdminTLS: map[string]string{},
	}
}
