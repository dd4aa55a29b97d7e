package config

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/cdc"
	"github.com/outboxrelay/outbox-relay/decode"
	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/relay"
	"github.com/outboxrelay/outbox-relay/sink"
	"github.com/outboxrelay/outbox-relay/store"
)

// Stream gives the configuration of the replication connection.
func (c *Config) Stream(log zerolog.Logger) (cdc.Config, error) {
	conn, err := c.ReplicationConn()
	if err != nil {
		return cdc.Config{}, err
	}
	return cdc.Config{Conn: conn, WALSenderTimeout: c.Slot.WALSenderTimeout, Gulp: c.Slot.Gulp, Logger: log}, nil
}

// Store gives the configuration of the connections for statements. The table
// is filled in by the relay, from the catalog.
func (c *Config) Store(log zerolog.Logger) (store.Config, error) {
	conn, err := c.QueryConn()
	if err != nil {
		return store.Config{}, err
	}
	return store.Config{Conn: conn, Relay: c.Relay.Name, Slot: c.Slot.Name, Mode: store.WriteBack(c.EffectiveWriteBack()), Logger: log}, nil
}

// Sink gives the configuration of the Kafka side. The authorities to trust
// are read now; passwords and client certificates at each connection.
func (c *Config) Sink(log zerolog.Logger, metrics prometheus.Registerer) (sink.Config, error) {
	tls, err := c.Kafka.tlsConfig()
	if err != nil {
		return sink.Config{}, err
	}
	return sink.Config{
		Brokers: c.Kafka.brokers(), ClientID: c.Kafka.ClientID, TLS: tls, SASL: c.Kafka.saslMechanism(), Codec: c.Kafka.Codec,
		Route: sink.Route{
			Topics: c.Route.Topics, Template: c.Route.Template, Allow: c.Route.Allow, OnMissingTopic: c.Route.OnMissingTopic,
		},
		Policy: c.Policy.sink(), RecordBytes: int(c.Limits.RecordBytes), MaxTopics: c.Observe.MaxTopics,
		Logger: log, Registerer: metrics, Slot: c.Slot.Name,
	}, nil
}

func (p Policy) sink() sink.Policy {
	out := sink.Policy{Default: sink.Action(p.Default), Topics: make(map[string]map[outbox.Class]sink.Action, len(p.Topics))}
	for topic, classes := range p.Topics {
		out.Topics[topic] = make(map[outbox.Class]sink.Action, len(classes))
		for class, action := range classes {
			out.Topics[topic][outbox.Class(class)] = sink.Action(action)
		}
	}
	return out
}

// RelayConfig gives the configuration of the stream path.
func (c *Config) RelayConfig() (relay.Config, error) {
	schema, table, err := SplitTable(c.Table.Name)
	if err != nil {
		return relay.Config{}, fmt.Errorf("reading table.name: %w", err)
	}
	return relay.Config{
		Relay: c.Relay.Name, Slot: c.Slot.Name, Publication: c.Publication.Name, Schema: schema, Table: table,
		Mapping: c.Table.Columns.mapping(), SentAt: string(c.Table.Columns.SentAt),
		OnMissing: c.Slot.OnMissing, Failover: c.Slot.Failover,
		WriteBack: relay.WriteBack(c.EffectiveWriteBack()), WriteBackRows: c.WriteBack.Rows, WriteBackInterval: c.WriteBack.Interval,
		SpanRows: c.Limits.SpanRows, SpanBytes: int(c.Limits.SpanBytes),
		LinesEvents: int64(c.Limits.LinesEvents), LinesBytes: int64(c.Limits.LinesBytes),
		WALSenderTimeout: c.Slot.WALSenderTimeout, ShutdownGrace: c.Shutdown.Grace,
	}, nil
}

func (c Columns) mapping() decode.Mapping {
	return decode.Mapping{
		ID: string(c.ID), EventID: string(c.EventID), AggregateType: string(c.AggregateType), AggregateID: string(c.AggregateID),
		EventType: string(c.EventType), Topic: string(c.Topic), Key: string(c.Key), Payload: string(c.Payload),
		ContentType: string(c.ContentType), Headers: string(c.Headers), DeliverAfter: string(c.DeliverAfter),
		CreatedAt: string(c.CreatedAt), Status: string(c.Status),
	}
}
