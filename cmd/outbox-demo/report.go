package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/meter"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/verdict"
	"github.com/outboxrelay/outbox-relay/cmd/outbox-demo/internal/view"
	"github.com/outboxrelay/outbox-relay/outbox"
)

// schemaVersion rises when a field of the report changes its meaning or goes;
// new fields do not raise it.
const schemaVersion = 1

// report is the verdict with its surroundings, the JSON line of --output json.
type report struct {
	SchemaVersion int  `json:"schema_version"`
	OK            bool `json:"ok"`
	counted
	timed
	Faults   []fault    `json:"faults"`
	Slot     slotReport `json:"slot"`
	Postgres string     `json:"postgres"`
	Problems []string   `json:"problems"`
}

// counted are the numbers of the judgement.
type counted struct {
	RowsCommitted    int   `json:"rows_committed"`
	RecordsPublished int   `json:"records_published"`
	Lost             int   `json:"lost"`
	OutOfOrder       int   `json:"out_of_order"`
	Duplicates       int   `json:"duplicates"`
	Restarts         int   `json:"restarts"`
	NotSent          int   `json:"not_sent"`
	NotCommitted     int   `json:"not_committed"` // records of rows that were rolled back, or of none
	Altered          int   `json:"altered"`
	RolledBack       int64 `json:"rows_rolled_back"`
	BrokerStops      int   `json:"broker_stops"` // faults that were seen to bite
	RelayKills       int   `json:"relay_kills"`
}

// timed are the latencies from commit to reader, and the times of the run.
type timed struct {
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
	MaxMS         float64 `json:"max_ms"`
	CalmP50MS     float64 `json:"p50_without_faults_ms"`
	CalmP99MS     float64 `json:"p99_without_faults_ms"`
	CalmRows      uint64  `json:"rows_without_faults"`
	FirstRecordMS float64 `json:"first_record_ms"` // since the demo's own start
	WroteS        float64 `json:"wrote_s"`
}

type slotReport struct {
	Confirmed  string `json:"confirmed_lsn"`
	LastCommit string `json:"last_commit_lsn"`
	Passed     bool   `json:"passed"` // confirmed beyond the last commit
	LagBytes   int64  `json:"lag_bytes"`
}

// report judges; everything has ended but the servers.
func (d *demo) report(ctx context.Context, end ending) (*report, error) {
	d.screen.Line("reading topics and table for the verdict")
	conn, err := d.db.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	result, err := judge(ctx, conn, d.broker)
	if err != nil {
		return nil, err
	}
	all, calm := d.ledger.Overall()
	out := &report{
		SchemaVersion: schemaVersion, Faults: d.director.List(), Postgres: d.db.version,
		counted: d.counted(result), timed: d.timed(all, calm, end), Slot: d.slot(end),
	}
	out.Problems = d.problems(result, out, end)
	out.OK = len(out.Problems) == 0
	return out, nil
}

func (d *demo) counted(r verdict.Result) counted {
	out := counted{
		RowsCommitted: r.Rows, RecordsPublished: r.Records, Lost: r.Lost, OutOfOrder: r.OutOfOrder, Duplicates: r.Duplicates,
		Restarts: d.relay.Counts().Restarts, NotSent: r.NotSent, NotCommitted: r.Foreign, Altered: r.Altered, RolledBack: d.writers.rolledBack.Load(),
	}
	for _, f := range d.director.List() {
		if !f.Bitten {
			continue
		}
		if f.Name == faultBroker {
			out.BrokerStops++
		} else {
			out.RelayKills++
		}
	}
	return out
}

func (d *demo) timed(all, calm meter.Quantiles, end ending) timed {
	out := timed{
		P50MS: ms(all.P50), P99MS: ms(all.P99), MaxMS: ms(all.Max), CalmP50MS: ms(calm.P50), CalmP99MS: ms(calm.P99),
		CalmRows: calm.N, WroteS: round(end.wrote.Seconds()),
	}
	if first := d.reader.First(); !first.IsZero() {
		out.FirstRecordMS = ms(first.Sub(d.started))
	}
	return out
}

func ms(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

// round keeps two digits: more would claim what the histogram does not know.
func round(v float64) float64 { return float64(int64(v*100+.5)) / 100 }

func (d *demo) slot(end ending) slotReport {
	last := d.reader.LastCommit()
	return slotReport{
		Confirmed: end.sight.Confirmed.String(), LastCommit: last.String(),
		Passed: passed(end.sight.Confirmed, last), LagBytes: end.sight.SlotLag,
	}
}

// passed says whether the confirmed position is beyond the transaction whose
// commit record stands at last; false when none is known.
func passed(confirmed, last outbox.LSN) bool { return last != 0 && confirmed > last }

// problems says in words what is wrong; nothing is for people to conclude.
func (d *demo) problems(r verdict.Result, out *report, end ending) []string {
	list := []string{}
	add := func(n int, format string) {
		if n != 0 {
			list = append(list, fmt.Sprintf(format, n))
		}
	}
	add(r.Lost, "%d committed rows are in no topic")
	add(r.OutOfOrder, "%d first copies are out of order")
	add(r.NotSent, "%d rows are not SENT")
	add(r.Foreign, "%d records belong to no committed row")
	add(r.Altered, "%d records differ from their row")
	add(r.BadSource, "%d numbers are missing in the table: the demo's writers are wrong")
	add(max(0, int(d.ledger.Read(time.Now()).Committed)-r.Rows), "the server said COMMIT for %d rows more than the table has")
	add(d.relay.Counts().Deaths, "the relay ended by itself %d times")
	if r.Rows == 0 {
		list = append(list, "nothing was written")
	}
	if !end.drained {
		list = append(list, fmt.Sprintf("the rest was not read, SENT and confirmed within %v", drainLimit))
	} else if !out.Slot.Passed {
		list = append(list, "the slot is not confirmed beyond the last commit")
	}
	if end.stop != nil {
		list = append(list, end.stop.Error())
	}
	return list
}

// print writes the report: to stdout in the form asked for; the table goes to
// the screen where stdout gets JSON.
func (r *report) print(form output, stdout io.Writer, screen *view.Screen) error {
	if form == asTable {
		_, err := io.WriteString(stdout, r.table())
		return err
	}
	screen.Print(r.table())
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the verdict: %w", err)
	}
	_, err = stdout.Write(append(line, '\n'))
	return err
}
