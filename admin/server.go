package admin

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// Config says where to listen and whom to ask.
type Config struct {
	// Address is host:port; port 0 takes a free one.
	Address string
	// Health is asked by /livez and /readyz; never nil.
	Health Health
	// Metrics are shown at /metrics; nil: there is no such page.
	Metrics prometheus.Gatherer
	Logger  zerolog.Logger
	// HeaderTimeout is how long a client may take to send its request; 0 is
	// 5 s.
	HeaderTimeout time.Duration
	// Connections is how many may be open at once; 0 is 128. Further ones
	// wait in the kernel.
	Connections int
}

// The limits of one exchange.
const (
	defaultHeaderTimeout = 5 * time.Second
	defaultConnections   = 128
	readTimeout          = 10 * time.Second
	writeTimeout         = 30 * time.Second
	idleTimeout          = time.Minute
	maxHeaderBytes       = 16 << 10
	scrapeTimeout        = 20 * time.Second
	scrapesAtOnce        = 4
	shutdownGrace        = 2 * time.Second
)

// Server is the listener. Make it with Open and run it once with Run.
type Server struct {
	cfg      Config
	listener net.Listener
	http     *http.Server
}

// Open binds the address, so that a port that is taken is an error at the
// start and not a missing probe later. ctx bounds Open alone. The caller must
// call Run or Close.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.HeaderTimeout == 0 {
		cfg.HeaderTimeout = defaultHeaderTimeout
	}
	if cfg.Connections == 0 {
		cfg.Connections = defaultConnections
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s for probes and metrics: %w", cfg.Address, err)
	}
	s := &Server{cfg: cfg, listener: newLimitListener(l, cfg.Connections)}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(quiet{cfg.Logger}, "", 0),
	}
	return s, nil
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close gives the address free when Run was never called.
func (s *Server) Close() error { return s.listener.Close() }

// Run answers requests until ctx is done, then lets those under way finish
// for two seconds, and returns nil. It returns an error only when the
// listener itself breaks.
func (s *Server) Run(ctx context.Context) error {
	broken := make(chan error, 1)
	go func() { broken <- s.http.Serve(s.listener) }()
	select {
	case err := <-broken:
		return fmt.Errorf("serving probes and metrics on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := s.http.Shutdown(limited)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-broken; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("serving probes and metrics on %s: %w", s.Addr(), served)
	}
	return err
}

// handler routes by exact path and method; what is not listed is 404 or 405.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{
			ErrorHandling:       promhttp.ContinueOnError,
			ErrorLog:            log.New(quiet{s.cfg.Logger}, "", 0),
			EnableOpenMetrics:   true,
			MaxRequestsInFlight: scrapesAtOnce,
			Timeout:             scrapeTimeout,
		}))
	}
	return secured(mux)
}

// secured adds the headers that keep a browser from doing anything with an
// answer, and refuses bodies: no route reads one.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		r.Body = http.MaxBytesReader(w, r.Body, 0)
		next.ServeHTTP(w, r)
	})
}

// quiet turns the standard library's log lines into debug lines: they tell of
// clients that went away or spoke TLS to a plain port.
type quiet struct{ log zerolog.Logger }

func (q quiet) Write(line []byte) (int, error) {
	q.log.Debug().Str("detail", strings.TrimSpace(string(line))).Msg("the probe listener dropped a client")
	return len(line), nil
}
