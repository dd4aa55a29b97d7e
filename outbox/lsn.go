package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a byte position in the write-ahead log, the unsigned 64-bit number
// that PostgreSQL prints as two hexadecimal halves, for example 0/16B3748
// (PostgreSQL documentation, "pg_lsn type"). Zero is "no position".
//
// LSNs of one timeline compare as numbers. LSNs of two timelines do not
// compare at all below the fork; see Position.
type LSN uint64

// String prints the LSN as PostgreSQL does, without leading zeros.
func (l LSN) String() string {
	return strings.ToUpper(strconv.FormatUint(uint64(l>>32), 16)) + "/" +
		strings.ToUpper(strconv.FormatUint(uint64(l&0xFFFFFFFF), 16))
}

// ParseLSN reads the form that String and PostgreSQL print. It accepts
// either case and refuses anything else, signs and blanks included.
func ParseLSN(s string) (LSN, error) {
	hi, lo, ok := strings.Cut(s, "/")
	if !ok {
		return 0, fmt.Errorf("parsing LSN %q: want two hexadecimal halves with a slash between, such as 0/16B3748", s)
	}
	h, errHi := parseHalf(hi)
	l, errLo := parseHalf(lo)
	if errHi != nil || errLo != nil {
		return 0, fmt.Errorf("parsing LSN %q: each half must be 1 to 8 hexadecimal digits", s)
	}
	return LSN(h<<32 | l), nil
}

// parseHalf reads 1 to 8 hexadecimal digits. ParseUint alone would also take
// a sign or an underscore.
func parseHalf(s string) (uint64, error) {
	if len(s) == 0 || len(s) > 8 {
		return 0, strconv.ErrRange
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseUint(s, 16, 64)
}

// Position is where an event stands in the log, and so its identity: the
// timeline that wrote it, the LSN of its transaction's commit record
// (Commit's commit_lsn, which is Begin's final_lsn), and its index among the
// outbox rows of that transaction, from 0.
//
// A row's own LSN is no identity: it does not rise across transactions, and
// all rows of one COPY batch share one.
type Position struct {
	Timeline uint32
	Commit   LSN
	Index    int
}

// String gives the wire form of the header outbox-position:
// timeline:commit LSN:index, for example 1:0/16B3748:3.
func (p Position) String() string {
	return string(p.Append(nil))
}

// Append appends the wire form to b. It allocates only if b must grow.
func (p Position) Append(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(p.Timeline), 10)
	b = append(b, ':')
	b = appendUpperHex(b, uint64(p.Commit>>32))
	b = append(b, '/')
	b = appendUpperHex(b, uint64(p.Commit&0xFFFFFFFF))
	b = append(b, ':')
	return strconv.AppendInt(b, int64(p.Index), 10)
}

// ParsePosition reads the form that String prints.
func ParsePosition(s string) (Position, error) {
	bad := func() (Position, error) {
		return Position{}, fmt.Errorf("parsing position %q: want timeline:commit LSN:index, such as 1:0/16B3748:3", s)
	}
	tl, rest, ok := strings.Cut(s, ":")
	if !ok {
		return bad()
	}
	lsn, idx, ok := strings.Cut(rest, ":")
	if !ok {
		return bad()
	}
	timeline, err := strconv.ParseUint(tl, 10, 32)
	if err != nil {
		return bad()
	}
	commit, err := ParseLSN(lsn)
	if err != nil {
		return bad()
	}
	index, err := strconv.ParseUint(idx, 10, 31)
	if err != nil {
		return bad()
	}
	return Position{Timeline: uint32(timeline), Commit: commit, Index: int(index)}, nil
}

// Less says whether p comes before q. It panics when the timelines differ,
// because no order exists between them without the fork point.
func (p Position) Less(q Position) bool {
	if p.Timeline != q.Timeline {
		panic(fmt.Sprintf("outbox: comparing positions of two timelines: %v and %v", p, q))
	}
	if p.Commit != q.Commit {
		return p.Commit < q.Commit
	}
	return p.Index < q.Index
}

func appendUpperHex(b []byte, v uint64) []byte {
	const digits = "0123456789ABCDEF"
	var tmp [16]byte
	i := len(tmp)
	for {
		i--
		tmp[i] = digits[v&0xF]
		v >>= 4
		if v == 0 {
			return append(b, tmp[i:]...)
		}
	}
}

// Progress is how far a relay has come, the content of its position row:
// every transaction that ends at or below LSN is settled, and of the next
// one, whose commit record stands at NextCommit, the rows with an index below
// NextIndex are settled too (NextCommit is 0 when none of them is).
type Progress struct {
	Timeline   uint32
	LSN        LSN
	NextCommit LSN
	NextIndex  int
}

// Covers says whether the row at p is settled. It decides by the commit
// record's position, strictly below LSN: one transaction's end often equals
// the commit position of the next, so "at or below" would lose that one.
func (g Progress) Covers(p Position) bool {
	return p.Commit < g.LSN || (p.Commit == g.NextCommit && p.Index < g.NextIndex)
}

// Before says whether g is behind h on the same timeline.
func (g Progress) Before(h Progress) bool {
	if g.LSN != h.LSN {
		return g.LSN < h.LSN
	}
	if g.NextCommit != h.NextCommit {
		return g.NextCommit < h.NextCommit
	}
	return g.NextIndex < h.NextIndex
}
