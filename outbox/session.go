package outbox

import "strconv"

// PinnedSettings returns the server settings that every connection of the
// relay names in its start packet, so that role and database defaults cannot
// leak into what we read or how durable our writes are:
//
//   - the text forms of values (pgoutput's text follows the session);
//   - client_min_messages, because PostgreSQL 18 says only by a warning that
//     it skipped a missing publication;
//   - synchronous_commit, because with "off" a FAILED that we had confirmed
//     was lost in every crash tried;
//   - time-outs that would end an idle connection of ours; LateSettings has
//     one more.
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

// LateSettings gives the statement that pins what a start packet cannot, since
// servers that do not know the setting refuse the packet; "" for none. version
// is server_version as the server reports it. Every connection of the relay
// runs it before anything else.
//
// Since 17 a transaction_timeout of the role or the database ends transactions,
// and a walsender counts as one while it decodes.
func LateSettings(version string) string {
	if majorOf(version) < 17 {
		return ""
	}
	return "set transaction_timeout = 0"
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
