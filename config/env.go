package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Env is the process environment as NAME=value lines (os.Environ).
type Env []string

// Lookup gives the last value of a name.
func (e Env) Lookup(name string) (string, bool) {
	for _, line := range slices.Backward(e) {
		if k, v, ok := strings.Cut(line, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// fileEnv names the configuration file; it is no key.
const fileEnv = envPrefix + "CONFIG"

// fromEnv gathers the settings that the environment makes. Only names with
// two underscores in a row are ours: Kubernetes puts names such as
// OUTBOX_RELAY_SERVICE_HOST into every pod beside a service of our name, and
// those must not stop us.
func fromEnv(env Env, keys []key) (settings []setting, mistakes Mistakes) {
	byName := make(map[string]key, len(keys))
	flat := make(map[string]key, len(keys))
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		byName[k.env()] = k
		flat[strings.ReplaceAll(k.env(), "__", "_")] = k
		names = append(names, k.env())
	}
	for _, line := range env {
		name, text, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) || name == fileEnv {
			continue
		}
		place := Place{Source: "environment " + name}
		if k, ok := byName[name]; ok {
			s, bad := envSetting(k, place, text)
			settings, mistakes = append(settings, s...), append(mistakes, bad...)
			continue
		}
		if k, ok := flat[name]; ok {
			mistakes = append(mistakes, Mistake{Place: place, Text: "no such variable", Hint: "levels are parted by two underscores: " + k.env()})
			continue
		}
		if strings.Contains(strings.TrimPrefix(name, envPrefix), "__") {
			m := Mistake{Place: place, Text: "no such variable"}
			if n := nearest(name, names); n != "" {
				m.Hint = "did you mean " + n + "?"
			}
			mistakes = append(mistakes, m)
		}
	}
	return settings, mistakes
}

// envSetting reads one variable. Lists are written with commas; lists and
// mappings may also be written as YAML on one line.
func envSetting(k key, place Place, text string) ([]setting, Mistakes) {
	v := value{place: place, text: text}
	switch k.at(new(Config)).(type) {
	case *Column:
		if text == "null" || text == "~" {
			v.kind = null
		}
	case *[]string, *map[string]string, *map[string]map[string]string:
		if !strings.HasPrefix(strings.TrimSpace(text), "{") && !strings.HasPrefix(strings.TrimSpace(text), "[") {
			break
		}
		parsed, bad := parseYAML(place.Source, []byte(text))
		if len(bad) > 0 {
			return nil, Mistakes{{Place: place, Key: k.path, Text: "not valid YAML on one line"}}
		}
		v = parsed.relocated(place)
	}
	return []setting{{key: k, value: v}}, nil
}

// relocated gives v with every place set to p: lines inside a variable mean
// nothing to a reader.
func (v value) relocated(p Place) value {
	v.place = p
	for i := range v.items {
		v.items[i] = v.items[i].relocated(p)
	}
	for i := range v.members {
		v.members[i].place = p
		v.members[i].value = v.members[i].value.relocated(p)
	}
	return v
}

// reservedName is how people spell environment variables. Only such a name
// is quoted in an error: anything else between ${ and } may be a piece of a
// password.
var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reservedName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
)

// expander replaces ${NAME} and ${NAME:-default} by the environment's value,
// and $$ by one dollar. It works on values after the file was parsed, so that
// nothing in the environment can change the file's structure.
type expander struct {
	env      Env
	mistakes Mistakes
}

func (x *expander) setting(s setting) setting {
	s.value = x.value(s.key, s.value)
	return s
}

func (x *expander) value(k key, v value) value {
	if v.kind == scalar {
		v.text = x.text(k, v)
	}
	for i := range v.items {
		v.items[i] = x.value(k, v.items[i])
	}
	for i := range v.members {
		v.members[i].value = x.value(k, v.members[i].value)
	}
	return v
}

func (x *expander) text(k key, v value) string {
	var b strings.Builder
	rest := v.text
	for {
		i := strings.IndexByte(rest, '$')
		if i < 0 || i+1 == len(rest) {
			return b.String() + rest
		}
		b.WriteString(rest[:i])
		switch rest[i+1] {
		case '$':
			b.WriteByte('$')
			rest = rest[i+2:]
		case '{':
			end := strings.IndexByte(rest[i:], '}')
			if end < 0 {
				x.wrong(k, v, "${ without a closing }", "write $$ for a plain dollar")
				return v.text
			}
			b.WriteString(x.variable(k, v, rest[i+2:i+end]))
			rest = rest[i+end+1:]
		default:
			b.WriteByte('$')
			rest = rest[i+1:]
		}
	}
}

// variable gives the value of what stands between ${ and }.
func (x *expander) variable(k key, v value, inner string) string {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if slices.Contains(k.names, inner) {
		return "${" + inner + "}"
	}
	if !variableName.MatchString(name) {
		x.wrong(k, v, "${...} holds no name of an environment variable", "write ${NAME}, ${NAME:-default}, or $$ for a plain dollar")
		return ""
	}
	if text, ok := x.env.Lookup(name); ok && (text != "" || !hasFallback) {
		return text
	}
	if hasFallback {
		return fallback
	}
	shown := "named there"
	if k.show || reservedName.MatchString(name) {
		shown = name
	}
	x.wrong(k, v, fmt.Sprintf("the environment variable %s is not set", shown), "set it, or give a default: ${NAME:-default}")
	return ""
}

func (x *expander) wrong(k key, v value, text, hint string) {
	x.mistakes = append(x.mistakes, Mistake{Place: v.place, Key: k.path, Text: text, Hint: hint})
}
