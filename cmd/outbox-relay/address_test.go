package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/harness"
)

// Every legal spelling of an address works for the stream, for statements and
// for the commands: IPv6, a socket, several hosts of which the first is dead.
// Case F57 of docs/guarantees.md.
func TestEverySpellingConnects(t *testing.T) {
	t.Parallel()
	addresses := "127.0.0.1"
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		addresses += ",::1"
	} else {
		t.Log("this machine has no IPv6")
	}
	server := harness.StartPostgres(t, harness.PostgresOptions{Settings: map[string]string{"listen_addresses": addresses}, HBA: []string{"host all all ::1/128 trust"}})
	db := server.CreateDatabase(t)
	port, name, dir := server.Port(), db.Name(), server.SocketDir()
	spellings := []string{
		fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s", port, name),
		fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", dir, port, name),
		fmt.Sprintf("postgres:///%s?host=%s&port=%d&user=postgres", name, dir, port),
		fmt.Sprintf("postgres://postgres@127.0.0.1:1,127.0.0.1:%d/%s", port, name),
		fmt.Sprintf("host=127.0.0.1,%s port=1,%d user=postgres dbname=%s", dir, port, name),
		fmt.Sprintf("host=localhost port=%d user=postgres dbname=%s sslmode=disable", port, name),
	}
	if strings.Contains(addresses, "::1") {
		spellings = append(spellings, fmt.Sprintf("postgres://postgres@[::1]:%d/%s", port, name), fmt.Sprintf("host=::1 port=%d user=postgres dbname=%s", port, name))
	}
	for _, dsn := range spellings {
		config := writeConfig(t, fmt.Sprintf("postgres: {replication: %q}\nkafka: {brokers: [localhost:1]}\nshutdown: {grace: 200ms}\n", dsn))
		for _, args := range [][]string{{"setup", "--apply", "--yes"}, {"status"}, {"slot", "show"}, {"migrate", "status"}} {
			if r := call(t.Context(), nil, append(args, "-c", config)...); r.code != exitOK {
				t.Fatalf("%s: %v gave %+v", dsn, args, r)
			}
		}
		d := start(t, nil, "-c", config)
		d.until(t, dsn+": the stream", func() bool { return strings.Contains(d.err.String(), `"msg":"streaming"`) })
		if code := d.end(t); code != exitOK {
			t.Errorf("%s: ended with %d:\n%s", dsn, code, d.err.String())
		}
	}
}
