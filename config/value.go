package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is a value that somebody gave to a known key.
type setting struct {
	key   key
	value value
}

// assign puts v into the field that the key points to, in cfg, and returns
// what is wrong. The field keeps its old value when something is.
func (s setting) assign(cfg *Config) Mistakes {
	a := assignment{key: s.key}
	v := s.value
	switch field := s.key.at(cfg).(type) {
	case *string:
		a.text(v, field)
	case *Column:
		a.column(v, field)
	case *bool:
		a.boolean(v, field)
	case *Choice:
		if v.kind == null || v.kind == scalar && v.text == "null" {
			*field = Choice{}
		} else if a.boolean(v, &field.On) {
			field.Set = true
		}
	case *int:
		a.number(v, field)
	case *float64:
		a.fraction(v, field)
	case *Size:
		a.size(v, field)
	case *time.Duration:
		a.duration(v, field)
	case *[]string:
		a.list(v, field)
	case *map[string]string:
		a.stringMap(v, field)
	case *map[string]map[string]string:
		a.nested(v, field)
	default:
		panic(fmt.Sprintf("config: key %s points to a %T", s.key.path, field))
	}
	return a.mistakes
}

// assignment is one value on its way into one field.
type assignment struct {
	key      key
	mistakes Mistakes
}

func (a *assignment) wrong(v value, text, hint string) bool {
	a.mistakes = append(a.mistakes, Mistake{Place: v.place, Key: a.key.path, Text: text, Hint: hint})
	return false
}

// quoted shows a value where it may be shown.
func (a *assignment) quoted(text string) string {
	if !a.key.show {
		return "the value"
	}
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return strconv.Quote(text)
}

// scalar says whether v is a single value.
func (a *assignment) scalar(v value, want string) bool {
	if v.kind == scalar {
		return true
	}
	hint := ""
	switch v.kind {
	case null:
		hint = "remove the key to get its default"
	case mapping:
		hint = "a text that holds a colon and a blank needs quotes"
	}
	return a.wrong(v, fmt.Sprintf("want %s, found %s", want, v.kind), hint)
}

// allowed checks a text against the key's words and its own check.
func (a *assignment) allowed(v value) bool {
	if len(a.key.oneOf) > 0 && !slices.Contains(a.key.oneOf, v.text) {
		if slices.Contains(a.key.later, v.text) {
			return a.wrong(v, fmt.Sprintf("%q is not built yet in this version", v.text), "remove the key, or use "+orList(a.key.oneOf))
		}
		hint := ""
		if n := nearest(strings.ToLower(v.text), a.key.oneOf); n != "" {
			hint = fmt.Sprintf("did you mean %s?", n)
		}
		return a.wrong(v, fmt.Sprintf("unknown word %s; want %s", a.quoted(v.text), orList(a.key.oneOf)), hint)
	}
	if a.key.check != nil {
		if text := a.key.check(v.text); text != "" {
			return a.wrong(v, text, "")
		}
	}
	return true
}

func (a *assignment) text(v value, field *string) {
	if a.scalar(v, "a text") && a.allowed(v) {
		*field = v.text
	}
}

func (a *assignment) column(v value, field *Column) {
	required := !strings.HasSuffix(a.key.help, notThere)
	switch {
	case v.kind == null && required:
		a.wrong(v, "this column cannot be left out", "map it to a column of the table")
	case v.kind == null:
		*field = ""
	case a.scalar(v, "a column name") && a.allowed(v):
		*field = Column(v.text)
	}
}

func (a *assignment) boolean(v value, field *bool) bool {
	if !a.scalar(v, "true or false") {
		return false
	}
	if v.text != "true" && v.text != "false" {
		return a.wrong(v, fmt.Sprintf("want true or false, found %s", a.quoted(v.text)), "")
	}
	*field = v.text == "true"
	return true
}

func (a *assignment) number(v value, field *int) {
	if !a.scalar(v, "a whole number") {
		return
	}
	n, err := strconv.Atoi(v.text)
	if err != nil {
		a.wrong(v, fmt.Sprintf("want a whole number, found %s", a.quoted(v.text)), "")
		return
	}
	if a.within(v, int64(n), func(n int64) string { return strconv.FormatInt(n, 10) }) {
		*field = n
	}
}

func (a *assignment) fraction(v value, field *float64) {
	if !a.scalar(v, "a number") {
		return
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || f != f {
		a.wrong(v, fmt.Sprintf("want a number such as 0.2, found %s", a.quoted(v.text)), "")
		return
	}
	*field = f
}

func (a *assignment) size(v value, field *Size) {
	if !a.scalar(v, "a size") {
		return
	}
	n, err := ParseSize(v.text)
	if err != nil {
		a.wrong(v, fmt.Sprintf("%s is not a size: %v", a.quoted(v.text), err), "")
		return
	}
	if a.within(v, int64(n), func(n int64) string { return Size(n).String() }) {
		*field = n
	}
}

func (a *assignment) duration(v value, field *time.Duration) {
	if !a.scalar(v, "a duration") {
		return
	}
	d, err := parseDuration(v.text)
	if err != nil {
		a.wrong(v, fmt.Sprintf("%s is not a duration: %v", a.quoted(v.text), err), "")
		return
	}
	if a.within(v, int64(d), func(n int64) string { return formatDuration(time.Duration(n)) }) {
		*field = d
	}
}

// within checks the key's bounds.
func (a *assignment) within(v value, n int64, show func(int64) string) bool {
	switch {
	case n < a.key.min:
		return a.wrong(v, fmt.Sprintf("%s is too small; the least is %s", a.quoted(v.text), show(a.key.min)), "")
	case a.key.max > 0 && n > a.key.max:
		return a.wrong(v, fmt.Sprintf("%s is too large; the most is %s", a.quoted(v.text), show(a.key.max)), "")
	}
	return true
}
