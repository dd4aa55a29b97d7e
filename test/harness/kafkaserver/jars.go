package kafkaserver

import "errors"

// ErrMissing is wrapped by errors that say that Kafka cannot be had here.
var ErrMissing = errors.New("Apache Kafka is missing")

// Available says why Kafka cannot be had on this machine, nil when it can.
func Available() error { return ErrMissing }
