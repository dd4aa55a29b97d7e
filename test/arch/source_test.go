package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file.
type source struct {
	path string // from the root of the module, with slashes
	text string
	set  *token.FileSet
	file *ast.File
}

// parse reads one file.
func parse(name, text string) (*source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	return &source{path: name, text: text, set: set, file: file}, nil
}

// folder is the directory of the file, "." at the root.
func (s *source) folder() string { return path.Dir(s.path) }

func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s *source) lines() int { return strings.Count(s.text, "\n") }

func (s *source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.set.Position(p).Line)
}

// imported is one import of a file.
type imported struct {
	at, path string
}

// imports gives the imports of other modules and of our own, without the
// standard library.
func (s *source) imports() (own, other []imported) {
	for _, spec := range s.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		in := imported{at: s.at(spec.Pos()), path: name}
		first, _, _ := strings.Cut(name, "/")
		switch {
		case strings.HasPrefix(name, module):
			in.path = strings.TrimPrefix(name, module)
			own = append(own, in)
		case strings.Contains(first, "."):
			other = append(other, in)
		}
	}
	return own, other
}

// repository reads all Go files of the module.
func repository(t *testing.T) []*source {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	var all []*source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if rel != "." && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), string(text))
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d Go files were found", len(all))
	}
	return all
}
