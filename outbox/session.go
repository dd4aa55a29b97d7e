package outbox

// PinnedSettings returns the server settings that every connection of the
// relay names in its start packet, so that role and database defaults cannot
// leak into what we read or how durable our writes are:
//
//   - the text forms of values (pgoutput's text follows the session);
//   - client_min_messages, because PostgreSQL 18 says only by a warning that
//     it skipped a missing publication;
//   - synchronous_commit, because with "off" a FAILED that we had confirmed
//     was lost in every crash tried;
//   - time-outs that would end an idle connection of ours.
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
