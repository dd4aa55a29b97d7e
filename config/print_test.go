package config

import (
	"strings"
	"testing"
)

// What a person sees comes from an allow-list: every key that can hold a
// secret is masked, and a connection string shows where it leads, from its
// parsed parts, or nothing at all.
func TestPrintMasksSecrets(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:CANARY@localhost/db":                  `replication: "host=localhost port=5432 user=u dbname=db sslmode=prefer password=********"`,
		"host=localhost password='CANARY x' user=u":         `replication: "host=localhost port=5432 user=u dbname= sslmode=prefer password=********"`,
		"postgres://u:12/CANARY@localhost/db":               `replication: "********"`,
		"CANARY":                                            `replication: "********"`,
		"host=localhost user=u dbname=d options=-cCANARY":   `replication: "host=localhost port=5432 user=u dbname=d sslmode=prefer"`,
		"host=localhost user=u dbname=d sslpassword=CANARY": `replication: "host=localhost port=5432 user=u dbname=d sslmode=prefer"`,
	} {
		l, _ := Load(LoadOptions{SearchPath: []string{}, Incomplete: true, Env: Env{"OUTBOX_RELAY_POSTGRES__REPLICATION=" + dsn}})
		text := l.Print(PrintOptions{Origins: true})
		if strings.Contains(text, "CANARY") || !strings.Contains(text, want+"  # environment OUTBOX_RELAY_POSTGRES__REPLICATION") {
			t.Errorf("%s prints as:\n%s", dsn, text)
		}
	}
}

// A key that is added must be judged: the masked ones are these and no
// others.
func TestMaskedKeys(t *testing.T) {
	t.Parallel()
	var masked []string
	for _, k := range reference() {
		if !k.show {
			masked = append(masked, k.path)
		}
	}
	if got := strings.Join(masked, " "); got != "postgres.replication postgres.query" {
		t.Errorf("masked: %s", got)
	}
}

// What is printed for the defaults reads as the defaults, so that a printed
// configuration can be used as a file.
func TestPrintCanBeRead(t *testing.T) {
	t.Parallel()
	l, err := Load(LoadOptions{SearchPath: []string{}, Incomplete: true})
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, l.Print(PrintOptions{}))
	if again, err := Load(LoadOptions{Files: []string{file}, Incomplete: true}); err != nil || again.Print(PrintOptions{}) != l.Print(PrintOptions{}) {
		t.Errorf("%v", err)
	}
}

// quote keeps what it is given through a round of YAML.
func TestQuoteRoundTrip(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "null", "true", "No", "1", "0x1", "a b", "a: b", "#a", "é", "a\nb", "a\x01b", `a"b\c`, "'", "${x}", "-", "~", "a/b.c-d_e", "\u2028", "[", "{}", "1e3", ".inf", "@a", "a,b"} {
		root, mistakes := parseYAML("f", []byte("k: "+quote(s)+"\n"))
		if len(mistakes) > 0 || len(root.members) != 1 || root.members[0].value.text != s || root.members[0].value.kind != scalar {
			t.Errorf("%q is written as %s and read as %+v %v", s, quote(s), root, mistakes)
		}
	}
}
