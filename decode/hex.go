package decode

import "strconv"

// badDigit marks a byte that is no hexadecimal digit. It is a bit that no
// digit has, so that many digits can be checked with one test.
const badDigit = 0x80

var hexDigits = func() (t [256]byte) {
	for i := range t {
		t[i] = badDigit
	}
	for i := range 10 {
		t['0'+i] = byte(i)
	}
	for i := range 6 {
		t['a'+i] = byte(10 + i)
		t['A'+i] = byte(10 + i)
	}
	return t
}()

// decodeBytea reads the hex form of bytea, \x7b22. The older escape form is
// refused: every session of the relay pins bytea_output to hex, and an escape
// form taken for something else would go out as other bytes.
func decodeBytea(text []byte) ([]byte, string) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return nil, `its text is not in the hex form of bytea; the session must have bytea_output = hex`
	}
	digits := text[2:]
	if len(digits)%2 != 0 {
		return nil, "its hex form has an odd number of digits"
	}
	out := make([]byte, len(digits)/2)
	if !decodeHex(out, digits) {
		return nil, "byte " + strconv.Itoa(2+firstBadDigit(digits)) + " of its hex form is no hexadecimal digit"
	}
	return out, ""
}

// decodeHex fills out, half as long as digits, and says whether all of them
// were digits.
func decodeHex(out, digits []byte) bool {
	var seen byte
	for len(out) >= 4 && len(digits) >= 8 {
		d := digits[:8:8]
		h0, l0 := hexDigits[d[0]], hexDigits[d[1]]
		h1, l1 := hexDigits[d[2]], hexDigits[d[3]]
		h2, l2 := hexDigits[d[4]], hexDigits[d[5]]
		h3, l3 := hexDigits[d[6]], hexDigits[d[7]]
		o := out[:4:4]
		o[0], o[1], o[2], o[3] = h0<<4|l0, h1<<4|l1, h2<<4|l2, h3<<4|l3
		seen |= h0 | l0 | h1 | l1 | h2 | l2 | h3 | l3
		out, digits = out[4:], digits[8:]
	}
	for i := range out {
		h, l := hexDigits[digits[2*i]], hexDigits[digits[2*i+1]]
		out[i] = h<<4 | l
		seen |= h | l
	}
	return seen&badDigit == 0
}

func firstBadDigit(digits []byte) int {
	for i, c := range digits {
		if hexDigits[c] == badDigit {
			return i
		}
	}
	return len(digits)
}
