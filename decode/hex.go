package decode

import (
	"encoding/hex"
	"strconv"
)

// decodeBytea reads the hex form of bytea, \x7b22. The older escape form is
// refused: every session of the relay pins bytea_output to hex, and an escape
// form taken for something else would go out as other bytes.
//
// The library's decoder is used as it is: a table decoder with one check per
// eight digits, and one for eight digits at a time in a register, were no
// faster in the relay's row sizes.
func decodeBytea(text []byte) ([]byte, string) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return nil, `its text is not in the hex form of bytea; the session must have bytea_output = hex`
	}
	digits := text[2:]
	if len(digits)%2 != 0 {
		return nil, "its hex form has an odd number of digits"
	}
	out := make([]byte, len(digits)/2)
	if n, err := hex.Decode(out, digits); err != nil {
		at := 2 + 2*n
		if isHexDigit(text[at]) {
			at++
		}
		return nil, "byte " + strconv.Itoa(at) + " of its hex form is no hexadecimal digit"
	}
	return out, ""
}

func isHexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
