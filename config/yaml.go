package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// kind is the shape of a value in a file.
type kind uint8

const (
	scalar kind = iota
	null
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"a single value", "null", "a list", "a mapping"}[k]
}

// value is one node of a file, stripped of everything that YAML has and a
// configuration does not need.
type value struct {
	place   Place
	kind    kind
	text    string // of a scalar, as written (unquoted)
	items   []value
	members []member
}

// member is one key of a mapping.
type member struct {
	name  string
	place Place
	value value
}

// maxDepth and maxNodes bound what aliases can blow up; the reference needs
// four levels and about a hundred nodes.
const (
	maxDepth = 16
	maxNodes = 20_000
)

// parseYAML reads one document. What it cannot understand is a mistake with
// a place; nothing of the file's text is quoted, because it may be a secret.
// The source name appears in every place.
func parseYAML(source string, data []byte) (root value, mistakes Mistakes) {
	defer func() {
		if r := recover(); r != nil { // the YAML library; bad input is never a panic of ours
			mistakes = append(mistakes, Mistake{Place: Place{Source: source}, Text: "not YAML that this program can read"})
		}
	}()
	text := strings.TrimPrefix(string(data), "\ufeff")
	file, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return value{}, Mistakes{syntaxMistake(source, err)}
	}
	r := reader{source: source, anchors: map[string]ast.Node{}}
	for i, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 && root.kind != null {
			r.mistake(doc.Body, "a second YAML document; the file holds exactly one")
			break
		}
		root = r.read(doc.Body, 0)
	}
	return root, r.mistakes
}

// syntaxMistake keeps the parser's message only where it is one of the fixed
// sentences; its long form quotes the source.
func syntaxMistake(source string, err error) Mistake {
	m := Mistake{Place: Place{Source: source}, Text: "not valid YAML"}
	var detailed yaml.Error
	if !errors.As(err, &detailed) {
		return m
	}
	if t := detailed.GetToken(); t != nil && t.Position != nil {
		m.Place.Line, m.Place.Column = t.Position.Line, t.Position.Column
	}
	if text := detailed.GetMessage(); !strings.ContainsAny(text, "'\"`:") {
		m.Text += ": " + text
	}
	m.Hint = "look at the indentation (blanks, never tabs), at quotes, and at the line before"
	return m
}

// reader turns nodes into values and gathers what is wrong with them.
type reader struct {
	source   string
	anchors  map[string]ast.Node
	nodes    int
	mistakes Mistakes
}

func (r *reader) place(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{Source: r.source}
	}
	return Place{Source: r.source, Line: t.Position.Line, Column: t.Position.Column}
}

func (r *reader) mistake(n ast.Node, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{Place: r.place(n.GetToken()), Text: fmt.Sprintf(format, args...)})
}

func (r *reader) read(n ast.Node, depth int) value {
	at := r.place(n.GetToken())
	r.nodes++
	if depth > maxDepth || r.nodes > maxNodes {
		if r.nodes <= maxNodes+1 {
			r.mistake(n, "nested too deeply, or too large")
		}
		return value{place: at, kind: null}
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return value{place: at, kind: null}
	case *ast.StringNode:
		return value{place: at, text: n.Value}
	case *ast.LiteralNode:
		return value{place: at, text: n.Value.Value}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return value{place: at, text: n.GetToken().Value}
	case *ast.SequenceNode:
		return r.readList(n, depth)
	case *ast.MappingNode:
		return r.readMapping(at, n.Values, depth)
	case *ast.MappingValueNode:
		return r.readMapping(at, []*ast.MappingValueNode{n}, depth)
	default:
		return r.readReference(n, depth)
	}
}

// readReference reads what YAML has for sharing and typing values.
func (r *reader) readReference(n ast.Node, depth int) value {
	at := r.place(n.GetToken())
	switch n := n.(type) {
	case *ast.AnchorNode:
		v := r.read(n.Value, depth+1)
		r.anchors[n.Name.GetToken().Value] = n.Value // after reading: an anchor never holds itself
		return v
	case *ast.AliasNode:
		target, ok := r.anchors[n.Value.GetToken().Value]
		if !ok {
			r.mistake(n, "an alias without an anchor before it")
			return value{place: at, kind: null}
		}
		v := r.read(target, depth+1)
		v.place = at
		return v
	case *ast.TagNode:
		if n.Start.Value == "!!str" {
			return r.read(n.Value, depth+1)
		}
		r.mistake(n, "YAML tags other than !!str are not used here")
	default:
		r.mistake(n, "a %s is not used here", strings.ToLower(n.Type().String()))
	}
	return value{place: at, kind: null}
}

func (r *reader) readList(n *ast.SequenceNode, depth int) value {
	v := value{place: r.place(n.GetToken()), kind: list, items: []value{}}
	for _, item := range n.Values {
		v.items = append(v.items, r.read(item, depth+1).rejoined())
	}
	return v
}

// rejoined undoes a fault of the library: in {brokers: [kafka:9092]} it takes
// the item for a mapping, although a colon without a blank behind it parts
// nothing in YAML.
func (v value) rejoined() value {
	if v.kind != mapping || len(v.members) != 1 {
		return v
	}
	m := v.members[0]
	adjacent := m.place.Line == m.value.place.Line && m.place.Column+len(m.name)+1 == m.value.place.Column
	if m.value.kind != scalar || !adjacent {
		return v
	}
	return value{place: m.place, text: m.name + ":" + m.value.text}
}

func (r *reader) readMapping(at Place, pairs []*ast.MappingValueNode, depth int) value {
	v := value{place: at, kind: mapping}
	seen := map[string]Place{}
	for _, pair := range pairs {
		token := pair.Key.GetToken()
		place := r.place(token)
		switch pair.Key.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		case *ast.MergeKeyNode:
			r.mistake(pair, "merge keys (<<) are not used here; write the keys out")
			continue
		default:
			r.mistake(pair, "a key must be a plain word")
			continue
		}
		if first, ok := seen[token.Value]; ok {
			r.mistakes = append(r.mistakes, Mistake{Place: place, Text: fmt.Sprintf("the key %q is there twice", token.Value), Hint: "the first is at " + first.String()})
			continue
		}
		seen[token.Value] = place
		v.members = append(v.members, member{name: token.Value, place: place, value: r.read(pair.Value, depth+1)})
	}
	return v
}
