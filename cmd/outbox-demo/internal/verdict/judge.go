package verdict

import "crypto/sha256"

// ID is an event's identity, the 16 bytes of its UUID.
type ID [16]byte

// Sum is a digest of a payload.
type Sum [sha256.Size]byte

// SumOf digests a payload.
func SumOf(payload []byte) Sum { return sha256.Sum256(payload) }

// Row is one committed row, as the table has it at the end.
type Row struct {
	ID        ID
	Aggregate string
	Seq       int64 // 1, 2, 3, … for each aggregate, in the order of commits
	Sent      bool  // its status is SENT
	Payload   Sum
}

// Place is where a record stands: one partition of one topic.
type Place struct {
	Topic     string
	Partition int32
}

// Record is one record, as its topic has it.
type Record struct {
	Place Place
	ID    ID // zero when the record has none that can be read
	Key   string
	Value Sum
}

// Result is the verdict. The first two say how much there was to look at; all
// others are faults but Duplicates, which at-least-once delivery allows.
type Result struct {
	Rows       int // committed, in the table
	Records    int // in the topics
	Lost       int // rows without a record
	OutOfOrder int // first copies behind a later one of their aggregate, or on a second partition
	Duplicates int // copies of rows beyond the first
	Foreign    int // records of no committed row: rolled back, or never ours
	Altered    int // records whose key or value is not the row's
	NotSent    int // rows whose status is not SENT
	BadSource  int // rows whose numbers have holes: the demo's own writers are wrong
}

// Good says whether nothing was found and something was there.
func (r Result) Good() bool {
	return r.Rows > 0 && r.Lost+r.OutOfOrder+r.Foreign+r.Altered+r.NotSent+r.BadSource == 0
}

type entry struct {
	Row
	copies int
}

type progress struct {
	place Place
	last  int64 // the highest number among first copies
}

// Judge gathers rows, then records, then judges. Use it from one goroutine:
// Row for every row, then Record for every record, those of one partition in
// the order of their offsets, then Result. It keeps about 150 bytes a row.
type Judge struct {
	rows   map[ID]*entry
	seen   map[string]*progress
	result Result
}

// NewJudge makes one that has seen nothing.
func NewJudge() *Judge {
	return &Judge{rows: map[ID]*entry{}, seen: map[string]*progress{}}
}

// Row takes one row of the table.
func (j *Judge) Row(r Row) {
	j.rows[r.ID] = &entry{Row: r}
	j.result.Rows++
	if !r.Sent {
		j.result.NotSent++
	}
}

// Record takes one record of a topic.
func (j *Judge) Record(r Record) {
	j.result.Records++
	row, ok := j.rows[r.ID]
	if !ok {
		j.result.Foreign++
		return
	}
	row.copies++
	if r.Key != row.Aggregate || r.Value != row.Payload {
		j.result.Altered++
	}
	if row.copies > 1 {
		j.result.Duplicates++
		return
	}
	j.order(row, r.Place)
}

// order compares a first copy with those of its aggregate before it.
func (j *Judge) order(row *entry, place Place) {
	p, ok := j.seen[row.Aggregate]
	if !ok {
		p = &progress{place: place}
		j.seen[row.Aggregate] = p
	}
	if row.Seq < p.last || place != p.place {
		j.result.OutOfOrder++
	}
	p.last = max(p.last, row.Seq)
}

// Result judges what was taken so far.
func (j *Judge) Result() Result {
	out := j.result
	highest, count := map[string]int64{}, map[string]int64{}
	for _, row := range j.rows {
		if row.copies == 0 {
			out.Lost++
		}
		highest[row.Aggregate] = max(highest[row.Aggregate], row.Seq)
		count[row.Aggregate]++
	}
	for aggregate, n := range highest {
		if missing := n - count[aggregate]; missing != 0 {
			out.BadSource += int(max(missing, -missing))
		}
	}
	return out
}
