package kafkaserver

import (
	"errors"
	"strings"
	"testing"
)

// Law: a node elsewhere tells clients the address that it was given, whatever
// port it listens on, and what only Java here can do is refused.
func TestNewSetup(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Nodes: 3}, {Listeners: []Listener{TLS}}, {Listeners: []Listener{SASL}}} {
		if _, err := NewSetup(o, "127.0.0.1:21000"); !errors.Is(err, ErrRemote) {
			t.Errorf("%+v gave %v", o, err)
		}
	}
	s, err := NewSetup(Options{Settings: map[string]string{"num.partitions": "7"}, JVM: []string{"-Xmx1g"}}, "127.0.0.1:21000")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"advertised.listeners=PLAIN://127.0.0.1:21000,INSIDE://", "listeners=PLAIN://0.0.0.0:9092,", "num.partitions=7\n"} {
		if !strings.Contains(string(s.Files[remoteConfig]), want) {
			t.Errorf("no %q in\n%s", want, s.Files[remoteConfig])
		}
	}
	if heap := s.Env["KAFKA_HEAP_OPTS"]; !strings.HasSuffix(heap, " -Xmx1g") {
		t.Errorf("the arguments of Java are %s", heap)
	}
}
