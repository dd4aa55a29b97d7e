package judge

import (
	"testing"
)

// Law: an insert is read back column by column, whatever its names, types and
// texts hold.
func TestParseInsert(t *testing.T) {
	t.Parallel()
	line := `table public."out.box ""x": INSERT: id[bigint]:7 "a ] col"[character varying]:'it''s [x]:y null' ` +
		`tags[text[]]:'{a,b}' n[numeric]:-1.50 ok[boolean]:true bits[bit]:B'101' payload[bytea]:'\x00ff' none[text]:null empty[text]:''`
	in, ok, err := parseInsert(line)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if in.table != `public.out.box "x` {
		t.Errorf("table %s", in.table)
	}
	for name, want := range map[string]value{
		"id": {text: "7"}, "a ] col": {text: "it's [x]:y null"}, "tags": {text: "{a,b}"}, "n": {text: "-1.50"},
		"ok": {text: "true"}, "bits": {text: "101"}, "payload": {text: `\x00ff`}, "none": {null: true}, "empty": {},
	} {
		if got := in.columns[name]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if b, err := in.columns["payload"].bytes(); err != nil || string(b) != "\x00\xff" {
		t.Errorf("payload %x, %v", b, err)
	}
}

// Law: lines that are no inserts are passed over, broken ones are errors.
func TestParseOtherLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"BEGIN", "COMMIT 5", "table public.x: UPDATE: id[bigint]:1", "table public.x: TRUNCATE: (no-flags)",
		"message: transactional: 1 prefix: table public.outbox: INSERT: , sz: 1 content:x",
	} {
		if _, ok, err := parseInsert(line); ok || err != nil {
			t.Errorf("%s: %v %v", line, ok, err)
		}
	}
	for _, line := range []string{
		"table public.x: INSERT: id", "table public.x: INSERT: id[bigint", "table public.x: INSERT: id[text]:'open", "table nothing",
	} {
		if _, ok, err := parseInsert(line); ok || err == nil {
			t.Errorf("%s: %v %v", line, ok, err)
		}
	}
}
