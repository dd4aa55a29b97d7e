package arch

import (
	"strings"
	"testing"
)

// Law: every rule finds what breaks it, and lets its neighbour pass.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	importing := func(path string) string { return "package p\n\nimport _ \"" + path + "\"\n" }
	long := "package p\n\nfunc f() {\n" + strings.Repeat("\tf()\n", longestFunction) + "}\n"
	sleep := "package p\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	open := "package p\n\n// TO" + "DO"
	for name, c := range map[string]struct {
		rule       func(*source) []string
		path, text string
		broken     bool
	}{
		"down":               {direction, "relay/x.go", importing(module + "store"), false},
		"up":                 {direction, "store/x.go", importing(module + "relay"), true},
		"sideways":           {direction, "store/x.go", importing(module + "sink"), true},
		"sideways, test":     {direction, "store/x_test.go", importing(module + "migrations"), false},
		"up, test":           {direction, "store/x_test.go", importing(module + "relay"), true},
		"configuration":      {direction, "relay/x.go", importing(module + "config"), true},
		"the harness":        {direction, "relay/x.go", importing(module + "test/harness"), true},
		"the harness, test":  {direction, "relay/x_test.go", importing(module + "test/harness"), false},
		"the harness, demo":  {direction, "cmd/outbox-demo/x.go", importing(module + "test/harness/pgserver"), false},
		"no layer":           {direction, "util/x.go", "package p\n", true},
		"no layer, imported": {direction, "relay/x.go", importing(module + "util"), true},
		"own internals":      {direction, "cmd/outbox-demo/x.go", importing(module + "cmd/outbox-demo/internal/view"), false},
		"judge":              {direction, "test/judge/x.go", importing(module + "decode"), true},
		"judge, harness":     {direction, "test/judge/x.go", importing(module + "test/harness"), false},
		"on the list":        {thirdParty, "cdc/x.go", importing(pgx + "/pgconn"), false},
		"not on the list":    {thirdParty, "decode/x.go", importing(pgx), true},
		"common":             {thirdParty, "sink/x.go", importing("github.com/rs/zerolog"), false},
		"common, too low":    {thirdParty, "checkpoint/x.go", importing("github.com/rs/zerolog"), true},
		"like a listed one":  {thirdParty, "cdc/x.go", importing(pgx + "tra"), true},
		"long file":          {lengths, "relay/x.go", "package p\n" + strings.Repeat("\n", longestFile), true},
		"long test":          {lengths, "relay/x_test.go", "package p\n" + strings.Repeat("\n", longestFile), false},
		"very long test":     {lengths, "relay/x_test.go", "package p\n" + strings.Repeat("\n", longestTestFile), true},
		"long function":      {lengths, "relay/x.go", long, true},
		"function in a test": {lengths, "relay/x_test.go", long, false},
		"sleep":              {sleeps, "relay/x_test.go", sleep, true},
		"sleep in a poller":  {sleeps, "relay/x_test.go", strings.ReplaceAll(sleep, "func f", "func eventually"), false},
		"sleep, production":  {sleeps, "relay/x.go", sleep, false},
		"open end":           {openEnds, "relay/x.go", open + ": later\n", true},
		"open end, issue":    {openEnds, "relay/x.go", open + "(#12): later\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := parse(c.path, c.text)
			if err != nil {
				t.Fatal(err)
			}
			if broken := c.rule(s); (len(broken) > 0) != c.broken {
				t.Errorf("broken %v, want %v", broken, c.broken)
			}
		})
	}
	s, err := parse("relay/x.go", "package p\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(undocumented([]*source{s})) != 1 {
		t.Error("a package without doc.go passes")
	}
}
