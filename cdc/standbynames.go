package cdc

import (
	"strings"
)

// namesStandby says whether the value of synchronous_standby_names takes in
// an application of that name (PostgreSQL documentation,
// "synchronous_standby_names"): a list of names, or one in parentheses after
// FIRST n, ANY n or n; "*" is everybody; names compare without case.
func namesStandby(setting, name string) bool {
	list := setting
	if _, inside, ok := strings.Cut(setting, "("); ok && !strings.Contains(setting[:strings.Index(setting, "(")], `"`) {
		list = strings.TrimSuffix(strings.TrimSpace(inside), ")")
	}
	for _, standby := range splitNames(list) {
		if standby == "*" || strings.EqualFold(standby, name) {
			return true
		}
	}
	return false
}

// splitNames splits a comma-separated list of names, which may be in double
// quotes with doubled quotes inside.
func splitNames(list string) []string {
	var (
		names  []string
		name   strings.Builder
		inside bool
	)
	for i := 0; i < len(list); i++ {
		c := list[i]
		switch {
		case c == '"' && inside && i+1 < len(list) && list[i+1] == '"':
			name.WriteByte(c)
			i++
		case c == '"':
			inside = !inside
		case c == ',' && !inside:
			names = append(names, name.String())
			name.Reset()
		case !inside && strings.IndexByte(" \t\r\n", c) >= 0:
		default:
			name.WriteByte(c)
		}
	}
	return append(names, name.String())
}
