package arch

// module is the prefix of our own packages.
const module = "github.com/outboxrelay/outbox-relay/"

// layers: a package imports packages of lower layers only, never its own.
var layers = map[string]int{
	"outbox": 0,
	"decode": 1, "checkpoint": 1,
	"cdc": 2, "sink": 2, "store": 2, "migrations": 2,
	"relay": 3, "poller": 3, "admin": 3,
	"config":           4,
	"cmd/outbox-relay": 5, "cmd/outbox-demo": 5,
	"consumer": 1, // public: for applications that read what the relay wrote
}

// common is allowed in layers 2 to 5.
var common = []string{
	"github.com/rs/zerolog", "golang.org/x/sync", "github.com/prometheus/client_golang/prometheus",
}

const (
	pgx       = "github.com/jackc/pgx/v5"
	pgerrcode = "github.com/jackc/pgerrcode"
	franz     = "github.com/twmb/franz-go"
)

// outside lists what each package may use of other modules, by prefix.
// Packages that are missing here may use none (beside common).
var outside = map[string][]string{
	"cdc":              {pgx, pgerrcode, "github.com/jackc/pglogrepl", "golang.org/x/sys"},
	"sink":             {franz},
	"store":            {pgx, pgerrcode, "github.com/google/uuid"},
	"migrations":       {pgx, pgerrcode, "github.com/pressly/goose/v3"},
	"admin":            {"github.com/prometheus/client_golang"},
	"poller":           {},
	"config":           {"github.com/knadh/koanf", "github.com/goccy/go-yaml", pgx, franz + "/pkg/sasl"},
	"consumer":         {pgx, franz},
	"cmd/outbox-relay": {"github.com/spf13/cobra", "github.com/mattn/go-isatty", "golang.org/x/term", "golang.org/x/sys", pgx, franz, "github.com/prometheus/client_golang"},
	"cmd/outbox-demo": {
		pgx, franz, "github.com/google/uuid", "github.com/mattn/go-isatty", "golang.org/x/term", "golang.org/x/sys",
		"github.com/schollz/progressbar", "github.com/spf13/cobra",
	},
}

// tools may import the harness although they are no tests.
var tools = []string{"cmd/outbox-demo", "test"}

// strangers must not use each other's code, so that one can judge the other.
var strangers = map[string][]string{
	"test/judge":   {"decode", "checkpoint", "relay", "sink", "store", "cdc", "poller", "consumer"},
	"test/harness": {"outbox", "decode", "checkpoint", "relay", "sink", "store", "cdc", "poller", "consumer", "admin", "config", "migrations", "cmd"},
}

// Lengths, in lines.
const (
	longestFile     = 400
	longestTestFile = 600
	longestFunction = 70 // production and tools, not tests
)

// poller is the name of the functions that poll a condition with a deadline, and
// may pause between two looks.
const poller = "eventually"

// sleepers are the other tests that may call time.Sleep, with the number of
// calls and the reason. Files that use testing/synctest, where sleep waits for
// no real time, need no entry.
var sleepers = map[string]int{
	"sink/bench_test.go":   1, // the pause of a benchmark's last wait
	"relay/faults_test.go": 1, // watches a bound for as long as an outage lasts
}
