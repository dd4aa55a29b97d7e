package config

import (
	"fmt"
	"strings"
)

// list reads a list, or a single text with commas (the only form that an
// environment variable has).
func (a *assignment) list(v value, field *[]string) {
	items := v.items
	switch v.kind {
	case scalar:
		for part := range strings.SplitSeq(v.text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, value{place: v.place, text: part})
			}
		}
	case list:
	default:
		a.wrong(v, fmt.Sprintf("want a list, found %s", v.kind), "write [a, b], or one item a line, each after a dash")
		return
	}
	texts := make([]string, 0, len(items))
	for _, item := range items {
		if !a.scalar(item, "a text") || !a.allowed(item) {
			continue
		}
		texts = append(texts, item.text)
	}
	if len(a.mistakes) == 0 {
		*field = texts
	}
}

// stringMap reads a mapping of texts.
func (a *assignment) stringMap(v value, field *map[string]string) {
	if !a.mapping(v) {
		return
	}
	m := make(map[string]string, len(v.members))
	for _, member := range v.members {
		if a.scalar(member.value, "a text") && a.allowed(member.value) {
			m[member.name] = member.value.text
		}
	}
	if len(a.mistakes) == 0 {
		*field = m
	}
}

// nested reads a mapping of mappings of texts. Its inner texts are checked
// like a single value's, under the path of the inner key.
func (a *assignment) nested(v value, field *map[string]map[string]string) {
	if !a.mapping(v) {
		return
	}
	outer := make(map[string]map[string]string, len(v.members))
	path := a.key.path
	for _, member := range v.members {
		a.key.path = path + "." + member.name
		inner := map[string]string{}
		a.stringMap(member.value, &inner)
		outer[member.name] = inner
	}
	a.key.path = path
	if len(a.mistakes) == 0 {
		*field = outer
	}
}

func (a *assignment) mapping(v value) bool {
	if v.kind == mapping {
		return true
	}
	if v.kind == scalar && strings.TrimSpace(v.text) == "{}" {
		return true
	}
	return a.wrong(v, fmt.Sprintf("want a mapping, found %s", v.kind), "write {name: value}, or one name: value a line, indented; {} is none")
}

// orList joins words for a sentence: a, b or c.
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
