package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Law: imports point strictly down; production code does not know the tests;
// what judges does not use what it judges.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	each(t, direction)
}

// Law: each package uses from outside only what its table entry names.
func TestThirdPartyIsOnTheList(t *testing.T) {
	t.Parallel()
	each(t, thirdParty)
}

// each runs a rule over the repository.
func each(t *testing.T, rule func(*source) []string) {
	t.Helper()
	for _, s := range repository(t) {
		for _, broken := range rule(s) {
			t.Error(broken)
		}
	}
}

// home gives the entry of layers that a folder belongs to: itself, or the
// package that an internal folder is inside of.
func home(folder string) (name string, ok bool) {
	name, _, _ = strings.Cut(folder, "/internal")
	_, ok = layers[name]
	return name, ok
}

// inside says whether folder is tree or below it.
func inside(folder, tree string) bool {
	return folder == tree || strings.HasPrefix(folder, tree+"/")
}

func insideAny(folder string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return inside(folder, tree) })
}

func direction(s *source) (broken []string) {
	own, _ := s.imports()
	if insideAny(s.folder(), []string{"test"}) {
		return strange(s, own)
	}
	from, ok := home(s.folder())
	if !ok {
		return []string{fmt.Sprintf("%s: package %s has no layer in rules_test.go", s.path, s.folder())}
	}
	for _, in := range own {
		if why := forbidden(s, from, in.path); why != "" {
			broken = append(broken, fmt.Sprintf("%s: %s imports %s: %s", in.at, from, in.path, why))
		}
	}
	return broken
}

// forbidden says why package from may not import path, "" when it may.
func forbidden(s *source, from, path string) string {
	if inside(path, "test") {
		if s.isTest() || insideAny(from, tools) {
			return ""
		}
		return "production code does not import tests"
	}
	to, ok := home(path)
	switch {
	case !ok:
		return "it has no layer in rules_test.go"
	case to == from:
		return ""
	case to == "config" && layers[from] < 5:
		return "only commands read the configuration"
	case s.isTest() && layers[to] <= layers[from]:
		return "" // a test may build its world from its neighbours
	case layers[to] >= layers[from]:
		return fmt.Sprintf("layer %d does not import layer %d", layers[from], layers[to])
	}
	return ""
}

// strange keeps apart what strangers keeps apart.
func strange(s *source, own []imported) (broken []string) {
	for tree, others := range strangers {
		for _, in := range own {
			if inside(s.folder(), tree) && insideAny(in.path, others) {
				broken = append(broken, fmt.Sprintf("%s: %s must share no code with %s", in.at, tree, in.path))
			}
		}
	}
	return broken
}

func thirdParty(s *source) (broken []string) {
	if s.isTest() || inside(s.folder(), "test") {
		return nil
	}
	name, ok := home(s.folder())
	if !ok {
		return nil // direction says so
	}
	allowed := outside[name]
	if layers[name] >= 2 {
		allowed = append(slices.Clone(allowed), common...)
	}
	_, other := s.imports()
	for _, in := range other {
		if !insideAny(in.path, allowed) {
			broken = append(broken, fmt.Sprintf("%s: %s may not use %s", in.at, name, in.path))
		}
	}
	return broken
}
