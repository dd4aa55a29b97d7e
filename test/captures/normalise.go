package main

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The kinds of field that differ from run to run.
const (
	fieldLSN = iota
	fieldTime
	fieldXID
	fieldOID
	fieldKinds
)

// firstUserOID is the first that is not built in (access/transam.h).
const firstUserOID = 16384

// A field's n-th distinct value, in rising order, becomes first + n*step.
var renumber = [fieldKinds]struct{ first, step uint64 }{
	fieldLSN:  {0x1000000, 0x100},
	fieldTime: {820540800_000000, 1000000}, // 2026-01-01, counted from 2000-01-01
	fieldXID:  {1000, 1},
	fieldOID:  {firstUserOID, 1},
}

// normalise replaces in place, by rank, what differs from run to run.
func normalise(frames [][]byte) {
	var values [fieldKinds][]uint64
	for _, frame := range frames {
		visit(frame, func(kind int, field []byte) { values[kind] = append(values[kind], read(field)) })
	}
	for kind := range values {
		slices.Sort(values[kind])
		values[kind] = slices.Compact(values[kind])
	}
	for _, frame := range frames {
		visit(frame, func(kind int, field []byte) {
			rank, _ := slices.BinarySearch(values[kind], read(field))
			put(field, renumber[kind].first+uint64(rank)*renumber[kind].step)
		})
	}
}

// visit shows each such field of a message, by its place in the formats of
// protocol version 1.
func visit(frame []byte, show func(kind int, field []byte)) {
	switch frame[0] {
	case 'B':
		show(fieldLSN, frame[1:9])
		show(fieldTime, frame[9:17])
		show(fieldXID, frame[17:21])
	case 'C':
		show(fieldLSN, frame[2:10])
		show(fieldLSN, frame[10:18])
		show(fieldTime, frame[18:26])
	case 'M':
		show(fieldLSN, frame[2:10])
	case 'I', 'U', 'D', 'Y':
		show(fieldOID, frame[1:5])
	case 'T':
		for oids := frame[6:]; len(oids) > 0; oids = oids[4:] {
			show(fieldOID, oids[:4])
		}
	case 'R':
		visitRelation(frame, show)
	}
}

func visitRelation(frame []byte, show func(kind int, field []byte)) {
	show(fieldOID, frame[1:5])
	rest := afterZero(afterZero(frame[5:]))[3:] // replica identity, number of columns
	for len(rest) > 0 {
		rest = afterZero(rest[1:])
		if read(rest[:4]) >= firstUserOID {
			show(fieldOID, rest[:4])
		}
		rest = rest[8:]
	}
}

func afterZero(b []byte) []byte { return b[bytes.IndexByte(b, 0)+1:] }

func read(field []byte) uint64 {
	if len(field) == 4 {
		return uint64(binary.BigEndian.Uint32(field))
	}
	return binary.BigEndian.Uint64(field)
}

func put(field []byte, value uint64) {
	if len(field) == 4 {
		binary.BigEndian.PutUint32(field, uint32(value))
		return
	}
	binary.BigEndian.PutUint64(field, value)
}
