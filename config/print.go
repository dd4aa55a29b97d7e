package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Example gives a file that holds every key with its default, its unit and a
// line of help. Loading it gives the defaults.
func Example() string {
	var b strings.Builder
	b.WriteString("# Outbox Relay: every key with its default. Keep only what you change.\n")
	b.WriteString("# Values may hold ${NAME}, ${NAME:-default} and $$ (a dollar).\n")
	b.WriteString("# Each key can be set by the environment too: kafka.client_id is\n")
	b.WriteString("# OUTBOX_RELAY_KAFKA__CLIENT_ID (two underscores between levels).\n")
	defaults := Default()
	t := tree{out: &b}
	for _, k := range reference() {
		help := k.help
		if k.unbuilt {
			help += " (not built yet: keep the default)"
		}
		t.section(k.path)
		t.line("# " + k.unit + ": " + help)
		t.line(lastPart(k.path) + ": " + escapeDollars(k, render(k.at(&defaults))))
	}
	return b.String()
}

// PrintOptions says what Print adds.
type PrintOptions struct {
	// Origins adds to each key where its value came from.
	Origins bool
}

// Print shows the configuration in force, as YAML. Only keys of the
// allow-list show their values; connection strings show where they lead,
// rebuilt from their parsed parts.
func (l *Loaded) Print(o PrintOptions) string {
	var b strings.Builder
	t := tree{out: &b}
	for _, k := range reference() {
		if k.unbuilt {
			continue
		}
		text := lastPart(k.path) + ": " + l.shown(k)
		if o.Origins {
			text += "  # " + l.origins[k.path].String()
		}
		t.section(k.path)
		t.line(text)
	}
	return b.String()
}

// Entry is one key as programs read it.
type Entry struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // YAML on one line; masked like Print
	Origin string `json:"origin"`
}

// Entries gives what Print shows, as data.
func (l *Loaded) Entries() []Entry {
	var all []Entry
	for _, k := range reference() {
		if !k.unbuilt {
			all = append(all, Entry{Key: k.path, Value: l.shown(k), Origin: l.origins[k.path].String()})
		}
	}
	return all
}

// shown gives a key's value as a person may see it.
func (l *Loaded) shown(k key) string {
	if k.show {
		return escapeDollars(k, render(k.at(&l.Config)))
	}
	text, ok := k.at(&l.Config).(*string)
	switch {
	case !ok:
		return quote(stars)
	case *text == "":
		return `""`
	}
	if db, err := openDSN(*text, environment()); err == nil {
		return quote(db.describe())
	}
	return quote(stars)
}

// tree writes keys under their sections, each section once.
type tree struct {
	out     *strings.Builder
	current []string
}

func (t *tree) section(path string) {
	parts := strings.Split(path, ".")
	parts = parts[:len(parts)-1]
	for i, part := range parts {
		if i < len(t.current) && t.current[i] == part {
			continue
		}
		t.current = append(slices.Clone(t.current[:i]), part)
		if i == 0 && t.out.Len() > 0 {
			t.out.WriteByte('\n')
		}
		t.out.WriteString(strings.Repeat("  ", i) + part + ":\n")
	}
	t.current = t.current[:len(parts)]
}

func (t *tree) line(text string) {
	t.out.WriteString(strings.Repeat("  ", len(t.current)) + text + "\n")
}

// render spells a field as YAML on one line.
func render(field any) string {
	switch f := field.(type) {
	case *string:
		return quote(*f)
	case *Column:
		if *f == "" {
			return "null"
		}
		return quote(string(*f))
	case *bool:
		return strconv.FormatBool(*f)
	case *Choice:
		if !f.Set {
			return "null"
		}
		return strconv.FormatBool(f.On)
	case *int:
		return strconv.Itoa(*f)
	case *float64:
		return strconv.FormatFloat(*f, 'g', -1, 64)
	case *Size:
		return f.String()
	case *time.Duration:
		return formatDuration(*f)
	case *[]string:
		return "[" + strings.Join(mapEach(*f, quote), ", ") + "]"
	case *map[string]string:
		return renderMap(*f, quote)
	case *map[string]map[string]string:
		return renderMap(*f, func(m map[string]string) string { return renderMap(m, quote) })
	default:
		panic(fmt.Sprintf("config: no way to print a %T", field))
	}
}

func renderMap[V any](m map[string]V, value func(V) string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, quote(name)+": "+value(m[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func mapEach(in []string, f func(string) string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = f(s)
	}
	return out
}

// quote spells a text as YAML: plain where no reader could take it for
// anything else, in double quotes otherwise. strconv's escapes are YAML's
// too, apart from \x, which both read alike for one byte below 0x80.
func quote(s string) string {
	if plainYAML(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func plainYAML(s string) bool {
	if s == "" || slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return false
	}
	if c := s[0] | 0x20; (c < 'a' || c > 'z') && s[0] != '_' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !plainRune(rune(c)) && c != '.' && c != '-' && c != '/' || c >= 0x80 || c == '$' {
			return false
		}
	}
	return true
}

// escapeDollars keeps a default from being read as a variable; the key's own
// placeholders stay.
func escapeDollars(k key, text string) string {
	if len(k.names) > 0 {
		return text
	}
	return strings.ReplaceAll(text, "$", "$$")
}
