package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Bounds on a row's own headers. They come from whoever may insert into the
// outbox, and every consumer has to take them.
const (
	maxRowHeaders     = 128
	maxRowHeaderBytes = 64 << 10 // names and values together
)

var errHeaderText = errors.New("the headers column is not one JSON object")

// rowHeaders appends the members of the headers column in their order: a
// string as its text, {"base64": "..."} as bytes, null as a null value, and
// anything else as compact JSON whose numbers are the server's digits. Errors
// hold names and sizes, never values.
//
// It reads JSON itself because encoding/json would sort members through a map,
// turn numbers into floats, and replace what is not text instead of refusing
// it.
func (a *arena) rowHeaders(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("the headers column holds bytes that are not UTF-8")
	}
	s := scanner{text: text}
	s.space()
	if s.word("null") {
		return s.end()
	}
	if !s.take('{') {
		return errHeaderText
	}
	s.space()
	if s.take('}') {
		return s.end()
	}
	start, spent := len(a.headers), 0
	for {
		if len(a.headers)-start == maxRowHeaders {
			return fmt.Errorf("the headers column has more than %d members", maxRowHeaders)
		}
		h, err := a.member(&s)
		if err != nil {
			return err
		}
		if spent += len(h.Key) + len(h.Value); spent > maxRowHeaderBytes {
			return fmt.Errorf("the headers column has more than %d bytes in names and values", maxRowHeaderBytes)
		}
		a.headers = append(a.headers, h)
		s.space()
		if s.take('}') {
			return s.end()
		}
		if !s.take(',') {
			return errHeaderText
		}
		s.space()
	}
}

// member reads one name and its value.
func (a *arena) member(s *scanner) (kgo.RecordHeader, error) {
	none := kgo.RecordHeader{}
	name, err := s.str()
	if err != nil {
		return none, err
	}
	if strings.HasPrefix(name, reservedPrefix) {
		return none, fmt.Errorf("the header %.100q begins with %s, which is reserved", name, reservedPrefix)
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return none, fmt.Errorf("the header %.100q has a control character in its name", name)
	}
	s.space()
	if !s.take(':') {
		return none, errHeaderText
	}
	s.space()
	value, err := a.value(s)
	if err != nil {
		return none, fmt.Errorf("the header %.100q: %w", name, err)
	}
	return kgo.RecordHeader{Key: name, Value: value}, nil
}

func (a *arena) value(s *scanner) ([]byte, error) {
	if s.peek() == '"' {
		text, err := s.str()
		if err != nil {
			return nil, err
		}
		return a.copyOf(text), nil
	}
	raw, err := s.raw()
	if err != nil {
		return nil, err
	}
	if raw == "null" {
		return nil, nil
	}
	if encoded, ok := base64Member(raw); ok {
		decoded, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, errors.New("its base64 does not decode")
		}
		return a.copyOf(string(decoded)), nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(raw)); err != nil {
		return nil, errHeaderText
	}
	return a.copyOf(compact.String()), nil
}

// base64Member recognises an object whose only member is base64, a string.
func base64Member(raw string) (encoded string, ok bool) {
	s := scanner{text: raw}
	if !s.take('{') {
		return "", false
	}
	s.space()
	if name, err := s.str(); err != nil || name != "base64" {
		return "", false
	}
	s.space()
	if !s.take(':') {
		return "", false
	}
	s.space()
	encoded, err := s.str()
	if err != nil {
		return "", false
	}
	s.space()
	return encoded, s.take('}') && s.end() == nil
}
