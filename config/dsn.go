package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// dsnKeys are the parameters that a connection string may hold. Any other is
// refused before it could reach the server: a piece of a badly quoted
// password can look like one, and the server's error would print it.
var dsnKeys = []string{
	"host", "port", "dbname", "user", "password", "passfile", "connect_timeout",
	"sslmode", "sslkey", "sslcert", "sslcertmode", "sslrootcert", "sslnegotiation", "sslpassword", "sslsni", "ssl",
	"target_session_attrs", "service", "servicefile", "channel_binding", "require_auth",
	"min_protocol_version", "max_protocol_version", "application_name", "options", "replication",
	"default_query_exec_mode",
}

// database is a connection string with the rules of this program applied.
type database struct {
	conn *pgx.ConnConfig
	weak []string // what is weaker than verify-full to another machine
}

// openDSN reads a connection string in URL or keyword form. Its error never
// holds any part of the string: the driver's own error is dropped, because it
// keeps the raw string and hides passwords on best effort only.
func openDSN(text string, env Env) (database, error) {
	if err := suspicious(text); err != nil {
		return database{}, err
	}
	conn, err := parseDSN(text)
	if err != nil {
		return database{}, err
	}
	if !onlyLocal(conn) && prefersTLS(conn) && !setIn(env, "PGSSLMODE") {
		// Nobody chose, or somebody chose "prefer". The driver lets a mode
		// in the string win over the one added here.
		if conn, err = parseDSN(withSSLMode(text)); err != nil {
			return database{}, err
		}
	}
	if conn.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return database{}, errors.New("default_query_exec_mode=simple_protocol is not used here; for a pooler in transaction mode use exec")
	}
	delete(conn.RuntimeParams, "replication")
	return database{conn: conn, weak: weaknesses(conn)}, nil
}

func setIn(env Env, name string) bool {
	v, ok := env.Lookup(name)
	return ok && v != ""
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// suspicious finds the ways in which a password with special characters turns
// into a URL that can be read, but means something else.
func suspicious(text string) error {
	encode := errors.New("a special character in the URL is not percent-encoded (such as @ as %40, / as %2F, # as %23, ? as %3F); or put the password into postgres.password_file")
	if !isURL(text) {
		if strings.Contains(text, "://") {
			return errors.New("want postgres://user@host:port/database, or the form host=... dbname=... of libpq")
		}
		return nil
	}
	path, query := afterAuthority(text)
	if strings.ContainsRune(text, '#') || strings.ContainsAny(path, "/@:") || strings.Contains(query, "@") {
		return encode
	}
	return nil
}

// afterAuthority cuts a URL behind its hosts into the path (the database) and
// the query. It is no URL parser: that one refuses a list of hosts.
func afterAuthority(text string) (path, query string) {
	_, rest, _ := strings.Cut(text, "://")
	rest, query, _ = strings.Cut(rest, "?")
	_, path, _ = strings.Cut(rest, "/")
	return path, query
}

// parseDSN calls the driver and puts its error into words of ours.
func parseDSN(text string) (*pgx.ConnConfig, error) {
	options := pgx.ParseConfigOptions{}
	options.ConnStringAllowedKeys = dsnKeys
	conn, err := pgx.ParseConfigWithOptions(text, options)
	if err == nil {
		return conn, nil
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return nil, errors.New("a file that it names (sslrootcert, sslcert, sslkey, servicefile) cannot be read: " + path.Err.Error())
	}
	if _, err := pgconn.ParseConfig(text); err == nil {
		return nil, errors.New("it holds a parameter that is not allowed here; allowed are " + strings.Join(dsnKeys, ", "))
	}
	if strings.Contains(err.Error(), "failed to configure TLS") {
		return nil, errors.New("its TLS parameters (sslmode, sslrootcert, sslcert, sslkey) do not fit together or name unusable files")
	}
	if isURL(text) {
		return nil, errors.New("this is not a usable URL; want postgres://user@host:port/database, with special characters percent-encoded, or the password in postgres.password_file")
	}
	return nil, errors.New("want postgres://user@host:port/database, or host=... dbname=... with values in single quotes where they hold blanks")
}

// hasPassword says whether a connection string that can be read holds a
// password of its own, rather than getting one from PGPASSWORD or .pgpass:
// then it cannot be read where passwords are not allowed.
func hasPassword(text string) bool {
	options := pgx.ParseConfigOptions{}
	options.ConnStringAllowedKeys = slices.DeleteFunc(slices.Clone(dsnKeys), func(k string) bool { return k == "password" })
	_, err := pgx.ParseConfigWithOptions(text, options)
	return err != nil
}

// withSSLMode adds the default that we want where the driver lets any mode
// written in the string win: of a URL the first one counts, of keywords the
// last.
func withSSLMode(text string) string {
	const mode = "sslmode=verify-full"
	switch {
	case !isURL(text):
		return mode + " " + text
	case hasSSLMode(text):
		return text
	case strings.Contains(text, "?"):
		return text + "&" + mode
	default:
		return text + "?" + mode
	}
}

func hasSSLMode(text string) bool {
	_, query := afterAuthority(text)
	values, err := url.ParseQuery(query)
	return err == nil && (values.Has("sslmode") || values.Has("ssl"))
}

// attempts lists the hosts of a connection string in the order in which they
// are tried, each with the transport security of that try.
func attempts(c *pgx.ConnConfig) []pgconn.FallbackConfig {
	all := []pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}
	for _, f := range c.Fallbacks {
		all = append(all, *f)
	}
	return all
}

func onlyLocal(c *pgx.ConnConfig) bool {
	return !slices.ContainsFunc(attempts(c), func(a pgconn.FallbackConfig) bool { return !loopback(a.Host) })
}

// prefersTLS says whether some host is tried first with TLS and then without:
// the mode "prefer".
func prefersTLS(c *pgx.ConnConfig) bool {
	all := attempts(c)
	for i := 1; i < len(all); i++ {
		if all[i].TLSConfig == nil && all[i-1].TLSConfig != nil && all[i].Host == all[i-1].Host && all[i].Port == all[i-1].Port {
			return true
		}
	}
	return false
}

// weaknesses says, per host that is another machine, how its connection is
// weaker than verify-full.
func weaknesses(c *pgx.ConnConfig) (weak []string) {
	for _, a := range attempts(c) {
		if loopback(a.Host) {
			continue
		}
		text := ""
		switch {
		case a.TLSConfig == nil:
			text = "plain text"
		case !a.TLSConfig.InsecureSkipVerify:
		case a.TLSConfig.VerifyPeerCertificate == nil && a.TLSConfig.VerifyConnection == nil:
			text = "TLS without verification"
		default:
			text = "TLS without checking the host name"
		}
		if text != "" {
			weak = append(weak, fmt.Sprintf("%s to %s", text, address(a)))
		}
	}
	return slices.Compact(weak)
}

// address gives host:port, or the socket's path, as a person would type it.
func address(a pgconn.FallbackConfig) string {
	if strings.HasPrefix(a.Host, "/") {
		return a.Host
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// describe shows where a connection goes, without anything secret: it is
// built from the parsed parts, never from the string.
func (d database) describe() string {
	var hosts, ports []string
	for _, a := range attempts(d.conn) {
		port := strconv.Itoa(int(a.Port))
		if n := len(hosts); n > 0 && hosts[n-1] == a.Host && ports[n-1] == port {
			continue
		}
		hosts, ports = append(hosts, a.Host), append(ports, port)
	}
	text := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=%s",
		strings.Join(hosts, ","), strings.Join(ports, ","), d.conn.User, d.conn.Database, sslMode(d.conn))
	if d.conn.Password != "" {
		text += " password=" + stars
	}
	return text
}

// stars stand for a value that is not shown.
const stars = "********"

func sslMode(c *pgx.ConnConfig) string {
	var strongest *tls.Config
	for _, a := range attempts(c) {
		if a.TLSConfig != nil {
			strongest = a.TLSConfig
			break
		}
	}
	switch {
	case strongest == nil:
		return "disable"
	case prefersTLS(c):
		return "prefer"
	case !strongest.InsecureSkipVerify:
		return "verify-full"
	case strongest.VerifyPeerCertificate != nil:
		return "verify-ca"
	default:
		return "require"
	}
}

// readSecret reads a file that holds one secret. One line end at its end is
// not part of it: editors and "echo" put it there.
func readSecret(name string) (string, error) {
	data, err := readFile(name)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		return "", errors.New("the file is empty")
	case strings.ContainsRune(text, 0):
		return "", errors.New("the file holds a NUL")
	}
	return text, nil
}

// environment is the process's own, for what the driver reads by itself.
func environment() Env { return os.Environ() }
