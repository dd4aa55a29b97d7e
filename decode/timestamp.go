package decode

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
)

// when says where a time lies in respect of the years that records and
// time.Time's encodings can carry, 1 to 9999.
type when uint8

const (
	whenUsable when = iota
	whenBefore      // -infinity, or BC
	whenBeyond      // infinity, or after the year 9999
)

// The server's timestamps and dates reach from 4714-11-24 BC to the end of
// 294276 and of 5874897 (src/include/datatype/timestamp.h). They are counted
// from 2000-01-01, in microseconds and in days.
const (
	minMicros    = -211813488000000000
	endMicros    = 9223371331200000000
	minDays      = -2451545
	endDays      = 2147483494 - 2451545
	daySeconds   = 24 * 60 * 60
	noTimestamp  = "its text is no valid ISO timestamp"
	outsideRange = "its binary value is outside the range of its type"
)

var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) // exclusive
)

// classify decides by the instant, so that text and binary agree.
func classify(t time.Time) when {
	switch {
	case t.Before(earliest):
		return whenBefore
	case !t.Before(latest):
		return whenBeyond
	default:
		return whenUsable
	}
}

// readTime reads a timestamp, with or without time zone, of either format. A
// timestamp without time zone counts as UTC. The time is of use only when it
// is whenUsable and the reason is "".
func readTime(c Column) (time.Time, when, string) {
	if c.Format == FormatText {
		return parseTimestamp(c.Data)
	}
	if len(c.Data) != 8 {
		return time.Time{}, whenBefore, badLength(formTimestamp, c.Data)
	}
	micros := int64(binary.BigEndian.Uint64(c.Data))
	switch {
	case micros == math.MaxInt64:
		return time.Time{}, whenBeyond, ""
	case micros == math.MinInt64:
		return time.Time{}, whenBefore, ""
	case micros < minMicros || micros >= endMicros:
		return time.Time{}, whenBefore, outsideRange
	}
	t := timeOf(micros)
	return t, classify(t), ""
}

// appendTimestamp prints the binary form as timestamp_out does with datestyle
// ISO; zone is "+00" for timestamptz_out with timezone UTC.
func appendTimestamp(dst, data []byte, zone string) ([]byte, string) {
	if len(data) != 8 {
		return dst, badLength(formTimestamp, data)
	}
	micros := int64(binary.BigEndian.Uint64(data))
	switch {
	case micros == math.MaxInt64:
		return append(dst, "infinity"...), ""
	case micros == math.MinInt64:
		return append(dst, "-infinity"...), ""
	case micros < minMicros || micros >= endMicros:
		return dst, outsideRange
	}
	t := timeOf(micros)
	dst, bc := appendDay(dst, t)
	dst = t.AppendFormat(dst, " 15:04:05.999999")
	dst = append(dst, zone...)
	return append(dst, bc...), ""
}

// appendDate prints the binary form as date_out does with datestyle ISO.
func appendDate(dst, data []byte) ([]byte, string) {
	if len(data) != 4 {
		return dst, badLength(formDate, data)
	}
	days := int64(int32(binary.BigEndian.Uint32(data)))
	switch {
	case days == math.MaxInt32:
		return append(dst, "infinity"...), ""
	case days == math.MinInt32:
		return append(dst, "-infinity"...), ""
	case days < minDays || days >= endDays:
		return dst, outsideRange
	}
	dst, bc := appendDay(dst, time.Unix(postgresEpoch+days*daySeconds, 0).UTC())
	return append(dst, bc...), ""
}

// appendDay prints year, month and day, and gives what must follow the whole
// value. There is no year 0 for the server: Go's year 0 is 1 BC.
func appendDay(dst []byte, t time.Time) ([]byte, string) {
	year, month, day := t.Date()
	bc := ""
	if year <= 0 {
		year, bc = 1-year, " BC"
	}
	for limit := 1000; limit > 1 && year < limit; limit /= 10 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, int64(year), 10)
	dst = append(dst, '-', byte('0'+month/10), byte('0'+month%10), '-', byte('0'+day/10), byte('0'+day%10))
	return dst, bc
}

// parseTimestamp reads what timestamp_out and timestamptz_out print with
// datestyle ISO, under any time zone: 2026-01-01 00:00:00.5+05:30, with any
// number of digits in the year and perhaps BC at the end.
func parseTimestamp(text []byte) (time.Time, when, string) {
	switch string(text) {
	case "infinity":
		return time.Time{}, whenBeyond, ""
	case "-infinity":
		return time.Time{}, whenBefore, ""
	}
	p := scanner{text: text}
	day := p.day()
	p.want(' ')
	seconds := p.clock()
	nanos := p.fraction()
	seconds -= p.zone()
	day.bc = p.bc()
	if !p.done() || !day.valid() {
		return time.Time{}, whenBefore, noTimestamp
	}
	t := time.Date(day.goYear(), time.Month(day.month), day.day, 0, 0, seconds, nanos, time.UTC)
	if micros := t.Unix() - postgresEpoch; micros < minMicros/1_000_000 || micros >= endMicros/1_000_000 {
		return time.Time{}, whenBefore, "its timestamp is outside the range of its type"
	}
	return t, classify(t), ""
}

// isDate says whether text is what date_out prints with datestyle ISO.
func isDate(text []byte) bool {
	if s := string(text); s == "infinity" || s == "-infinity" {
		return true
	}
	p := scanner{text: text}
	day := p.day()
	day.bc = p.bc()
	return p.done() && day.valid()
}
