package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// numericBytes encodes a decimal number as numeric_send does: digits to base
// 10,000, without zeros at either end.
func numericBytes(s string) []byte {
	sign := uint16(numericPositive)
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		s, sign = rest, numericNegative
	}
	whole, fraction, _ := strings.Cut(s, ".")
	scale := len(fraction)
	whole = strings.Repeat("0", (4-len(whole)%4)%4) + whole
	fraction += strings.Repeat("0", (4-len(fraction)%4)%4)
	weight := len(whole)/4 - 1
	var digits []uint16
	for all := whole + fraction; all != ""; all = all[4:] {
		var d uint16
		for _, c := range []byte(all[:4]) {
			d = d*10 + uint16(c-'0')
		}
		digits = append(digits, d)
	}
	for len(digits) > 0 && digits[0] == 0 {
		digits, weight = digits[1:], weight-1
	}
	for len(digits) > 0 && digits[len(digits)-1] == 0 {
		digits = digits[:len(digits)-1]
	}
	if len(digits) == 0 {
		weight, sign = 0, numericPositive
	}
	var w writer
	w.u16(uint16(len(digits))).u16(uint16(weight)).u16(sign).u16(uint16(scale))
	for _, d := range digits {
		w.u16(d)
	}
	return w
}

// Law: a binary numeric prints as the decimal number it was made from, with
// all its decimal places, and that text is taken as a numeric.
func TestNumericPrintsItsNumber(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30}|[1-9]0{0,30})(\.(0{0,20}|[0-9]{0,20})[0-9])?`).Draw(t, "number")
		if !strings.ContainsAny(want, "123456789") {
			want = strings.TrimPrefix(want, "-") // there is no negative zero
		}
		got, reason := appendNumeric(nil, numericBytes(want))
		if reason != "" || string(got) != want || !isNumeric(got) {
			t.Fatalf("%s became %s (%s)", want, got, reason)
		}
	})
}

// Law: what no server sends as a numeric is refused, in text and in binary.
func TestNumericRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "-", ".", "1.", ".5", "--1", "1e5", "+1", "1.2.3", "1 ", "nan", "inf"} {
		if isNumeric([]byte(s)) {
			t.Errorf("%q is taken for a numeric", s)
		}
	}
	for name, data := range map[string][]byte{
		"empty": {}, "short": {0, 0, 0, 0, 0, 0, 0}, "one digit announced": {0, 1, 0, 0, 0, 0, 0, 0},
		"one too many": {0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, "digit 10000": {0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10},
		"sign": {0, 0, 0, 0, 0x12, 0x34, 0, 0}, "scale": {0, 0, 0, 0, 0, 0, 0x40, 0},
	} {
		if got, reason := appendNumeric(nil, data); reason == "" || len(got) != 0 {
			t.Errorf("%s: printed as %q", name, got)
		}
	}
}

// Law: a binary timestamp prints as a text that is read as the same instant
// and the same side of the usable years; so both formats give one event.
func TestTimestampFormatsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.OneOf(
			rapid.Int64Range(minMicros, endMicros-1),
			rapid.Int64Range(earliest.UnixMicro()-5-postgresEpoch*1_000_000, earliest.UnixMicro()+5-postgresEpoch*1_000_000),
			rapid.Int64Range(latest.UnixMicro()-5-postgresEpoch*1_000_000, latest.UnixMicro()+5-postgresEpoch*1_000_000),
			rapid.Int64Range(-3e14, 3e15),
		).Draw(t, "micros")
		zone := rapid.SampledFrom([]string{"", "+00"}).Draw(t, "zone")
		data := binInt8(micros)
		printed, reason := appendTimestamp(nil, data.Data, zone)
		if reason != "" {
			t.Fatalf("%d: %s", micros, reason)
		}
		fromBinary, w1, r1 := readTime(data)
		fromText, w2, r2 := readTime(Column{Format: FormatText, Data: printed})
		if !fromBinary.Equal(fromText) || w1 != w2 || r1 != "" || r2 != "" {
			t.Fatalf("%s: binary %v %d %s, text %v %d %s", printed, fromBinary, w1, r1, fromText, w2, r2)
		}
	})
}

// Law: a binary date prints as the day that lies that many days from
// 2000-01-01, and that text is taken as a date.
func TestDatePrintsItsDay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.Int32Range(-730119, 2921939).Draw(t, "days") // years 1 to 9999
		got, reason := appendDate(nil, binary.BigEndian.AppendUint32(nil, uint32(days)))
		want := time.Date(2000, 1, 1+int(days), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
		if string(got) != want || reason != "" || !isDate(got) {
			t.Fatalf("day %d became %s (%s), want %s", days, got, reason, want)
		}
	})
}

// Law: years are printed with at least four digits, on both sides of each
// power of ten, and values outside their type's range are refused.
func TestDaysAtTheirLimits(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"0001-01-01", "0009-12-31", "0010-01-01", "0099-12-31", "0100-01-01", "0999-12-31", "1000-01-01", "9999-12-31"} {
		at, err := time.Parse(time.DateOnly, want)
		if err != nil {
			t.Fatal(err)
		}
		if got, bc := appendDay(nil, at); string(got) != want || bc != "" {
			t.Errorf("%s is printed as %s%s", want, got, bc)
		}
	}
	for days, want := range map[int32]string{minDays - 1: "", minDays: "4714-11-24 BC", endDays - 1: "5874897-12-31", endDays: ""} {
		if got, reason := appendDate(nil, binary.BigEndian.AppendUint32(nil, uint32(days))); string(got) != want || (reason == "") != (want != "") {
			t.Errorf("day %d became %q (%s), want %q", days, got, reason, want)
		}
	}
	for micros, want := range map[int64]string{minMicros - 1: "", minMicros: "4714-11-24 00:00:00 BC",
		endMicros - 1: "294276-12-31 23:59:59.999999", endMicros: ""} {
		data := binInt8(micros)
		if got, reason := appendTimestamp(nil, data.Data, ""); string(got) != want || (reason == "") != (want != "") {
			t.Errorf("microsecond %d became %q (%s), want %q", micros, got, reason, want)
		}
		if _, _, reason := readTime(data); (reason == "") != (want != "") {
			t.Errorf("microsecond %d was read as a time (%s)", micros, reason)
		}
	}
}

// Law: what no server prints as a timestamp or date is refused.
func TestTimesRefuse(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "2026", "2026-01-01", "2026-01-01 ", "2026-01-01 00:00", "2026-13-01 00:00:00", "2026-00-01 00:00:00",
		"2026-01-32 00:00:00", "2026-01-00 00:00:00", "2025-02-29 00:00:00", "0000-01-01 00:00:00", "2026-01-01 24:00:00",
		"2026-01-01 00:60:00", "2026-01-01 00:00:60", "2026-01-01 00:00:00.", "2026-01-01 00:00:00.1234567", "2026-01-01 00:00:00+",
		"2026-01-01 00:00:00+1", "2026-01-01 00:00:00+16", "2026-01-01 00:00:00+00:", "2026-01-01 00:00:00+00 AD", "2026-01-01 00:00:00 BCE",
		"26-01-01 00:00:00", "2026-1-1 00:00:00", "2026-01-01T00:00:00", "20260101 00:00:00", " 2026-01-01 00:00:00", "Infinity",
		"12345678-01-01 00:00:00", "01.02.2026 00:00:00", "4714-11-23 23:59:59+00 BC"} {
		if _, _, reason := parseTimestamp([]byte(s)); reason == "" {
			t.Errorf("%q is taken for a timestamp", s)
		}
	}
	for _, s := range []string{"", "2026-01-01 00:00:00", "2025-02-29", "2026-01-01 AD", "0000-01-01"} {
		if isDate([]byte(s)) {
			t.Errorf("%q is taken for a date", s)
		}
	}
}

// Law: bytea's hex form is read as encoding/hex reads its digits, good or bad,
// and the byte that is named is the first that is no digit.
// Case F13 of docs/guarantees.md.
func TestByteaAgreesWithTheLibrary(t *testing.T) {
	t.Parallel()
	digit := rapid.SampledFrom([]byte("0123456789abcdefABCDEF0123456789abcdefABCDEFgG/:@`\x00\xff"))
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.SliceOfN(digit, 0, 64).Draw(t, "digits")
		want, err := hex.DecodeString(string(digits))
		got, reason := decodeBytea(append([]byte(`\x`), digits...))
		if (err == nil) != (reason == "") || (err == nil && !bytes.Equal(want, got)) {
			t.Fatalf("%q: library %x %v, ours %x %s", digits, want, err, got, reason)
		}
		bad := bytes.IndexFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) })
		if len(digits)%2 == 0 && bad >= 0 && !strings.HasPrefix(reason, fmt.Sprintf("byte %d of", 2+bad)) {
			t.Fatalf("%q: %s", digits, reason)
		}
	})
}

// Law: uuids are printed as the library prints them, and only that form is
// taken.
func TestUUIDAgreesWithTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		got, reason := appendUUID(nil, id[:])
		if string(got) != id.String() || reason != "" || !isUUID(got) {
			t.Fatalf("%s became %s (%s)", id, got, reason)
		}
		at := rapid.IntRange(0, 35).Draw(t, "at")
		got[at] = rapid.SampledFrom([]byte("gG:/`@A F")).Draw(t, "wrong")
		if isUUID(got) {
			t.Fatalf("%q is taken for a uuid", got)
		}
	})
}

// Law: a JSON string of ours is read back as the text it was made from.
func TestJSONReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		var got string
		if err := json.Unmarshal(appendJSON(nil, []byte(want)), &got); err != nil || got != want {
			t.Fatalf("%q became %q: %v", want, got, err)
		}
	})
}
