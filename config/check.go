package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// checker looks for what no single key shows: values that contradict each
// other, and what is missing.
type checker struct {
	l        *Loaded
	mistakes Mistakes
}

// check returns what is wrong between keys, and fills l.Warnings.
func (l *Loaded) check(o LoadOptions) Mistakes {
	c := checker{l: l}
	if !o.Incomplete {
		c.required(o.Env)
	}
	c.postgres(o.Env)
	c.brokers()
	c.sasl()
	c.table()
	c.route()
	c.policies()
	return c.mistakes
}

func (c *checker) wrong(path, text, hint string) {
	c.mistakes = append(c.mistakes, Mistake{Place: c.l.origins[path], Key: path, Text: text, Hint: hint})
}

func (c *checker) warn(format string, args ...any) {
	c.l.Warnings = append(c.l.Warnings, fmt.Sprintf(format, args...))
}

func (c *checker) required(env Env) {
	c.database(env)
	if len(c.l.Config.Kafka.Brokers) == 0 && !c.l.broken["kafka.brokers"] {
		c.wrong("kafka.brokers", "not set", "name at least one broker: [kafka-1:9092]")
	}
}

func (c *checker) database(env Env) {
	const path = "postgres.replication"
	if c.l.Config.Postgres.Replication == "" && !c.l.broken[path] && !setIn(env, "PGHOST") && !setIn(env, "PGSERVICE") {
		c.wrong(path, "not set", "postgres://user@host:5432/database; or set DATABASE_URL, or PGHOST and the other PG variables")
	}
}

// postgres checks the strings and their transport security.
func (c *checker) postgres(env Env) {
	p := c.l.Config.Postgres
	for _, d := range []struct{ path, text string }{{"postgres.replication", p.Replication}, {"postgres.query", p.Query}} {
		if d.text == "" {
			continue
		}
		db, err := openDSN(d.text, env)
		if err != nil {
			c.wrong(d.path, err.Error(), "")
			continue
		}
		if len(db.weak) == 0 {
			continue
		}
		if !p.Insecure {
			c.wrong(d.path, "weaker than sslmode=verify-full: "+strings.Join(db.weak, "; "),
				"use sslmode=verify-full (and sslrootcert=FILE), or allow it with postgres.insecure: true")
			continue
		}
		c.warn("%s: %s", d.path, strings.Join(db.weak, "; "))
	}
}

func (c *checker) brokers() {
	k := c.l.Config.Kafka
	if k.TLS.CertFile == "" != (k.TLS.KeyFile == "") {
		c.wrong("kafka.tls.cert_file", "certificate and key belong together", "set both kafka.tls.cert_file and kafka.tls.key_file, or neither")
	}
	if len(k.Brokers) == 0 {
		return
	}
	if k.tlsEnabled() {
		if k.Insecure {
			c.warn("kafka.insecure: the brokers' certificates are not verified")
		}
		return
	}
	if k.TLS.CAFile != "" || k.TLS.CertFile != "" {
		c.wrong("kafka.tls.enabled", "TLS files are given but TLS is off", "set kafka.tls.enabled: true, or remove the files")
	}
	if k.local() {
		return
	}
	if !k.Insecure {
		c.wrong("kafka.tls.enabled", "plain text to a broker on another machine", "remove the key (TLS is then on), or allow it with kafka.insecure: true")
		return
	}
	c.warn("kafka.insecure: plain text to the brokers%s", passwordInClear(k.SASL.Mechanism))
}

func passwordInClear(mechanism string) string {
	if mechanism == "plain" {
		return ", and the SASL password with it"
	}
	return ""
}

func (c *checker) sasl() {
	s := c.l.Config.Kafka.SASL
	if s.Mechanism == "none" {
		if s.Username != "" || s.PasswordFile != "" {
			c.wrong("kafka.sasl.mechanism", "a user name or password is given, but the mechanism is none", "set plain, scram-sha-256 or scram-sha-512")
		}
		return
	}
	if s.Username == "" {
		c.wrong("kafka.sasl.username", "not set, but kafka.sasl.mechanism is "+s.Mechanism, "")
	}
	if s.PasswordFile == "" {
		c.wrong("kafka.sasl.password_file", "not set, but kafka.sasl.mechanism is "+s.Mechanism, "put the password into a file that only this user may read")
	}
}

// table checks that no column is used twice, and that what write-back needs
// is there.
func (c *checker) table() {
	used := map[Column]string{}
	for _, k := range tableKeys() {
		column, ok := k.at(&c.l.Config).(*Column)
		if !ok || *column == "" {
			continue
		}
		if first, ok := used[*column]; ok {
			c.wrong(k.path, fmt.Sprintf("column %q is already %s", string(*column), first), "map each to a column of its own, or to null")
			continue
		}
		used[*column] = k.path
	}
	mode := c.l.Config.WriteBack.Mode
	_, chosen := c.l.origins["write_back.mode"]
	if c.l.Config.Table.Columns.Status == "" && chosen && (mode == "status" || mode == "async") {
		c.wrong("write_back.mode", mode+" needs a status column, and table.columns.status is null", "use off or delete, or map the column")
	}
}

// EffectiveWriteBack is write_back.mode, or off where the table has no status
// column and nobody chose.
func (c *Config) EffectiveWriteBack() string {
	if c.Table.Columns.Status == "" && c.WriteBack.Mode != "delete" {
		return "off"
	}
	return c.WriteBack.Mode
}

func (c *checker) route() {
	r, columns := c.l.Config.Route, c.l.Config.Table.Columns
	for _, p := range []struct {
		name   string
		column Column
	}{{"aggregate_type", columns.AggregateType}, {"event_type", columns.EventType}} {
		if strings.Contains(r.Template, "${"+p.name+"}") && p.column == "" {
			c.wrong("route.template", fmt.Sprintf("it uses ${%s}, and table.columns.%s is null", p.name, p.name), "map the column, or write another template")
		}
	}
	if len(r.Allow) == 0 {
		c.wrong("route.allow", "nothing is allowed, so every event would be refused", `list the topics, or ["*"] for all`)
	}
	for name, topic := range r.Topics {
		if strings.HasPrefix(topic, "__") {
			c.wrong("route.topics", fmt.Sprintf("the topic of %q begins with __, which Kafka keeps for itself", name), "")
		}
	}
}

// refusalClasses are the classes that a policy may name.
var refusalClasses = []string{
	string(outbox.ClassTooLarge), string(outbox.ClassInvalid), string(outbox.ClassEncode), string(outbox.ClassRoute), string(outbox.ClassBrokerRefused),
}

func (c *checker) policies() {
	for topic, classes := range c.l.Config.Policy.Topics {
		for class := range classes {
			if !slices.Contains(refusalClasses, class) {
				hint := ""
				if n := nearest(class, refusalClasses); n != "" {
					hint = "did you mean " + n + "?"
				}
				c.wrong("policy.topics", fmt.Sprintf("topic %q: unknown class %q; want %s", topic, class, orList(refusalClasses)), hint)
			}
		}
	}
}

// NeedsDatabase returns Mistakes unless the configuration says where the
// database is. It is for commands that need nothing else.
func (l *Loaded) NeedsDatabase(env Env) error {
	c := checker{l: l}
	c.database(env)
	if len(c.mistakes) == 0 {
		return nil
	}
	return c.mistakes
}

// CheckFiles reads every file that the configuration names, and returns
// Mistakes for those that cannot be used. Load does not do it, because the
// files of a server need not be on the machine where its configuration is
// looked at.
func (l *Loaded) CheckFiles() error {
	c := checker{l: l}
	cfg := &l.Config
	secret := func(path, name string) {
		if name == "" {
			return
		}
		if _, err := readSecret(name); err != nil {
			c.wrong(path, name+": "+err.Error(), "")
		}
	}
	secret("postgres.password_file", cfg.Postgres.PasswordFile)
	secret("kafka.sasl.password_file", cfg.Kafka.SASL.PasswordFile)
	if _, err := cfg.Kafka.tlsConfig(); err != nil {
		c.wrong("kafka.tls.enabled", err.Error(), "")
	}
	if len(c.mistakes) == 0 {
		return nil
	}
	return c.mistakes.sorted()
}
