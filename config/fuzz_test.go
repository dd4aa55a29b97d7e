package config

import (
	"strings"
	"testing"
)

// Whatever the bytes of a file, loading ends with a configuration or with
// mistakes, never with a panic, and every mistake has words.
func FuzzLoad(f *testing.F) {
	f.Add(Example())
	for _, s := range []string{"", "a", "- a", "a: [b", "a: &a [*a]", "? a\n: b", "a: !!binary x", "relay: {name: *x}", "---\n---\n", "a: |\n  b", "\xff\xfe", "kafka:\n\tbrokers: 1",
		"relay: &x\n  name: a\nslot: *x\n", "%YAML 1.2\n---\na: 1", "'", "\"", "a: 'b", "{a: b}: c", "[a]: b", "a: >-\n b\n c: d", "route: {topics: {a: ${B}}}"} {
		f.Add(s)
	}
	keys := reference()
	f.Fuzz(func(t *testing.T, text string) {
		root, mistakes := parseYAML("f", []byte(text))
		if len(mistakes) == 0 && root.kind == mapping {
			settings, bad := walk(root, "", keys)
			mistakes = append(mistakes, bad...)
			cfg := Default()
			for _, s := range settings {
				x := expander{}
				mistakes = append(mistakes, x.setting(s).assign(&cfg)...)
			}
		}
		for _, m := range mistakes {
			if strings.TrimSpace(m.Text) == "" {
				t.Errorf("a mistake without words: %+v", m)
			}
		}
	})
}
