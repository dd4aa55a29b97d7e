package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

// build is what the binary knows about itself.
type build struct {
	document
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildInfo() build {
	b := build{document: newDocument(), Version: version, Revision: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "print the version",
		Example: "  outbox-relay version\n  outbox-relay version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := buildInfo()
			if a.format == formatJSON {
				return writeJSON(a.out, b)
			}
			_, err := fmt.Fprintf(a.out, "outbox-relay %s (revision %s, %s, %s)\n", b.Version, b.Revision, b.Go, b.Platform)
			return err
		},
	}
}
