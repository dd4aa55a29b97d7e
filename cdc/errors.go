package cdc

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrServerEnded is wrapped by an EndError when the server ended the stream
// in an orderly way, as it does when it shuts down.
var ErrServerEnded = errors.New("the server ended the stream")

// EndError says that the server, or what came over the connection, ended the
// stream. Err holds a *pgconn.PgError when the server gave an error.
type EndError struct {
	Reason string // "error", "closed" or "protocol"
	Err    error
}

func (e *EndError) Error() string { return "the stream ended (" + e.Reason + "): " + e.Err.Error() }

// Unwrap returns the cause.
func (e *EndError) Unwrap() error { return e.Err }

// PublicationError says that the server passes over the publication, so that
// committed rows do not arrive. Nothing received later may be confirmed.
type PublicationError struct {
	Publication string
	Message     string // the server's words
}

func (e *PublicationError) Error() string {
	return fmt.Sprintf("the server passes over publication %q: %s", e.Publication, e.Message)
}

// connectError keeps of a connection attempt what is safe to show: host,
// port, user, database and the cause. The configuration that pgconn attaches
// holds the password, so its own error is dropped from the chain.
func connectError(c *pgconn.Config, err error) error {
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) {
		err = ce.Unwrap()
	}
	return fmt.Errorf("connecting to %s as user %q to database %q: %w", endpoint(c), c.User, c.Database, err)
}

// endpoint names where c leads, in a form that can be typed again.
func endpoint(c *pgconn.Config) string {
	names := []string{address(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if a := address(f.Host, f.Port); a != names[len(names)-1] {
			names = append(names, a)
		}
	}
	return strings.Join(names, ",")
}

func address(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return host + " port " + strconv.Itoa(int(port))
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
