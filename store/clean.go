package store

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	detailBytes = 2048 // the line table's own check says the same
	codeBytes   = 200  // longer than any name of ours or Kafka's
)

// clean makes a text storable in a database of the given encoding, one byte
// or more a character, and at most limit bytes long: what is not printable or
// cannot be converted becomes a question mark, white space a blank. A NUL, or
// a character that the encoding lacks, would fail the whole statement.
func clean(s, encoding string, limit int) string {
	var b strings.Builder
	b.Grow(min(len(s), limit))
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case r == utf8.RuneError || !unicode.IsPrint(r) || !storable(r, encoding):
			r = '?'
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// storable says whether every database of the encoding holds the character.
// Beside UTF8 and LATIN1 it trusts ASCII alone, which all of them share.
func storable(r rune, encoding string) bool {
	switch encoding {
	case "UTF8":
		return true
	case "LATIN1":
		return r < 0x80 || (r >= 0xA0 && r <= 0xFF)
	default:
		return r < 0x80
	}
}
