package decode

import "encoding/binary"

// The sign words of numeric's binary form. Infinity exists since 14.
const (
	numericPositive = 0x0000
	numericNegative = 0x4000
	numericNaN      = 0xC000
	numericInf      = 0xD000
	numericMinusInf = 0xF000
	numericMaxScale = 0x3FFF
)

// number is numeric's binary form: digits to base 10,000, the first of them
// worth 10,000^weight, of which scale decimal places are shown.
type number struct {
	digits []byte // two bytes each, high byte first
	weight int
	scale  int
}

// digit gives the i-th digit; those that are not stored are 0.
func (n number) digit(i int) uint16 {
	if i < 0 || i >= len(n.digits)/2 {
		return 0
	}
	return binary.BigEndian.Uint16(n.digits[2*i:])
}

// appendNumeric prints numeric's binary form as numeric_out does.
func appendNumeric(dst, data []byte) ([]byte, string) {
	if len(data) < 8 || len(data)-8 != 2*int(binary.BigEndian.Uint16(data)) {
		return dst, badLength(formNumeric, data)
	}
	n := number{
		digits: data[8:],
		weight: int(int16(binary.BigEndian.Uint16(data[2:]))),
		scale:  int(binary.BigEndian.Uint16(data[6:])),
	}
	for i := range len(n.digits) / 2 {
		if n.digit(i) > 9999 {
			return dst, "its binary numeric has an impossible digit"
		}
	}
	if n.scale > numericMaxScale {
		return dst, "its binary numeric has an impossible scale"
	}
	switch binary.BigEndian.Uint16(data[4:]) {
	case numericPositive:
		return n.append(dst), ""
	case numericNegative:
		return n.append(append(dst, '-')), ""
	case numericNaN:
		return append(dst, "NaN"...), ""
	case numericInf:
		return append(dst, "Infinity"...), ""
	case numericMinusInf:
		return append(dst, "-Infinity"...), ""
	default:
		return dst, "its binary numeric has an unknown sign"
	}
}

// append prints the absolute value: at most 131,072 digits before the point
// and 16,383 behind it, whatever the input says.
func (n number) append(dst []byte) []byte {
	next := n.weight + 1 // the first digit behind the point
	if n.weight < 0 {
		dst = append(dst, '0')
	}
	for i := range next {
		if i == 0 {
			dst = appendLeading(dst, n.digit(0))
		} else {
			dst = appendFour(dst, n.digit(i))
		}
	}
	if n.scale == 0 {
		return dst
	}
	dst = append(dst, '.')
	end := len(dst) + n.scale
	for len(dst) < end {
		dst = appendFour(dst, n.digit(next))
		next++
	}
	return dst[:end]
}

func appendFour(dst []byte, d uint16) []byte {
	return append(dst, byte('0'+d/1000), byte('0'+d/100%10), byte('0'+d/10%10), byte('0'+d%10))
}

// appendLeading prints one digit without zeros in front, but at least "0".
func appendLeading(dst []byte, d uint16) []byte {
	var four [4]byte
	s := appendFour(four[:0], d)
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return append(dst, s...)
}

// isNumeric says whether text is what numeric_out prints.
func isNumeric(text []byte) bool {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	whole := countDigits(text)
	if whole == 0 || whole == len(text) {
		return whole > 0
	}
	fraction := text[whole+1:]
	return text[whole] == '.' && len(fraction) > 0 && countDigits(fraction) == len(fraction)
}

// countDigits says how many decimal digits text begins with.
func countDigits(text []byte) int {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return n
}
