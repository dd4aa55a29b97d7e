package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// jarsOf makes a directory of empty files named like those that patterns want.
func jarsOf(t *testing.T, patterns []string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range patterns {
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(p, "*", "1.2.3")), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPeerIsChecked proves that a peer which cannot run is refused before
// anything is started, with the words that help, and that one which can is not.
func TestPeerIsChecked(t *testing.T) {
	t.Parallel()
	whole, part := jarsOf(t, peerJars), jarsOf(t, peerJars[1:])
	for _, c := range []struct {
		args []string
		want []string // all in the error; none: it is accepted
	}{
		{nil, nil},
		{[]string{"--peer", debezium, "--peer-jars", whole}, nil},
		{[]string{"--peer", debezium, "--peer-jars", whole, "--only", "raw"}, nil},
		{[]string{"--peer", debezium, "--peer-jars", whole, "--only", debezium}, nil},
		{[]string{"--only", debezium}, []string{"only with --peer debezium"}},
		{[]string{"--peer", "maxwell", "--peer-jars", whole}, []string{`unknown peer "maxwell": want debezium`}},
		{[]string{"--peer", debezium}, []string{"needs --peer-jars", peerFetch}},
		{[]string{"--peer-jars", whole}, []string{"want --peer debezium too"}},
		{[]string{"--peer", debezium, "--peer-jars", part}, []string{"lacks jars", peerJars[0], peerFetch}},
		{[]string{"--peer", debezium, "--peer-jars", filepath.Join(whole, "none")}, []string{"no such file", peerFetch}},
		{[]string{"--peer", debezium, "--peer-jars", whole, "--link", "unix"}, []string{"over TCP only"}},
	} {
		_, err := parseOptions(c.args, io.Discard)
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%v: got %v", c.args, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: got %v, want %q", c.args, err, want)
			}
		}
	}
}

// TestPeerRunsOnlyWhenAskedFor proves that without a peer there is no cell of
// one, and that with one there are both flavours, over TCP alone.
func TestPeerRunsOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		peer, link string
		want       int
	}{{"", tcp, 0}, {debezium, unix, 0}, {debezium, tcp, 2}} {
		b := &bench{o: options{peer: c.peer}}
		if got := len(b.peerCells(&backlog{shape: 10}, c.link)); got != c.want {
			t.Errorf("peer %q, link %s: %d cells, want %d", c.peer, c.link, got, c.want)
		}
	}
}

// TestPeerSettings proves that a run reads its own slot into its own topic and
// leaves the publication alone, and that tuning only adds settings.
func TestPeerSettings(t *testing.T) {
	t.Parallel()
	at := &pgconn.Config{Host: "127.0.0.1", Port: 4321, User: "u", Password: `p\w`, Database: "d"}
	spec := peerSpec{Slot: "s1", Topic: "t1", Brokers: []string{"a:1", "b:2"}, Rest: "127.0.0.1:9", Offsets: "/tmp/o"}
	text := string(properties(append(spec.worker(), spec.connector(at)...)))
	for _, want := range []string{"slot.name=s1", "transforms.outbox.route.topic.replacement=t1", "bootstrap.servers=a:1,b:2", "listeners=HTTP://127.0.0.1:9",
		"database.port=4321", `database.password=p\\w`, "publication.name=" + publication, "publication.autocreate.mode=disabled", "snapshot.mode=no_data"} {
		if !slices.Contains(strings.Split(text, "\n"), want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	plain := append(spec.worker(), spec.connector(at)...)
	spec.Tuned = true
	tuned := append(spec.worker(), spec.connector(at)...)
	seen := map[string]bool{}
	for _, s := range tuned {
		if seen[s.key] {
			t.Errorf("%s is set twice", s.key)
		}
		seen[s.key] = true
	}
	if got, want := len(tuned)-len(plain), len(peerTuning)+1; got != want {
		t.Errorf("tuning adds %d settings, want %d", got, want)
	}
	for _, s := range plain {
		if !slices.Contains(tuned, s) {
			t.Errorf("tuning changed %s", s.key)
		}
	}
}

// TestPeerSettingsAreShown proves that every setting of a run stands under the
// table, the password excepted.
func TestPeerSettingsAreShown(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	showPeer(&out, jarsOf(t, peerJars))
	spec := peerSpec{Tuned: true}
	for _, s := range append(spec.worker(), spec.connector(&pgconn.Config{})...) {
		if shown := strings.Contains(out.String(), "  "+s.key+"="); shown == (s.key == secret) {
			t.Errorf("%s: shown is %v", s.key, shown)
		}
	}
	if !strings.Contains(out.String(), "debezium-connector-postgres-1.2.3") {
		t.Errorf("no version in\n%s", out.String())
	}
}

// TestFailedTaskEndsThePeer proves that a run does not wait for a task that has
// failed inside a Connect which goes on, and that the error says why it failed;
// a task that runs is left alone.
func TestFailedTaskEndsThePeer(t *testing.T) {
	t.Parallel()
	asked := 0 // by the one asker
	connect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if asked == 1 {
			_, _ = io.WriteString(w, `{"tasks": [{"id": 0, "state": "RUNNING"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"tasks": [{"id": 0, "state": "FAILED", "trace": "gone wrong\n\tat a.B(C.java:1)\nCaused by: no such slot\n\t... 9 more\n"}]}`)
	}))
	defer connect.Close()
	c, err := start(t.TempDir(), "sleep", exec.Command("sleep", "60"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.kill()
	alive, stop := c.while(t.Context())
	defer stop()
	c.endWithTask(connect.URL)
	<-alive.Done()
	if got := context.Cause(alive).Error(); !strings.Contains(got, "its task FAILED: gone wrong\nCaused by: no such slot") || asked != 2 {
		t.Errorf("after %d answers: %s", asked, got)
	}
}
