package judge

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// value is one column as test_decoding prints it.
type value struct {
	text string
	null bool
}

// insert is one line "table s.t: INSERT: ...".
type insert struct {
	table   string
	columns map[string]value
}

// parseInsert reads one line of test_decoding. Lines of other kinds give false.
func parseInsert(line string) (insert, bool, error) {
	rest, ok := strings.CutPrefix(line, "table ")
	if !ok {
		return insert{}, false, nil
	}
	table, rest, ok := cutTable(rest)
	if !ok {
		return insert{}, false, fmt.Errorf("parsing %.80q: no table name", line)
	}
	rest, ok = strings.CutPrefix(rest, " INSERT: ")
	if !ok {
		return insert{}, false, nil
	}
	columns, err := parseColumns(rest)
	if err != nil {
		return insert{}, false, fmt.Errorf("parsing an insert into %s: %w", table, err)
	}
	return insert{table: table, columns: columns}, true, nil
}

// cutTable takes "schema.table:" with quotes undone from the front.
func cutTable(s string) (table, rest string, ok bool) {
	schema, s, ok := cutName(s, '.')
	if !ok {
		return "", "", false
	}
	name, s, ok := cutName(s, ':')
	return schema + "." + name, s, ok
}

// cutName takes a name that PostgreSQL may have quoted, up to end, which goes.
func cutName(s string, end byte) (name, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		name, rest, ok = strings.Cut(s, string(end))
		return name, rest, ok
	}
	name, rest, ok = cutQuoted(s, '"')
	if !ok || rest == "" || rest[0] != end {
		return "", "", false
	}
	return name, rest[1:], true
}

// cutQuoted takes a text in quotes, in which a quote is written twice.
func cutQuoted(s string, quote byte) (text, rest string, ok bool) {
	var b strings.Builder
	for s = s[1:]; ; {
		end := strings.IndexByte(s, quote)
		if end < 0 {
			return "", "", false
		}
		b.WriteString(s[:end])
		if s = s[end+1:]; s == "" || s[0] != quote {
			return b.String(), s, true
		}
		b.WriteByte(quote)
		s = s[1:]
	}
}

// parseColumns reads name[type]:value with blanks between.
func parseColumns(s string) (map[string]value, error) {
	columns := map[string]value{}
	for s != "" {
		name, rest, ok := cutName(s, '[')
		if !ok {
			return nil, fmt.Errorf("want a column name at %.40q", s)
		}
		rest, ok = skipType(rest)
		if !ok {
			return nil, fmt.Errorf("want the type of column %s", name)
		}
		v, rest, ok := cutValue(rest)
		if !ok {
			return nil, fmt.Errorf("want the value of column %s", name)
		}
		columns[name] = v
		s = strings.TrimPrefix(rest, " ")
	}
	return columns, nil
}

// skipType goes behind "type]:"; an array's type has brackets itself.
func skipType(s string) (rest string, ok bool) {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		}
		if depth == 0 {
			return strings.CutPrefix(s[i+1:], ":")
		}
	}
	return "", false
}

func cutValue(s string) (v value, rest string, ok bool) {
	if strings.HasPrefix(s, "'") {
		text, rest, ok := cutQuoted(s, '\'')
		return value{text: text}, rest, ok
	}
	if strings.HasPrefix(s, "B'") {
		text, rest, ok := cutQuoted(s[1:], '\'')
		return value{text: text}, rest, ok
	}
	word, rest, _ := strings.Cut(s, " ")
	if word == "null" {
		return value{null: true}, rest, true
	}
	return value{text: strings.Clone(word)}, rest, word != "" // not the whole line in memory for a number
}

// bytes gives what a record's value must be: nil for null, the bytes of a
// bytea, the text of anything else.
func (v value) bytes() ([]byte, error) {
	if v.null {
		return nil, nil
	}
	digits, ok := strings.CutPrefix(v.text, `\x`)
	if !ok {
		return []byte(v.text), nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return nil, fmt.Errorf("reading a bytea: %w", err)
	}
	return b, nil
}
