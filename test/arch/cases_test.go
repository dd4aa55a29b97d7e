package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

var (
	caseRow = regexp.MustCompile(`(?m)^\| (F\d+(?:, F\d+)*) \|.*$`)
	caseNum = regexp.MustCompile(`\bF\d+\b`)
)

// Law: a test that the table of cases links names the case in its comment, so
// that whoever changes the test knows what it is for.
func TestCasesAreNamedInTheirTests(t *testing.T) {
	t.Parallel()
	comments := testComments(repository(t))
	rows := 0
	for _, p := range documentation(t) {
		if p.path != "docs/guarantees.md" {
			continue
		}
		rows = len(caseRow.FindAllString(p.text, -1))
		for _, broken := range unnamedCases(p.text, comments) {
			t.Error(broken)
		}
	}
	if rows < 40 {
		t.Errorf("only %d rows of cases were found", rows)
	}
}

// unnamedCases says which linked test does not name its case. comments are by
// file and function, joined by a space.
func unnamedCases(text string, comments map[string]string) (broken []string) {
	for _, row := range caseRow.FindAllStringSubmatch(text, -1) {
		for _, link := range mdLink.FindAllStringSubmatch(row[0], -1) {
			file := strings.TrimPrefix(link[2], "../")
			comment := comments[file+" "+strings.Trim(link[1], "`")]
			named := caseNum.FindAllString(comment, -1)
			for _, want := range strings.Split(row[1], ", ") {
				if !strings.Contains(" "+strings.Join(named, " ")+" ", " "+want+" ") {
					broken = append(broken, fmt.Sprintf("%s: %s does not name case %s", file, link[1], want))
				}
			}
		}
	}
	return broken
}

func testComments(all []*source) map[string]string {
	comments := map[string]string{}
	for _, s := range all {
		if !s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				comments[s.path+" "+f.Name.Name] = f.Doc.Text()
			}
		}
	}
	return comments
}

// Law: the rule about cases can fail.
func TestCaseRuleCanFail(t *testing.T) {
	t.Parallel()
	const table = "| F1, F2 | words | [`TestA`](../x/a_test.go) |\n"
	for comment, want := range map[string]int{"Cases F1, F2 of it.": 0, "Case F2.": 1, "Case F12.": 2, "": 2} {
		got := unnamedCases(table, map[string]string{"x/a_test.go TestA": comment})
		if len(got) != want {
			t.Errorf("%q: %v, want %d", comment, got, want)
		}
	}
}
