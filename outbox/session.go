package outbox

import (
	"fmt"
	"strconv"
)

// PinnedSettings returns the server settings that every connection of the
// relay names in its start packet, so that role and database defaults cannot
// leak into what we read or how durable our writes are:
//
//   - the text forms of values (pgoutput's text follows the session);
//   - client_min_messages, because PostgreSQL 18 says only by a warning that
//     it skipped a missing publication;
//   - synchronous_commit, because with "off" a FAILED that we had confirmed
//     was lost in every crash tried;
//   - time-outs that would end an idle connection of ours; PinLate has one
//     more.
//
// The caller may change the returned map; each call makes a new one.
func PinnedSettings() map[string]string {
	return map[string]string{
		"client_encoding":                     "UTF8",
		"datestyle":                           "ISO",
		"timezone":                            "UTC",
		"intervalstyle":                       "postgres",
		"bytea_output":                        "hex",
		"extra_float_digits":                  "3",
		"client_min_messages":                 "warning",
		"synchronous_commit":                  "on",
		"idle_session_timeout":                "0",
		"default_transaction_isolation":       "read committed",
		"row_security":                        "off",
		"search_path":                         "pg_catalog",
		"standard_conforming_strings":         "on",
		"idle_in_transaction_session_timeout": "0",
		"lock_timeout":                        "0",
		"statement_timeout":                   "0",
	}
}

// PinLate pins what a start packet cannot name, since servers that do not know
// the setting refuse the packet. version is server_version as the server
// reports it; exec runs one statement. Every connection of the relay calls it
// before anything else.
//
// Since 17 a transaction_timeout of the role or the database ends transactions,
// and a walsender counts as one while it decodes.
func PinLate(version string, exec func(sql string) error) error {
	if majorOf(version) < 17 {
		return nil
	}
	if err := exec("set transaction_timeout = 0"); err != nil {
		return fmt.Errorf("pinning settings: %w", err)
	}
	return nil
}

// majorOf reads the leading number of a version such as "15.8 (Debian)"; 0 of
// an unknown one.
func majorOf(version string) int {
	end := 0
	for end < len(version) && version[end] >= '0' && version[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(version[:end]) // no digits: 0
	return n
}
