package store

import (
	"fmt"
	"strings"
)

// Names of the prepared statements against the outbox. They are prepared by
// name, because what they refer to is the application's: preparing them may
// fail, and then only the statuses wait.
const (
	stmtShowAll    = "outbox_show_all"   // waits for a row that somebody else holds; fails unless it shows all
	stmtRemoveAll  = "outbox_remove_all" // likewise
	stmtShowFree   = "outbox_show_free"
	stmtRemoveFree = "outbox_remove_free"
	stmtClassify   = "outbox_classify"
	stmtPresent    = "outbox_present"
	stmtLookup     = "outbox_lookup"
)

// statements builds the SQL against the outbox, by name. All of them take the
// key columns as one text array each, then the event ids where the table has
// them, and answer with the place (from 1) in those arrays.
//
// The keys' texts are cast to the columns' types, never the columns to text:
// so the primary key serves, and a char(5) compares as one. The event id is
// compared with IS NOT DISTINCT FROM, which no index can serve: otherwise the
// planner is free to walk the event ids' index, and theirs is the random one.
func (t Table) statements() map[string]string {
	var (
		names, source, join, same, back []string
		n                               = 0
	)
	param := func(typ string) string { n++; return fmt.Sprintf("$%d::%s", n, typ) }
	for i, c := range t.Key {
		k := fmt.Sprintf("c%d", i)
		names, source = append(names, k), append(source, param("text[]"))
		join = append(join, fmt.Sprintf("o.%s = k.%s::%s", ident(c.Name), k, c.Type))
		back = append(back, fmt.Sprintf("u.%s = l.%s", ident(c.Name), k))
	}
	keyColumns := make([]string, len(t.Key))
	for i, c := range t.Key {
		keyColumns[i] = fmt.Sprintf("o.%s as c%d", ident(c.Name), i)
	}
	if t.EventID != "" {
		names, source = append(names, "eid"), append(source, param("text[]"))
		same = append(same, fmt.Sprintf("o.%s is not distinct from k.eid::%s", ident(t.EventID), t.eventIDType))
	} else {
		same = append(same, "true")
	}
	from := fmt.Sprintf("unnest(%s) with ordinality as k (%s, n)", strings.Join(source, ", "), strings.Join(names, ", "))
	asked := fmt.Sprintf("from %s join %s o on %s", from, t.quoted(), strings.Join(join, " and "))
	q := query{
		table: t.quoted(), from: from, on: strings.Join(join, " and "), asked: asked, same: strings.Join(same, " and "),
		keys: strings.Join(keyColumns, ", "), back: strings.Join(back, " and "), params: n,
	}
	byName := map[string]string{
		stmtRemoveAll:  q.removeAll(t.Status),
		stmtRemoveFree: q.removeFree(t.Status),
		stmtClassify:   q.classify(t.Status),
		stmtPresent:    fmt.Sprintf("select k.n::int4 %s", asked),
	}
	if t.Status != "" {
		byName[stmtShowAll] = q.showAll(t.Status, t.SentAt)
		byName[stmtShowFree] = q.showFree(t.Status, t.SentAt)
		byName[stmtLookup] = fmt.Sprintf("select k.n::int4 %s where %s and o.%s in (2, 4, 5)", asked, q.same, ident(t.Status))
	}
	return byName
}

// query holds the parts that the statements share.
type query struct {
	table, from, on, asked, same, keys, back string
	params                                   int // how many the parts use
}

// locked selects the asked rows that nobody else holds, in a state that may
// be left. The lock is one that foreign keys to the outbox do not mind.
func (q query) locked(states, strength string) string {
	return fmt.Sprintf("with l as materialized (select k.n, %s %s where %s%s %s of o skip locked)", q.keys, q.asked, q.same, states, strength)
}

// showAll takes the status to show, the states that may be left, and how many
// rows must be shown: it raises an error unless they are. It costs half of
// showFree, which writes each row twice: once to lock it.
func (q query) showAll(status, sentAt string) string {
	return all(q.params+3, fmt.Sprintf("update %s o set %s from %s where %s and %s and o.%s = any($%d::int2[])",
		q.table, q.set("o", status, sentAt), q.from, q.on, q.same, ident(status), q.params+2))
}

// all makes a statement fail unless it wrote as many rows as the parameter n
// says. The text is for whoever reads the server's log.
func all(n int, write string) string {
	return fmt.Sprintf("with w as (%s returning 1) select case count(*) when $%d::int8 then 0 else "+
		"('outbox-relay: ' || count(*) || ' rows were ready and free, now one by one')::int end from w", write, n)
}

// showFree shows the rows that nobody else holds, and answers with their places.
func (q query) showFree(status, sentAt string) string {
	return fmt.Sprintf("%s update %s u set %s from l where %s and u.%s = any($%d::int2[]) returning l.n::int4",
		q.locked(fmt.Sprintf(" and o.%s = any($%d::int2[])", ident(status), q.params+2), "for no key update"),
		q.table, q.set("u", status, sentAt), q.back, ident(status), q.params+2)
}

func (q query) set(row, status, sentAt string) string {
	set := fmt.Sprintf("%s = $%d::int2", ident(status), q.params+1)
	if sentAt != "" {
		set += fmt.Sprintf(", %s = case when $%d::int2 = 2 then now() else %s.%s end", ident(sentAt), q.params+1, row, ident(sentAt))
	}
	return set
}

// removeAll takes the states that may be left, and how many rows must go; where
// the table has no status, any row may go.
func (q query) removeAll(status string) string {
	return all(q.params+2, fmt.Sprintf("delete from %s o using %s where %s and %s%s", q.table, q.from, q.on, q.same, q.inState("o", status)))
}

// removeFree removes the rows that nobody else holds, and answers with their
// places.
func (q query) removeFree(status string) string {
	again := ""
	if status != "" {
		again = q.inState("u", status)
	}
	return fmt.Sprintf("%s delete from %s u using l where %s%s returning l.n::int4",
		q.locked(q.inState("o", status), "for update"), q.table, q.back, again)
}

func (q query) inState(row, status string) string {
	if status == "" {
		return fmt.Sprintf(" and $%d::int2[] is not null", q.params+1)
	}
	return fmt.Sprintf(" and %s.%s = any($%d::int2[])", row, ident(status), q.params+1)
}

// classify locks what it can of the asked rows and tells their state and
// whether they are still the rows of the asked events.
func (q query) classify(status string) string {
	state := "null::int2"
	if status != "" {
		state = "o." + ident(status) + "::int2"
	}
	return fmt.Sprintf("select k.n::int4, %s, (%s) %s for no key update of o skip locked", state, q.same, q.asked)
}
