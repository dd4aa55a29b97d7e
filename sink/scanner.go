package sink

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks through JSON text. It never looks beyond the end and takes
// time in proportion to the text.
type scanner struct {
	text string
	at   int
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) word(w string) bool {
	if strings.HasPrefix(s.text[s.at:], w) {
		s.at += len(w)
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// end fails when anything but blanks is left.
func (s *scanner) end() error {
	s.space()
	if s.at != len(s.text) {
		return errHeaderText
	}
	return nil
}

// str reads a string. Without escapes the result shares the text's memory.
func (s *scanner) str() (string, error) {
	if !s.take('"') {
		return "", errHeaderText
	}
	start := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start : s.at-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return "", errHeaderText
		}
		s.at++
	}
	return "", errHeaderText
}

// escaped reads on from the first backslash of a string that began at start.
func (s *scanner) escaped(start int) (string, error) {
	b := append([]byte(nil), s.text[start:s.at]...)
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return string(b), nil
		case c < ' ':
			return "", errHeaderText
		case c != '\\':
			b = append(b, c)
			continue
		}
		r, err := s.escape()
		if err != nil {
			return "", err
		}
		b = utf8.AppendRune(b, r)
	}
	return "", errHeaderText
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what follows a backslash. Half of a surrogate pair is no text:
// it is refused, where encoding/json would put a replacement character.
func (s *scanner) escape() (rune, error) {
	c := s.peek()
	s.at++
	if r, ok := escapes[c]; ok {
		return r, nil
	}
	if c != 'u' {
		return 0, errHeaderText
	}
	r, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.word(`\u`) {
		low, err := s.hex4()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, errors.New("a string holds half of a surrogate pair")
}

func (s *scanner) hex4() (rune, error) {
	if len(s.text)-s.at < 4 {
		return 0, errHeaderText
	}
	var r rune
	for range 4 {
		c := s.text[s.at]
		s.at++
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, errHeaderText
		}
	}
	return r, nil
}

// raw reads a value that is no string and returns its text, checked.
func (s *scanner) raw() (string, error) {
	start, depth, quoted := s.at, 0, false
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		switch {
		case quoted:
			if c == '\\' {
				s.at++
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']' || c == ',') && depth == 0:
			return s.checked(start)
		case c == '}' || c == ']':
			depth--
		}
	}
	return "", errHeaderText
}

func (s *scanner) checked(start int) (string, error) {
	s.at = min(s.at, len(s.text))
	raw := strings.TrimRight(s.text[start:s.at], " \t\n\r")
	if !json.Valid([]byte(raw)) {
		return "", errHeaderText
	}
	return raw, nil
}
