package config

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// maxIdentifierBytes is NAMEDATALEN-1: PostgreSQL cuts longer names, and then
// they are other names.
const maxIdentifierBytes = 63

var (
	slotPattern  = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	relayPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)
)

func relayName(s string) string {
	if !relayPattern.MatchString(s) {
		return "want 1 to 63 letters, digits, underscores, dots or hyphens"
	}
	return ""
}

// slotName follows PostgreSQL's rule (documentation, "Querying and
// Manipulating Replication Slots"): the server would refuse anything else.
func slotName(s string) string {
	if !slotPattern.MatchString(s) {
		return "a slot name has 1 to 63 characters out of a-z, 0-9 and _"
	}
	return ""
}

func identifier(s string) string {
	switch {
	case s == "":
		return "a name cannot be empty"
	case len(s) > maxIdentifierBytes:
		return fmt.Sprintf("a name has at most %d bytes", maxIdentifierBytes)
	case strings.ContainsRune(s, 0):
		return "a name cannot hold a NUL"
	}
	return ""
}

func tableName(s string) string {
	if _, _, err := SplitTable(s); err != nil {
		return err.Error()
	}
	return ""
}

// SplitTable reads schema.table, each part plain or in double quotes as in
// SQL. A name without schema is in public. Plain parts are folded to lower
// case, as SQL does.
func SplitTable(s string) (schema, table string, err error) {
	first, rest, err := cutIdentifier(s)
	if err != nil {
		return "", "", err
	}
	if rest == "" {
		return "public", first, nil
	}
	if rest[0] != '.' {
		return "", "", fmt.Errorf("want schema.table, each part plain or in double quotes")
	}
	second, rest, err := cutIdentifier(rest[1:])
	if err != nil {
		return "", "", err
	}
	if rest != "" {
		return "", "", fmt.Errorf("want schema.table: two parts, no more")
	}
	return first, second, nil
}

// cutIdentifier takes one identifier from the front of s.
func cutIdentifier(s string) (name, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		name, rest, err = cutQuoted(s)
	} else {
		end := strings.IndexFunc(s, func(r rune) bool { return !plainRune(r) })
		if end < 0 {
			end = len(s)
		}
		name, rest = strings.ToLower(s[:end]), s[end:]
	}
	if err != nil {
		return "", "", err
	}
	if text := identifier(name); text != "" {
		return "", "", fmt.Errorf("want schema.table, each part plain or in double quotes: %s", text)
	}
	return name, rest, nil
}

// cutQuoted takes one quoted identifier; a doubled quote inside stands for
// one.
func cutQuoted(s string) (name, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			b.WriteByte('"')
			i++
			continue
		}
		return b.String(), s[i+1:], nil
	}
	return "", "", fmt.Errorf("a double quote is not closed")
}

func plainRune(r rune) bool {
	return r == '_' || r == '$' || r >= 0x80 ||
		('a' <= r && r <= 'z') || ('A' <= r && r <= 'Z') || ('0' <= r && r <= '9')
}

// brokerAddress checks host:port; the port may be left out (9092).
func brokerAddress(s string) string {
	host, port, err := net.SplitHostPort(withPort(s))
	if err != nil || host == "" {
		return "want host:port, such as kafka-1:9092 or [::1]:9092"
	}
	if strings.Contains(host, ":") && net.ParseIP(strings.SplitN(host, "%", 2)[0]) == nil {
		return "want host:port, such as kafka-1:9092 or [::1]:9092"
	}
	if strings.ContainsAny(host, "/@ ") {
		return "want host:port alone, without a scheme or a user"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "the port is a number from 1 to 65535"
	}
	return ""
}

// withPort adds Kafka's port to an address that has none.
func withPort(s string) string {
	if _, _, err := net.SplitHostPort(s); err == nil {
		return s
	}
	return net.JoinHostPort(strings.Trim(s, "[]"), "9092")
}

func listenAddress(s string) string {
	if s == "" {
		return ""
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "want host:port, such as 127.0.0.1:8080 or :8080"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "the port is a number from 0 to 65535"
	}
	return ""
}

// loopback says whether a host is this machine: a socket directory, a
// loopback address, or the name localhost (RFC 6761 reserves it).
func loopback(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}
