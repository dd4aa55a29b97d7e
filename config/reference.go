package config

import "strings"

// key is one row of the reference: all that is known about one key of the
// file.
type key struct {
	path string
	unit string
	help string
	// at points to the field. The pointer's type decides how a value is
	// read and printed.
	at func(*Config) any
	// show says that people may see the value. A key without it prints as
	// stars and is never quoted in an error.
	show bool
	// oneOf are the words allowed; later are words that a later version will
	// allow. Both empty: any.
	oneOf, later []string
	// unbuilt says that this version takes the default only.
	unbuilt bool
	// min and max bound numbers, sizes (bytes) and durations (nanoseconds);
	// max 0 is no bound.
	min, max int64
	// names are the words in ${...} that are the value's own placeholders,
	// not environment variables.
	names []string
	// check says what is wrong with a text, "" for nothing.
	check func(string) string
}

func open(path, unit, help string, at func(*Config) any) key {
	return key{path: path, unit: unit, help: help, at: at, show: true}
}

func secret(path, unit, help string, at func(*Config) any) key {
	return key{path: path, unit: unit, help: help, at: at}
}

func (k key) words(allowed ...string) key       { k.oneOf = allowed; return k }
func (k key) notYet(words ...string) key        { k.later = words; return k }
func (k key) refused() key                      { k.unbuilt = true; return k }
func (k key) between(lo, hi int64) key          { k.min, k.max = lo, hi; return k }
func (k key) placeholders(names ...string) key  { k.names = names; return k }
func (k key) checked(f func(string) string) key { k.check = f; return k }

// envPrefix begins every environment variable of ours.
const envPrefix = "OUTBOX_RELAY_"

// env is the environment variable that sets the key: levels are parted by
// two underscores, so that a single one stays part of a name.
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "__"))
}

// reference lists every key, in the order in which example and print show
// them.
func reference() []key {
	var all []key
	for _, part := range [][]key{sourceKeys(), tableKeys(), kafkaKeys(), ruleKeys(), processKeys(), laterKeys()} {
		all = append(all, part...)
	}
	return all
}

func sourceKeys() []key {
	return []key{
		open("relay.name", "name", "names this relay; several relays share one schema, each with its own name, slot and table", func(c *Config) any { return &c.Relay.Name }).checked(relayName),
		open("relay.mode", "word", "where events come from: cdc reads the log", func(c *Config) any { return &c.Relay.Mode }).words("cdc").notYet("poll", "exactly_once"),
		secret("postgres.replication", "connection string", "URL or keyword form; used for the stream, connects directly (no pooler); empty: $DATABASE_URL, else the PG* variables", func(c *Config) any { return &c.Postgres.Replication }),
		secret("postgres.query", "connection string", "for everything else; empty: the same as postgres.replication", func(c *Config) any { return &c.Postgres.Query }),
		open("postgres.password_file", "path", "file with the password of connection strings that hold none, read again at each connection", func(c *Config) any { return &c.Postgres.PasswordFile }),
		open("postgres.insecure", "bool", "true allows a weaker sslmode than verify-full to another machine", func(c *Config) any { return &c.Postgres.Insecure }),
		open("postgres.connect_timeout", "duration", "limit of one connection attempt to one host", func(c *Config) any { return &c.Postgres.ConnectTimeout }).between(second/10, hour),
		open("slot.name", "name", "the replication slot", func(c *Config) any { return &c.Slot.Name }).checked(slotName),
		open("slot.on_missing", "word", "fail stops with the command that repairs it; create makes the slot, which is only safe on the first start", func(c *Config) any { return &c.Slot.OnMissing }).words("fail", "create").notYet("recover"),
		open("slot.failover", "bool", "make the slot a failover slot (PostgreSQL 17 and later)", func(c *Config) any { return &c.Slot.Failover }),
		open("slot.wal_sender_timeout", "duration", "after this silence the server gives the slot free, and the relay the connection", func(c *Config) any { return &c.Slot.WALSenderTimeout }).between(2*second, hour),
		open("slot.gulp", "duration", "far behind on TCP, wait this long after a short read so that reads grow; 0 is off", func(c *Config) any { return &c.Slot.Gulp }).between(0, second),
		open("publication.name", "name", "the publication that holds the outbox table", func(c *Config) any { return &c.Publication.Name }).checked(identifier),
	}
}

func tableKeys() []key {
	column := func(name, help string, at func(*Columns) *Column) key {
		return open("table.columns."+name, "column", help+notThere, func(c *Config) any { return at(&c.Table.Columns) }).checked(identifier)
	}
	return []key{
		open("table.name", "schema.table", "the outbox table; quote names as in SQL where they need it", func(c *Config) any { return &c.Table.Name }).checked(tableName),
		open("table.columns.id", "column", "tie-break and locality; never null", func(c *Config) any { return &c.Table.Columns.ID }).checked(identifier),
		column("event_id", "identity on the wire, header outbox-id", func(c *Columns) *Column { return &c.EventID }),
		column("aggregate_type", "what the event is about; the topic template uses it", func(c *Columns) *Column { return &c.AggregateType }),
		column("aggregate_id", "the record key when the key column is null", func(c *Columns) *Column { return &c.AggregateID }),
		column("event_type", "header outbox-type", func(c *Columns) *Column { return &c.EventType }),
		column("topic", "names the topic of one row; null in a row: the route decides", func(c *Columns) *Column { return &c.Topic }),
		column("key", "the record key", func(c *Columns) *Column { return &c.Key }),
		open("table.columns.payload", "column", "the record value; never null", func(c *Config) any { return &c.Table.Columns.Payload }).checked(identifier),
		column("content_type", "header content-type", func(c *Columns) *Column { return &c.ContentType }),
		column("headers", "jsonb object of more headers", func(c *Columns) *Column { return &c.Headers }),
		column("priority", "which line is retried first", func(c *Columns) *Column { return &c.Priority }),
		column("deliver_after", "not before this time", func(c *Columns) *Column { return &c.DeliverAfter }),
		column("created_at", "the record's timestamp", func(c *Columns) *Column { return &c.CreatedAt }),
		column("status", "where the outcome is shown; without it write_back is off", func(c *Columns) *Column { return &c.Status }),
		column("sent_at", "when the outcome was shown", func(c *Columns) *Column { return &c.SentAt }),
		column("consumed_at", "written by consumers", func(c *Columns) *Column { return &c.ConsumedAt }),
	}
}

func kafkaKeys() []key {
	return []key{
		open("kafka.brokers", "host:port list", "where to begin; at least one", func(c *Config) any { return &c.Kafka.Brokers }).checked(brokerAddress),
		open("kafka.client_id", "name", "shown in the brokers' logs and quotas", func(c *Config) any { return &c.Kafka.ClientID }),
		open("kafka.tls.enabled", "bool or null", "null: on, unless every broker is on this machine", func(c *Config) any { return &c.Kafka.TLS.Enabled }),
		open("kafka.tls.ca_file", "path", "PEM file of the authorities to trust; empty: the system's", func(c *Config) any { return &c.Kafka.TLS.CAFile }),
		open("kafka.tls.cert_file", "path", "PEM file of the client certificate (mTLS), read again at each connection", func(c *Config) any { return &c.Kafka.TLS.CertFile }),
		open("kafka.tls.key_file", "path", "PEM file of its key", func(c *Config) any { return &c.Kafka.TLS.KeyFile }),
		open("kafka.sasl.mechanism", "word", "none, plain, scram-sha-256 or scram-sha-512", func(c *Config) any { return &c.Kafka.SASL.Mechanism }).words("none", "plain", "scram-sha-256", "scram-sha-512"),
		open("kafka.sasl.username", "name", "who the relay is to the brokers", func(c *Config) any { return &c.Kafka.SASL.Username }),
		open("kafka.sasl.password_file", "path", "file with the password, read again at each connection", func(c *Config) any { return &c.Kafka.SASL.PasswordFile }),
		open("kafka.codec", "word", "compression: none, gzip, snappy, lz4 or zstd", func(c *Config) any { return &c.Kafka.Codec }).words("none", "gzip", "snappy", "lz4", "zstd"),
		open("kafka.insecure", "bool", "true allows plain text to another machine, and with TLS switches verification off", func(c *Config) any { return &c.Kafka.Insecure }),
	}
}

// notThere ends the help of every column that a table may lack.
const notThere = "; null: not there"
