package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// maxFileBytes bounds what is read as a configuration.
const maxFileBytes = 1 << 20

// LoadOptions says where to look. The zero value looks at the usual places
// with an empty environment.
type LoadOptions struct {
	// Files are read in order, later ones win. Empty: $OUTBOX_RELAY_CONFIG,
	// else the first of SearchPath that exists, else no file.
	Files []string
	// SearchPath replaces the usual places when it is not nil.
	SearchPath []string
	// Env is usually os.Environ().
	Env Env
	// Flags maps key paths to texts; they win over everything.
	Flags []FlagValue
	// Incomplete accepts a configuration that does not say where the
	// database and the brokers are.
	Incomplete bool
}

// FlagValue is a key that a flag set.
type FlagValue struct {
	Flag, Path, Text string
}

// Loaded is a configuration and where it came from.
type Loaded struct {
	Config Config
	// Files are those that were read, in order.
	Files []string
	// Warnings are what is allowed but should be seen at each start.
	Warnings []string

	origins map[string]Place
	broken  map[string]bool // keys that were given and could not be read
}

// Origin says where a key's value came from.
func (l *Loaded) Origin(path string) Place { return l.origins[path] }

// SearchPath lists the places where a configuration file is looked for.
func SearchPath() []string {
	return []string{"outbox-relay.yaml", "/etc/outbox-relay/outbox-relay.yaml"}
}

// Load reads files, environment and flags. The error is Mistakes, with
// everything that is wrong; Loaded is returned even then, with what could be
// understood, and is never nil.
func Load(o LoadOptions) (*Loaded, error) {
	l := &Loaded{Config: Default(), origins: map[string]Place{}, broken: map[string]bool{}}
	keys := reference()
	settings, mistakes := l.readFiles(o, keys)

	settings, bad := l.expand(settings, o.Env)
	mistakes = append(mistakes, bad...)

	fromEnv, bad := fromEnv(o.Env, keys)
	settings, mistakes = append(settings, fromEnv...), append(mistakes, bad...)
	for _, f := range o.Flags {
		i := slices.IndexFunc(keys, func(k key) bool { return k.path == f.Path })
		settings = append(settings, setting{key: keys[i], value: value{place: Place{Source: "flag --" + f.Flag}, text: f.Text}})
	}
	mistakes = append(mistakes, l.apply(settings)...)
	l.fallBackToDatabaseURL(o.Env)
	mistakes = append(mistakes, l.check(o)...)
	if len(mistakes) > 0 {
		return l, mistakes.sorted()
	}
	return l, nil
}

// readFiles reads every file that applies.
func (l *Loaded) readFiles(o LoadOptions, keys []key) (settings []setting, mistakes Mistakes) {
	for _, name := range o.files() {
		data, err := readFile(name)
		if err != nil {
			mistakes = append(mistakes, Mistake{Place: Place{Source: name}, Text: err.Error(), Hint: "print an example with: outbox-relay config example"})
			continue
		}
		l.Files = append(l.Files, name)
		root, bad := parseYAML(name, data)
		mistakes = append(mistakes, bad...)
		if root.kind == null || len(bad) > 0 && root.kind != mapping {
			continue
		}
		found, bad := walk(root, "", keys)
		settings, mistakes = append(settings, found...), append(mistakes, bad...)
	}
	return settings, mistakes
}

func (o LoadOptions) files() []string {
	if len(o.Files) > 0 {
		return o.Files
	}
	if name, ok := o.Env.Lookup(fileEnv); ok && name != "" {
		return []string{name}
	}
	places := o.SearchPath
	if places == nil {
		places = SearchPath()
	}
	for _, name := range places {
		if _, err := os.Stat(name); err == nil {
			return []string{name}
		}
	}
	return nil
}

// readFile reads a small file. Its error does not repeat the name.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("no such file")
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("this user may not read the file")
	case err != nil:
		return nil, errors.New("the file cannot be read")
	case info.IsDir():
		return nil, errors.New("this is a folder, not a file")
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("the file is larger than %s", Size(maxFileBytes))
	}
	data, err := os.ReadFile(filepath.Clean(name))
	if errors.Is(err, fs.ErrPermission) {
		return nil, errors.New("this user may not read the file")
	}
	if err != nil {
		return nil, errors.New("the file cannot be read")
	}
	return data, nil
}

// walk compares a mapping with the reference, and gathers the settings of the
// keys that it knows.
func walk(v value, prefix string, keys []key) (settings []setting, mistakes Mistakes) {
	if v.kind == null && prefix != "" { // a section with all its keys commented out
		return nil, nil
	}
	if v.kind != mapping {
		what := "the file"
		if prefix != "" {
			what = strings.TrimSuffix(prefix, ".")
		}
		return nil, Mistakes{{Place: v.place, Text: fmt.Sprintf("%s holds keys; want a mapping, found %s", what, v.kind)}}
	}
	for _, m := range v.members {
		path := prefix + m.name
		exact := slices.IndexFunc(keys, func(k key) bool { return k.path == path })
		section := slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.path, path+".") })
		switch {
		case exact >= 0:
			settings = append(settings, setting{key: keys[exact], value: m.value})
		case section:
			s, bad := walk(m.value, path+".", keys)
			settings, mistakes = append(settings, s...), append(mistakes, bad...)
		default:
			mistakes = append(mistakes, unknownKey(m, path, keys))
		}
	}
	return settings, mistakes
}

func unknownKey(m member, path string, keys []key) Mistake {
	known := map[string]bool{}
	for _, k := range keys {
		for p := k.path; p != ""; p = p[:max(0, strings.LastIndexByte(p, '.'))] {
			known[p] = true
		}
	}
	bad := Mistake{Place: m.place, Text: fmt.Sprintf("unknown key %q", path)}
	if n := nearest(path, slices.Sorted(maps.Keys(known))); n != "" {
		bad.Hint = fmt.Sprintf("did you mean %s?", n)
	}
	return bad
}

// expand fills in the variables. A setting that cannot be filled in is left
// out: what remains of it would only cause more mistakes.
func (l *Loaded) expand(settings []setting, env Env) (whole []setting, mistakes Mistakes) {
	for _, s := range settings {
		x := expander{env: env}
		s = x.setting(s)
		if len(x.mistakes) == 0 {
			whole = append(whole, s)
			continue
		}
		mistakes = append(mistakes, x.mistakes...)
		l.broken[s.key.path] = true
	}
	return whole, mistakes
}

// apply assigns the settings in order and remembers where each came from.
func (l *Loaded) apply(settings []setting) (mistakes Mistakes) {
	defaults := Default()
	for _, s := range settings {
		bad := s.assign(&l.Config)
		if len(bad) > 0 {
			l.broken[s.key.path] = true
		}
		if len(bad) == 0 && s.key.unbuilt && !reflect.DeepEqual(s.key.at(&l.Config), s.key.at(&defaults)) {
			bad = Mistakes{{Place: s.value.place, Key: s.key.path, Text: "not built yet in this version", Hint: "remove the key"}}
		}
		mistakes = append(mistakes, bad...)
		l.origins[s.key.path] = s.value.place
	}
	return mistakes
}

// fallBackToDatabaseURL takes the variable that many platforms set, when
// nothing of ours says where the database is.
func (l *Loaded) fallBackToDatabaseURL(env Env) {
	const name = "DATABASE_URL"
	if l.Config.Postgres.Replication != "" || l.broken["postgres.replication"] {
		return
	}
	if url, ok := env.Lookup(name); ok && url != "" {
		l.Config.Postgres.Replication = url
		l.origins["postgres.replication"] = Place{Source: "environment " + name}
	}
}
