package decode

import (
	"encoding/binary"
	"strconv"
)

// appendText appends the text of a value to dst, as the server's output
// function prints it, and gives the reason why it could not be read ("" when
// it could). Text that could not be read is appended as it came; binary that
// could not be read appends nothing.
func appendText(dst []byte, f form, c Column) ([]byte, string) {
	if c.Format == FormatText {
		return append(dst, c.Data...), checkText(f, c)
	}
	switch f {
	case formText, formJSON:
		return append(dst, c.Data...), ""
	case formJSONB:
		text, reason := jsonbText(c.Data)
		if reason != "" {
			return dst, reason
		}
		return append(dst, text...), ""
	case formInt2, formInt4, formInt8:
		n, reason := readInt(f, c)
		if reason != "" {
			return dst, reason
		}
		return strconv.AppendInt(dst, n, 10), ""
	case formBool:
		return appendBool(dst, c.Data)
	case formUUID:
		return appendUUID(dst, c.Data)
	case formNumeric:
		return appendNumeric(dst, c.Data)
	case formDate:
		return appendDate(dst, c.Data)
	case formTimestamp:
		return appendTimestamp(dst, c.Data, "")
	case formTimestamptz:
		return appendTimestamp(dst, c.Data, "+00")
	default:
		return dst, "its type cannot be read in the binary format"
	}
}

// checkText says why a text is none that the type's output function prints.
func checkText(f form, c Column) string {
	ok := true
	switch f {
	case formInt2, formInt4, formInt8:
		_, reason := readInt(f, c)
		return reason
	case formBool:
		ok = len(c.Data) == 1 && (c.Data[0] == 't' || c.Data[0] == 'f')
	case formUUID:
		ok = isUUID(c.Data)
	case formNumeric:
		ok = isNumeric(c.Data)
	case formDate:
		ok = isDate(c.Data)
	case formTimestamp, formTimestamptz:
		_, _, reason := parseTimestamp(c.Data)
		return reason
	}
	if !ok {
		return "its text is no valid " + f.String()
	}
	return ""
}

// readInt reads an integer of either format.
func readInt(f form, c Column) (int64, string) {
	if c.Format == FormatText {
		bits := 64
		switch f {
		case formInt2:
			bits = 16
		case formInt4:
			bits = 32
		}
		n, err := strconv.ParseInt(string(c.Data), 10, bits)
		if err != nil || c.Data[0] == '+' {
			return 0, "its text is no valid " + f.String()
		}
		return n, ""
	}
	switch {
	case f == formInt2 && len(c.Data) == 2:
		return int64(int16(binary.BigEndian.Uint16(c.Data))), ""
	case f == formInt4 && len(c.Data) == 4:
		return int64(int32(binary.BigEndian.Uint32(c.Data))), ""
	case f == formInt8 && len(c.Data) == 8:
		return int64(binary.BigEndian.Uint64(c.Data)), ""
	default:
		return 0, badLength(f, c.Data)
	}
}

func badLength(f form, data []byte) string {
	return "its binary " + f.String() + " has the wrong length, " + strconv.Itoa(len(data)) + " bytes"
}

func appendBool(dst, data []byte) ([]byte, string) {
	if len(data) != 1 {
		return dst, badLength(formBool, data)
	}
	if data[0] != 0 {
		return append(dst, 't'), ""
	}
	return append(dst, 'f'), ""
}

// jsonbText strips the version byte of jsonb's binary form; the rest is its
// text.
func jsonbText(data []byte) ([]byte, string) {
	if len(data) == 0 || data[0] != 1 {
		return data, "its binary jsonb is of an unknown version"
	}
	return data[1:], ""
}

const lowerHex = "0123456789abcdef"

func appendUUID(dst, data []byte) ([]byte, string) {
	if len(data) != 16 {
		return dst, badLength(formUUID, data)
	}
	for i, b := range data {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, lowerHex[b>>4], lowerHex[b&15])
	}
	return dst, ""
}

// uuidParts are the digits between the dashes.
var uuidParts = [...][2]int{{0, 8}, {9, 13}, {14, 18}, {19, 23}, {24, 36}}

// isUUID wants the one form that the server prints: lower case, with dashes.
func isUUID(text []byte) bool {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return false
	}
	for _, part := range uuidParts {
		for _, c := range text[part[0]:part[1]] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// appendJSON appends text as a JSON string, escaped exactly as the server's
// to_json does: control characters, quote and backslash, nothing else.
func appendJSON(dst, text []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range text {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		dst = appendEscape(dst, c)
		from = i + 1
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
	}
}
