package arch

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Law: what the documentation names is there: every test in the tree, every
// linked file, and a test that is linked in the file of the link.
func TestDocsNameWhatExists(t *testing.T) {
	t.Parallel()
	tests := testFunctions(repository(t))
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(name)))
		return err == nil
	}
	pages := documentation(t)
	if len(pages) < 5 {
		t.Fatalf("only %d pages were found", len(pages))
	}
	for _, p := range pages {
		for _, broken := range p.check(tests, exists) {
			t.Error(broken)
		}
	}
}

// page is one page of the documentation.
type page struct {
	path string // from the root of the module, with slashes
	text string
}

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	mdLink   = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
)

// check says what the page names that is not there. tests are the files of
// each test function.
func (p page) check(tests map[string][]string, exists func(string) bool) (broken []string) {
	for n, line := range strings.Split(p.text, "\n") {
		at := fmt.Sprintf("%s:%d", p.path, n+1)
		for _, name := range testName.FindAllString(line, -1) {
			if len(tests[name]) == 0 {
				broken = append(broken, fmt.Sprintf("%s: there is no %s", at, name))
			}
		}
		for _, link := range mdLink.FindAllStringSubmatch(line, -1) {
			target, _, _ := strings.Cut(link[2], "#")
			if target == "" || strings.Contains(target, ":") {
				continue // within the page, or elsewhere
			}
			file := path.Join(path.Dir(p.path), target)
			if !exists(file) {
				broken = append(broken, fmt.Sprintf("%s: %s does not exist", at, file))
			}
			if name := testName.FindString(link[1]); name != "" && strings.HasSuffix(file, ".go") && !slices.Contains(tests[name], file) {
				broken = append(broken, fmt.Sprintf("%s: %s is not in %s", at, name, file))
			}
		}
	}
	return broken
}

// testFunctions gives the files in which each test or fuzz target is.
func testFunctions(all []*source) map[string][]string {
	files := map[string][]string{}
	for _, s := range all {
		if !s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
				files[f.Name.Name] = append(files[f.Name.Name], s.path)
			}
		}
	}
	return files
}

// documentation reads all pages of the module.
func documentation(t *testing.T) (pages []page) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		pages = append(pages, page{filepath.ToSlash(rel), string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// Law: the rule about the documentation finds what breaks it, and lets its
// neighbour pass.
func TestDocsRuleCanFail(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{"TestThere": {"relay/x_test.go"}}
	exists := func(name string) bool { return name == "relay/x_test.go" || name == "docs/b.md" }
	for text, broken := range map[string]bool{
		"`TestThere` and [b](b.md#part), [out](https://example.org/TestThere), [here](#part)": false,
		"[`TestThere`](../relay/x_test.go)":                                                   false,
		"`TestGone`":                                                                          true,
		"[b](c.md)":                                                                           true,
		"[b](../b.md)":                                                                        true,
		"[`TestThere`](../relay/y_test.go)":                                                   true,
	} {
		if got := (page{"docs/a.md", text}).check(tests, exists); (len(got) > 0) != broken {
			t.Errorf("%s: broken %v, want %v", text, got, broken)
		}
	}
	elsewhere := page{"docs/a.md", "[`TestThere`](b.go)"}
	if got := elsewhere.check(tests, func(string) bool { return true }); len(got) != 1 {
		t.Errorf("a test linked in another file passes: %v", got)
	}
}
