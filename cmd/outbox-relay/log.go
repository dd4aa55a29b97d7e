package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox-relay/config"
)

// logKeys sets the names of the keys once for the process: they are part of
// what people filter by.
var logKeys = sync.OnceFunc(func() {
	zerolog.TimestampFieldName = "ts"
	zerolog.MessageFieldName = "msg"
	zerolog.ErrorFieldName = "err"
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
	zerolog.DurationFieldUnit = time.Second
})

// logger makes the process's logger: JSON lines, or text on a terminal.
func (a *app) logger(c *config.Config) zerolog.Logger {
	logKeys()
	level, err := zerolog.ParseLevel(c.Observe.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel // config allows only words that parse
	}
	var out io.Writer = a.err
	if c.Observe.LogFormat == "console" || c.Observe.LogFormat == "auto" && terminal(a.err) {
		out = zerolog.ConsoleWriter{Out: a.err, NoColor: a.plain(), TimeFormat: time.TimeOnly}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

// plain says whether colours are unwelcome.
func (a *app) plain() bool {
	v, ok := a.env.Lookup("NO_COLOR")
	return a.noColor || (ok && v != "") || !terminal(a.err)
}

func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
