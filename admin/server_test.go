package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHealth answers what the test sets.
type fakeHealth struct {
	mu    sync.Mutex
	live  error
	ready Readiness
}

func (f *fakeHealth) Live() error      { f.mu.Lock(); defer f.mu.Unlock(); return f.live }
func (f *fakeHealth) Ready() Readiness { f.mu.Lock(); defer f.mu.Unlock(); return f.ready }

func (f *fakeHealth) set(live error, ready Readiness) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live, f.ready = live, ready
}

// start runs a server on a free port until the test ends.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Address, cfg.Logger = "127.0.0.1:0", zerolog.Nop()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

func ask(t *testing.T, s *Server, method, path string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

var streaming = Readiness{Ready: true, State: "streaming", Lag: 5 * time.Second, Components: []Component{{Name: "stream", Healthy: true}}}

// Each probe answers with the code that an orchestrator acts on and the words
// that a person needs.
func TestProbesAnswer(t *testing.T) {
	t.Parallel()
	h := &fakeHealth{}
	s := start(t, Config{Health: h})
	failed := Readiness{State: "failed", Reason: "the slot is gone; outbox-relay slot create makes it"}
	for _, c := range []struct {
		name  string
		live  error
		ready Readiness
		path  string
		code  int
		body  string
	}{
		{"alive", nil, streaming, "/livez", 200, "ok\n"},
		{"stuck", errors.New("the loop has not turned for 40s"), streaming, "/livez", 503, "the loop has not turned for 40s\n"},
		{"an outage is no matter of life", nil, failed, "/livez", 200, "ok\n"},
		{"ready", nil, streaming, "/readyz", 200, "streaming\n"},
		{"standby is ready", nil, Readiness{Ready: true, State: "standby", Reason: "another relay owns the slot"}, "/readyz", 200, "standby: another relay owns the slot\n"},
		{"not ready", nil, failed, "/readyz", 503, "failed: the slot is gone; outbox-relay slot create makes it\n"},
		{"lag below", nil, streaming, "/readyz?lag=5s", 200, "streaming\n"},
		{"lag above", nil, streaming, "/readyz?lag=4s", 503, "streaming: the oldest event that is not acknowledged is 5s old; the limit asked for is 4s\n"},
		{"lag nonsense", nil, streaming, "/readyz?lag=soon", 400, "lag: want a duration such as 30s\n"},
		{"unknown path", nil, streaming, "/livez/x", 404, "404 page not found\n"},
		{"root", nil, streaming, "/", 404, "404 page not found\n"},
		{"no metrics", nil, streaming, "/metrics", 404, "404 page not found\n"},
	} {
		h.set(c.live, c.ready)
		answer, body := ask(t, s, http.MethodGet, c.path)
		if answer.StatusCode != c.code || body != c.body {
			t.Errorf("%s: GET %s gave %d %q, want %d %q", c.name, c.path, answer.StatusCode, body, c.code, c.body)
		}
		if answer.Header.Get("X-Content-Type-Options") != "nosniff" || answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: security headers are missing: %v", c.name, answer.Header)
		}
	}
}

// ?verbose gives a document with a version and the reason of each part.
func TestVerboseIsADocument(t *testing.T) {
	t.Parallel()
	h := &fakeHealth{ready: Readiness{State: "blocked", Reason: "topic orders does not exist", Lag: 1500 * time.Millisecond,
		Components: []Component{{Name: "producer", Reason: "topic orders does not exist"}}}}
	s := start(t, Config{Health: h})
	answer, body := ask(t, s, http.MethodGet, "/readyz?verbose")
	var got verboseReady
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if answer.StatusCode != 503 || got.SchemaVersion != 1 || got.Ready || got.LagSeconds != 1.5 || len(got.Components) != 1 || got.Components[0].Reason != "topic orders does not exist" {
		t.Errorf("got %d %+v", answer.StatusCode, got)
	}
	h.set(nil, Readiness{Ready: true, State: "streaming"})
	if _, body = ask(t, s, http.MethodGet, "/readyz?verbose"); !strings.Contains(body, `"components":[]`) {
		t.Errorf("no components should be an empty list: %s", body)
	}
	if _, body = ask(t, s, http.MethodGet, "/livez?verbose"); body != "{\"schema_version\":1,\"live\":true}\n" {
		t.Errorf("livez: %s", body)
	}
}

// Nothing but reading is possible.
func TestOnlyReading(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Health: &fakeHealth{ready: streaming}, Metrics: prometheus.NewRegistry()})
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			if answer, _ := ask(t, s, method, path); answer.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s gave %d", method, path, answer.StatusCode)
			}
		}
		if answer, body := ask(t, s, http.MethodHead, path); answer.StatusCode != 200 || body != "" {
			t.Errorf("HEAD %s gave %d %q", path, answer.StatusCode, body)
		}
	}
}

// The metrics page shows the registry that was given.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_test", Help: "A test."})
	registry.MustRegister(gauge)
	gauge.Set(7)
	s := start(t, Config{Health: &fakeHealth{}, Metrics: registry})
	if answer, body := ask(t, s, http.MethodGet, "/metrics"); answer.StatusCode != 200 || !strings.Contains(body, "outbox_relay_test 7") {
		t.Errorf("got %d %s", answer.StatusCode, body)
	}
}

// A client that never finishes its request is dropped in time, and while it
// sits there others are answered.
func TestSlowClientIsDropped(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Health: &fakeHealth{ready: streaming}, HeaderTimeout: 300 * time.Millisecond})
	slow, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := slow.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ")); err != nil {
		t.Fatal(err)
	}
	if answer, _ := ask(t, s, http.MethodGet, "/livez"); answer.StatusCode != 200 {
		t.Errorf("another client got %d", answer.StatusCode)
	}
	if err := slow.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(slow); err != nil {
		t.Errorf("the slow client was not dropped: %v", err)
	}
}

// More connections than allowed wait, and are served once others end; the
// server can stop while one waits.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Health: &fakeHealth{ready: streaming}, Connections: 1, HeaderTimeout: 300 * time.Millisecond})
	idle, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if answer, _ := ask(t, s, http.MethodGet, "/livez"); answer.StatusCode != 200 {
		t.Errorf("after the idle one was dropped: %d", answer.StatusCode)
	}
}

// A port that is taken is an error at once, which names the address.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = Open(t.Context(), Config{Address: taken.Addr().String(), Health: &fakeHealth{}})
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("got %v", err)
	}
}
