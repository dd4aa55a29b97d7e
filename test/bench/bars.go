package main

import "fmt"

// bar is one thing that the product wants to hold, on two cores that
// PostgreSQL, the broker and the relay share.
type bar struct {
	text string
	want float64
	most bool     // want is the most; else the least
	got  *float64 // nil: not measured in this invocation
	why  string   // got is nil; "": the scenario was not run
}

func (b bar) met() bool {
	if b.most {
		return *b.got <= b.want
	}
	return *b.got >= b.want
}

func (b bar) verdict() string {
	switch {
	case b.got == nil && b.why != "":
		return b.why
	case b.got == nil:
		return "not measured"
	case b.met():
		return "met"
	default:
		return "MISSED"
	}
}

func (b bar) limit() string {
	if b.most {
		return fmt.Sprintf("<= %g", b.want)
	}
	return fmt.Sprintf(">= %g", b.want)
}

// mostDuplicates is one span, and what was acknowledged since the position was
// last stored, with the defaults of limits.span_rows and write_back.interval.
func mostDuplicates(off result) float64 {
	const spanRows, interval = 20_000, 0.05
	if off.RowsPerS == nil {
		return spanRows
	}
	return spanRows + interval**off.RowsPerS
}

func difference(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	d := *a - *b
	return &d
}

// bars judges results. What stands in them that was measured with a codec
// does not answer for the CPU.
func bars(o options, all []result) []bar {
	at := func(scenario string, shape int, link string) result { return find(all, key{scenario, shape, link}) }
	null := at("null-gulps", 10, tcp)
	if o.gulp == 0 {
		null = at("null", 10, tcp)
	}
	off := at("kafka-off", 10, tcp)
	cpu := off.CPUPerMillion
	if o.codec != "none" {
		cpu = nil
	}
	list := []bar{
		{text: "null sink against raw, 10 rows a transaction, TCP", want: 1.4, got: null.RatioToRaw},
		{text: "kafka-off against raw, 10 rows a transaction, TCP", want: 1.2, got: off.RatioToRaw},
		{text: "kafka-status against kafka-off, 10 rows a transaction, TCP", want: 0.7, got: ratio(at("kafka-status", 10, tcp).RowsPerS, off.RowsPerS)},
		{text: "kafka-off against raw, single rows, TCP", want: 1.3, got: at("kafka-off", 1, tcp).RatioToRaw},
		{text: "kafka-off over the unix socket against raw over TCP, single rows", want: 1.3, got: at("kafka-off", 1, unix).RatioToRawTCP},
		{text: "CPU-us a row of the relay, kafka-off, 10 rows a transaction, TCP, no codec", want: 6, most: true, got: cpu},
	}
	for _, shape := range o.shapes {
		outage, kill := at("outage", shape, o.links[0]), at("kill", shape, o.links[0])
		list = append(list, bar{text: fmt.Sprintf("MB above a relay without work, Kafka stopped, %s rows waiting, %s a transaction", whole(float64(o.rows)), whole(float64(shape))),
			want: 67.1, most: true, got: difference(outage.PeakRSSMB, outage.IdleRSSMB)})
		if kill.Duplicates != nil {
			n := float64(*kill.Duplicates)
			list = append(list, bar{text: fmt.Sprintf("duplicates after a SIGKILL in a drain, %s rows a transaction: a span and a settle interval", whole(float64(shape))),
				want: mostDuplicates(at("kafka-off", shape, o.links[0])), most: true, got: &n})
		}
	}
	for _, rate := range o.rates {
		floor, relay := at(fmt.Sprintf("floor-%d", rate), 1, o.links[0]), at(fmt.Sprintf("latency-%d", rate), 1, o.links[0])
		if floor.P50 != nil && relay.P50 != nil && (!floor.reached() || !relay.reached()) {
			list = append(list, bar{text: fmt.Sprintf("p50 and p99 against the floor at %d rows/s", rate), want: 1.5, most: true, why: "rate not reached"})
			continue
		}
		list = append(list,
			bar{text: fmt.Sprintf("p50 against the floor at %d rows/s", rate), want: 1.5, most: true, got: ratio(relay.P50, floor.P50)},
			bar{text: fmt.Sprintf("p99 against the floor at %d rows/s", rate), want: 1.5, most: true, got: ratio(relay.P99, floor.P99)})
	}
	return list
}
