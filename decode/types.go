package decode

import (
	"fmt"
	"slices"
)

// form is how a column's bytes are read. It follows from the type's OID,
// which is fixed for built-in types (pg_type.dat).
type form uint8

const (
	formOpaque form = iota // not built in, or not known here: text only
	formArray              // refused everywhere
	formText
	formJSON
	formJSONB
	formBytea
	formBool
	formInt2
	formInt4
	formInt8
	formUUID
	formNumeric
	formDate
	formTimestamp
	formTimestamptz
)

// builtinForms holds the scalar types that are read in both formats.
var builtinForms = map[uint32]form{
	16:   formBool,
	17:   formBytea,
	19:   formText, // name
	20:   formInt8,
	21:   formInt2,
	23:   formInt4,
	25:   formText,
	114:  formJSON,
	1042: formText, // bpchar; its blanks stay, as the server prints them
	1043: formText, // varchar
	1082: formDate,
	1114: formTimestamp,
	1184: formTimestamptz,
	1700: formNumeric,
	2950: formUUID,
	3802: formJSONB,
}

// builtinArrays are the array types of all built-in scalar types, in rising
// order; they are the same in 14 and 18. Arrays of user-defined types have
// OIDs that say nothing; they pass as opaque.
var builtinArrays = []uint32{
	143, 199, 271, 629, 651, 719, 775, 791, 1000, 1001, 1002, 1003, 1005, 1006, 1007, 1008,
	1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016, 1017, 1018, 1019, 1020, 1021, 1022, 1027, 1028,
	1034, 1040, 1041, 1115, 1182, 1183, 1185, 1187, 1231, 1270, 1561, 1563, 2201, 2207, 2208, 2209,
	2210, 2211, 2949, 2951, 3221, 3643, 3644, 3645, 3735, 3770, 3807, 3905, 3907, 3909, 3911, 3913,
	3927, 4073, 4090, 4097, 4192, 5039, 6150, 6151, 6152, 6153, 6155, 6157,
}

func formOf(oid uint32) form {
	if _, found := slices.BinarySearch(builtinArrays, oid); found {
		return formArray
	}
	return builtinForms[oid]
}

// acceptance is the set of forms that a field can be read from, with the
// words that name them.
type acceptance struct {
	forms uint32 // bit per form
	words string
}

func accept(words string, forms ...form) acceptance {
	a := acceptance{words: words}
	for _, f := range forms {
		a.forms |= 1 << f
	}
	return a
}

// Unknown types are taken where their text is what is wanted: an enum or a
// domain over text prints as itself. They are not taken for payload, headers
// and times, where the text of, say, a domain over bytea would go out as the
// characters \x7b22.
var (
	acceptText    = accept("text, varchar, char, name or an enum", formText, formOpaque)
	acceptEventID = accept("uuid or text", formUUID, formText, formOpaque)
	acceptScalar  = accept("a text, integer, uuid, numeric, boolean, date or timestamp type",
		formText, formOpaque, formBool, formInt2, formInt4, formInt8, formUUID, formNumeric,
		formDate, formTimestamp, formTimestamptz)
	acceptPayload = accept("bytea, json, jsonb, text or varchar", formBytea, formJSON, formJSONB, formText)
	acceptHeaders = accept("jsonb, json or text", formJSONB, formJSON, formText)
	acceptTime    = accept("timestamptz or timestamp", formTimestamptz, formTimestamp)
	acceptStatus  = accept("smallint, integer or bigint", formInt2, formInt4, formInt8)
)

// refuse gives the reason why a column of this form cannot serve, or "".
func (a acceptance) refuse(f form, oid uint32) string {
	switch {
	case f == formArray:
		return "it is an array, and a field of an event is one value"
	case a.forms&(1<<f) != 0:
		return ""
	case f == formOpaque:
		return fmt.Sprintf("its type (OID %d) is not built in, or cannot be read as this field", oid)
	default:
		return "its type is " + f.String() + ", which cannot be read as this field"
	}
}

func (a acceptance) hint(f form) string {
	if f == formArray {
		return "map a column of type " + a.words + " instead, for example one that holds the array as JSON"
	}
	return "map a column of type " + a.words + " instead, or change the column's type"
}

// String names the form's type as SQL does.
func (f form) String() string {
	switch f {
	case formArray:
		return "an array"
	case formText:
		return "text"
	case formJSON:
		return "json"
	case formJSONB:
		return "jsonb"
	case formBytea:
		return "bytea"
	case formBool:
		return "boolean"
	case formInt2:
		return "smallint"
	case formInt4:
		return "integer"
	case formInt8:
		return "bigint"
	case formUUID:
		return "uuid"
	case formNumeric:
		return "numeric"
	case formDate:
		return "date"
	case formTimestamp:
		return "timestamp"
	case formTimestamptz:
		return "timestamptz"
	default:
		return "a type that is not built in"
	}
}
