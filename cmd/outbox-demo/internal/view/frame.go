package view

import (
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
)

// Mood is how good a thing is.
type Mood uint8

// The moods.
const (
	Plain Mood = iota
	Good
	Uneasy
	Bad
)

// Light is a short word about one part, with its mood.
type Light struct {
	Word string
	Mood Mood
}

// Event is something that happened.
type Event struct {
	At   time.Duration // since the writers began
	Text string
	Mood Mood
}

// Fault is a mark under the plots.
type Fault byte

// The marks. Zero is none.
const (
	NoFault    Fault = 0
	BrokerDown Fault = 'B'
	RelayDown  Fault = 'K'
)

// Point is one second of the past.
type Point struct {
	Rate  float64       // rows that arrived
	Lag   time.Duration // the longest way of a row that arrived or should have
	Fault Fault
}

// Minute is how many points the plots show.
const Minute = 60

// Frame is everything that one picture shows.
type Frame struct {
	Title          string
	Elapsed, Total time.Duration // since the writers began
	Phase          Light
	Relay, Broker  Light
	Reading        meter.Reading
	SlotLag        int64 // bytes; negative: unknown
	Written, Read  float64
	Second         meter.Quantiles
	All, Calm      meter.Quantiles
	Points         []Point // oldest first, the last Minute of them
	Events         []Event // oldest first
}
