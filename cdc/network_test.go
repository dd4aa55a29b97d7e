package cdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

// nasty is a password with everything that breaks home-made connection
// strings and maskers.
const nasty = `p@ss:w/rd%25#?&=' "\x+ é`

// leaks says whether a text shows a recognisable piece of the password.
func leaks(text string) bool {
	for _, piece := range []string{"p@ss", "w/rd", "rd%25", `#?&=`, `\x+`, "ss:w", url.QueryEscape(nasty)} {
		if strings.Contains(text, piece) {
			return true
		}
	}
	return false
}

// tlsServer is a TLS server that admits role "streamer" by SCRAM only, and
// nobody else over TCP.
func tlsServer(t *testing.T) *bench {
	t.Helper()
	p := harness.StartPostgres(t, harness.PostgresOptions{Major: 15, TLS: true, HBA: []string{
		"hostssl all streamer 127.0.0.1/32 scram-sha-256", "host all streamer 127.0.0.1/32 reject",
	}})
	p.CreateRole(t, "streamer", nasty, "REPLICATION")
	return newBench(t, p)
}

// Law: TLS with verification works for the stream and the admin connection,
// with a password of any characters, and the gulps under it read in large
// pieces.
func TestTLSVerifyFullAndAnyPassword(t *testing.T) {
	t.Parallel()
	b := tlsServer(t)
	dsn := b.Server().TLSDSN(b.Name(), "streamer", nasty)
	cfg := streamConfigOf(t, dsn)
	cfg.Gulp = DefaultGulp
	s := b.start(t, cfg)
	if got := b.Query1(t, "select ssl from pg_stat_ssl where pid = $1", int32(s.Identity().BackendPID)); got != "t" {
		t.Errorf("the stream's session has ssl = %q", got)
	}
	if s.link == nil || !s.link.tcp {
		t.Fatal("the raw connection under TLS was not found")
	}
	s.SetFarBehind(true)
	b.Exec(t, "insert into outbox (payload) select repeat('x', 1000) from generate_series(1, 20000)")
	start := time.Now()
	tx := next(t, s)
	if len(tx.payloads) != 20_000 {
		t.Errorf("%d rows", len(tx.payloads))
	}
	// 20 MB in gulps of one TLS record (16 KiB) each would take 25 s.
	if took := time.Since(start); took > 12*time.Second {
		t.Errorf("20 MB over TLS in gulps took %v", took)
	}
	s.SetFarBehind(false)
	s.Wake()
	if f, err := s.Next(time.Now().Add(time.Hour)); err != nil || (f.Kind == FrameData) {
		t.Errorf("after a Wake over TLS: %+v, %v", f, err)
	}
	if _, err := openAdmin(t, dsn).Facts(t.Context(), b.target()); err != nil {
		t.Error(err)
	}
}

// Law: a certificate for another name, an unknown authority and a server that
// refuses the connection are each refused and told apart; and no error shows a
// piece of the password, whatever fails.
func TestConnectFailures(t *testing.T) {
	t.Parallel()
	b := tlsServer(t)
	port := b.Server().Port()
	user := url.UserPassword("streamer", nasty)
	wrong := url.UserPassword("streamer", nasty+"!")
	dsn := func(user *url.Userinfo, host string, port int, database, query string) string {
		u := url.URL{Scheme: "postgres", User: user, Host: fmt.Sprintf("%s:%d", host, port), Path: "/" + database, RawQuery: query}
		return u.String()
	}
	ca := "sslrootcert=" + url.QueryEscape(b.Server().CAFile())
	closed := closedPort(t)
	for name, c := range map[string]struct {
		dsn    string
		lookup string // the address that the host's name gives
		want   Class
	}{
		"certificate of another name": {dsn: dsn(user, "db.example.org", port, b.Name(), "sslmode=verify-full&"+ca), lookup: "127.0.0.1", want: ClassConfig},
		"unknown authority":           {dsn: dsn(user, "127.0.0.1", port, b.Name(), "sslmode=verify-full"), want: ClassConfig},
		"without TLS":                 {dsn: dsn(user, "127.0.0.1", port, b.Name(), "sslmode=disable"), want: ClassAuth},
		"wrong password":              {dsn: dsn(wrong, "127.0.0.1", port, b.Name(), "sslmode=verify-full&"+ca), want: ClassAuth},
		"no such database":            {dsn: dsn(user, "127.0.0.1", port, "nosuch", "sslmode=verify-full&"+ca), want: ClassConfig},
		"nobody listens":              {dsn: dsn(user, "127.0.0.1", closed, b.Name(), "sslmode=disable"), want: ClassRetry},
		"no such host":                {dsn: dsn(user, "nosuch.invalid", port, b.Name(), "sslmode=disable"), want: ClassRetry},
		"only a standby will do":      {dsn: dsn(user, "127.0.0.1", port, b.Name(), "target_session_attrs=standby&sslmode=verify-full&"+ca), want: ClassWrongNode},
	} {
		cfg := streamConfigOf(t, c.dsn)
		query, err := pgx.ParseConfig(c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		if c.lookup != "" {
			lookup := func(context.Context, string) ([]string, error) { return []string{c.lookup}, nil }
			cfg.Conn.LookupFunc, query.LookupFunc = lookup, lookup
		}
		_, streamErr := Open(t.Context(), cfg)
		_, adminErr := OpenAdmin(t.Context(), query)
		for kind, err := range map[string]error{"stream": streamErr, "admin": adminErr} {
			if err == nil {
				t.Errorf("%s, %s: connected", name, kind)
				continue
			}
			if got := Classify(err).Class; got != c.want {
				t.Errorf("%s, %s: %v is of class %v, want %v", name, kind, err, got, c.want)
			}
			if all := fmt.Sprintf("%v %+v %#v %s", err, err, err, Classify(err).Hint); leaks(all) {
				t.Errorf("%s, %s: a piece of the password shows", name, kind)
			}
			var ce *pgconn.ConnectError
			if errors.As(err, &ce) {
				t.Errorf("%s, %s: the configuration, password and all, hangs on the error", name, kind)
			}
		}
	}
}

// Law: a role without the right to stream gets the server's own error, as
// class permission (F23), and a pg_hba line with the word replication does not
// help, which the hint says (F24).
func TestRightsToStream(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			p := harness.StartPostgres(t, harness.PostgresOptions{Major: major, HBA: []string{
				"host replication hba_replication 127.0.0.1/32 trust", "host all hba_replication 127.0.0.1/32 reject",
			}})
			b := newBench(t, p)
			p.CreateRole(t, "plain", "")
			p.CreateRole(t, "super_plain", "", "SUPERUSER", "NOREPLICATION")
			p.CreateRole(t, "hba_replication", "", "REPLICATION")
			for role, want := range map[string]Class{"plain": ClassPermission, "hba_replication": ClassAuth} {
				_, err := Open(t.Context(), streamConfigOf(t, p.DSNAs(b.Name(), role, "")))
				if err == nil {
					t.Errorf("%s: connected", role)
					continue
				}
				f := Classify(err)
				if f.Class != want || f.Class.ExitCode() != 14 {
					t.Errorf("%s: %v is of class %v, want %v", role, err, f.Class, want)
				}
				if role == "hba_replication" && !strings.Contains(f.Hint, "names the database") {
					t.Errorf("the hint is %q", f.Hint)
				}
			}
			b.start(t, streamConfigOf(t, p.DSNAs(b.Name(), "super_plain", "")))
		})
	}
}

// Law: unix sockets in every spelling, and IPv6, work for both connections
// (F57).
func TestAddressSpellings(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"listen_addresses": "127.0.0.1"}
	hasV6 := false
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		_ = l.Close()
		hasV6, settings["listen_addresses"] = true, "127.0.0.1,::1"
	}
	p := harness.StartPostgres(t, harness.PostgresOptions{Major: 15, Settings: settings, HBA: []string{"host all all ::1/128 trust"}})
	b := newBench(t, p)
	spellings := map[string]string{
		"keywords":      b.SocketDSN(),
		"URL":           fmt.Sprintf("postgres:///%s?host=%s&port=%d&user=postgres&sslmode=disable", b.Name(), p.SocketDir(), p.Port()),
		"URL, escaped":  fmt.Sprintf("postgres://postgres@%s:%d/%s?sslmode=disable", url.QueryEscape(p.SocketDir()), p.Port(), b.Name()),
		"two hosts":     fmt.Sprintf("host=/nonexistent,127.0.0.1 port=%d,%d user=postgres dbname=%s sslmode=disable target_session_attrs=read-write", p.Port(), p.Port(), b.Name()),
		"name and IPv4": b.DSN(),
	}
	if hasV6 {
		spellings["IPv6 URL"] = fmt.Sprintf("postgres://postgres@[::1]:%d/%s?sslmode=disable", p.Port(), b.Name())
		spellings["IPv6 keywords"] = fmt.Sprintf("host=::1 port=%d user=postgres dbname=%s sslmode=disable", p.Port(), b.Name())
	} else {
		t.Log("NOT RUN: no IPv6 on this machine")
	}
	for name, dsn := range spellings {
		s := open(t, streamConfigOf(t, dsn))
		if s.Identity().Database != b.Name() {
			t.Errorf("%s: %+v", name, s.Identity())
		}
		if unix := strings.Contains(dsn, "socket"); s.link == nil || s.link.tcp == unix {
			t.Errorf("%s: taken for TCP: %v", name, !unix)
		}
		if _, err := openAdmin(t, dsn).Facts(t.Context(), b.target()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Law: a server that accepts and says nothing does not hold Open for ever.
func TestOpenIsBounded(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = Open(ctx, streamConfigOf(t, "postgres://u@"+l.Addr().String()+"/d?sslmode=disable"))
	if err == nil || time.Since(start) > 5*time.Second || Classify(err).Class != ClassRetry {
		t.Errorf("%v of class %v after %v", err, Classify(err).Class, time.Since(start))
	}
}

func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
