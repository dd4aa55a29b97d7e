package store

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Law: a cleaned text is valid, short enough, free of control characters, and
// within the encoding; a text that was clean stays as it is.
func TestCleanIsStorable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, encoding, want string }{
		{"plain", "SQL_ASCII", "plain"}, {"a\x00b\nc\td", "UTF8", "a?b c d"}, {"错误 é", "UTF8", "错误 é"},
		{"错误 é", "LATIN1", "?? é"}, {"错误 é", "WIN1252", "?? ?"}, {"\x80\xff", "UTF8", "??"}, {"\u0085\u200b", "LATIN1", " ?"},
		{strings.Repeat("é", 2000), "UTF8", strings.Repeat("é", 1024)}, {strings.Repeat("a", 2047) + "é", "UTF8", strings.Repeat("a", 2047)},
	} {
		if got := clean(c.in, c.encoding, detailBytes); got != c.want {
			t.Errorf("clean(%q, %s) = %q, want %q", c.in, c.encoding, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		encoding := rapid.SampledFrom([]string{"UTF8", "LATIN1", "EUC_JP"}).Draw(t, "encoding")
		in := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "in")
		limit := rapid.IntRange(0, 64).Draw(t, "limit")
		out := clean(in, encoding, limit)
		if !utf8.ValidString(out) || len(out) > limit || strings.ContainsFunc(out, func(r rune) bool { return r < ' ' || !storable(r, encoding) }) {
			t.Fatalf("clean(%q, %s, %d) = %q", in, encoding, limit, out)
		}
		if again := clean(out, encoding, limit); again != out {
			t.Fatalf("cleaning %q again gives %q", out, again)
		}
	})
}

// Law: address reads what encoding/json reads, and nothing else; the short
// way for one column agrees with the parser.
func TestAddressAgreesWithJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 3).Draw(t, "columns")
		table := Table{Key: make([]Column, columns)}
		key := rapid.OneOf(
			rapid.StringMatching(`\["[a-z"\\,\[\] 0-9]{0,6}"\]`), rapid.StringMatching(`.{0,8}`),
			rapid.Map(rapid.SliceOfN(rapid.String(), 0, 3), func(s []string) string { b, _ := json.Marshal(s); return string(b) }),
		).Draw(t, "key")
		got, ok := table.address(key)
		var want []string
		valid := json.Unmarshal([]byte(key), &want) == nil && len(want) == columns
		if ok != valid {
			t.Fatalf("address(%q) for %d columns: %v, JSON says %v", key, columns, ok, valid)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("address(%q) = %q, want %q", key, got, want)
			}
		}
	})
}

// Law: two pairs of topic and key never share a hash by where they are split.
func TestOrderHashKeepsPairsApart(t *testing.T) {
	t.Parallel()
	if string(OrderHash("ab", []byte("c"))) == string(OrderHash("a", []byte("bc"))) || string(OrderHash("a", nil)) == string(OrderHash("", []byte("a"))) {
		t.Error("the split between topic and key is lost")
	}
}
