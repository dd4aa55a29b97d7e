package config

import "time"

// Config is the whole configuration, as the file spells it. Every field has a
// row in the reference table, which holds its default, its unit and its
// help. The zero value is not useful; Default gives the defaults.
type Config struct {
	Relay       Relay
	Postgres    Postgres
	Slot        Slot
	Publication Publication
	Table       Table
	Kafka       Kafka
	Route       Route
	Policy      Policy
	Retry       Retry
	WriteBack   WriteBack
	Limits      Limits
	Shutdown    Shutdown
	Later       Later
	Listen      Listen
	Observe     Observe
}

// Relay names this relay.
type Relay struct {
	Name string
	Mode string
}

// Postgres says how to reach the database. Both DSNs are secrets.
type Postgres struct {
	Replication    string
	Query          string
	PasswordFile   string
	Insecure       bool
	ConnectTimeout time.Duration
}

// Slot is the replication slot.
type Slot struct {
	Name             string
	OnMissing        string
	Failover         bool
	WALSenderTimeout time.Duration
	Gulp             time.Duration
}

// Publication is the publication that holds the outbox table.
type Publication struct {
	Name string
}

// Table is the outbox table and where it keeps what.
type Table struct {
	Name    string
	Columns Columns
}

// Columns maps what the relay needs to the table's own column names. An
// empty Column is not there.
type Columns struct {
	ID, EventID, AggregateType, AggregateID, EventType Column
	Topic, Key, Payload, ContentType, Headers          Column
	Priority, DeliverAfter, CreatedAt                  Column
	Status, SentAt, ConsumedAt                         Column
}

// Column is a column's name; "" (null in the file) says that the table has no
// such column.
type Column string

// Kafka says how to reach the brokers.
type Kafka struct {
	Brokers  []string
	ClientID string
	TLS      KafkaTLS
	SASL     SASL
	Codec    string
	Insecure bool
}

// KafkaTLS is the transport security towards the brokers.
type KafkaTLS struct {
	Enabled  Choice
	CAFile   string
	CertFile string
	KeyFile  string
}

// SASL is how the relay proves to the brokers who it is.
type SASL struct {
	Mechanism    string
	Username     string
	PasswordFile string
}

// Route says which topic an event goes to.
type Route struct {
	Topics         map[string]string
	Template       string
	Allow          []string
	OnMissingTopic string
}

// Policy says what happens to later events of a key when one is refused.
type Policy struct {
	Default string
	Topics  map[string]map[string]string
}

// Retry is the schedule of refused events.
type Retry struct {
	Schedule string
	Jitter   float64
	Lease    time.Duration
}

// WriteBack says how the outcome is shown in the outbox table.
type WriteBack struct {
	Mode     string
	Rows     int
	Interval time.Duration
}

// Limits bound memory and the relay's own tables.
type Limits struct {
	SpanRows    int
	SpanBytes   Size
	LinesEvents int
	LinesBytes  Size
	RecordBytes Size
}

// Shutdown says how long the relay takes to leave.
type Shutdown struct {
	Grace           time.Duration
	ServerStopGrace time.Duration
}

// Listen holds the addresses of the listeners.
type Listen struct {
	Probes string
	Admin  string
}

// Observe is what the relay tells about itself, and what it may do at start.
type Observe struct {
	LogLevel    string
	LogFormat   string
	MaxTopics   int
	MigrateAuto bool
}

// Later holds the keys of parts that this version does not have. They may
// only keep their defaults.
type Later struct {
	PollInterval  time.Duration
	PollSlots     int
	PollNotify    bool
	PollClaim     int
	SweepInterval time.Duration
	Cleanup       Cleanup
	TokensFile    string
	AdminTLS      map[string]string
}

// Cleanup deletes what is done with.
type Cleanup struct {
	Enabled             bool
	Interval            time.Duration
	Sent                time.Duration
	Consumed            time.Duration
	RetainUntilConsumed bool
	Partitions          bool
}
