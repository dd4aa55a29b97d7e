package pgserver

import (
	"context"
	"errors"
)

// Remote is a server that something else runs, for example in a container. The
// role postgres must be a superuser there.
type Remote struct {
	Host     string
	Port     int
	Password string // "" = trusted
}

var errAttached = errors.New("starting or stopping the server: it belongs to somebody else")

// Attach gives a Server for one that runs elsewhere. Databases, roles and
// connections work; starting, stopping, standbys and logs do not.
func Attach(ctx context.Context, r Remote) (*Server, error) {
	s := &Server{remote: &r, port: r.Port}
	if err := s.readVersion(ctx); err != nil {
		return nil, err
	}
	s.major = s.version / 10000
	return s, nil
}
