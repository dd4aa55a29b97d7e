package cdc

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// maxIdentifierBytes is NAMEDATALEN - 1; the server cuts longer names
// silently.
const maxIdentifierBytes = 63

// CheckSlotName says whether PostgreSQL accepts the name for a slot.
func CheckSlotName(name string) error {
	if slotName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("slot name %q: only a-z, 0-9 and _ are allowed, 1 to 63 of them", name)
}

// checkIdentifier refuses names that no quoting can carry.
func checkIdentifier(what, name string) error {
	switch {
	case name == "":
		return errors.New(what + " name is empty")
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%s name %q contains a NUL", what, name)
	case len(name) > maxIdentifierBytes:
		return fmt.Errorf("%s name %q is longer than %d bytes; the server would cut it", what, name, maxIdentifierBytes)
	default:
		return nil
	}
}

// QuoteIdentifier quotes a name so that SQL takes it as it is.
func QuoteIdentifier(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// quoteTable quotes a schema-qualified name.
func quoteTable(schema, table string) string {
	return QuoteIdentifier(schema) + "." + QuoteIdentifier(table)
}

// quoteLiteral quotes a string constant. Backslashes are themselves under
// standard_conforming_strings (pinned) and in replication commands.
func quoteLiteral(s string) string {
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
