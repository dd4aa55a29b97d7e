package decode

// Parse reads one pgoutput message of protocol version 1 into m. It returns a
// *KindError for a kind that it refuses and a *FormatError for bytes that do
// not form the message they claim to be; then m holds nothing of use.
//
// It never panics, takes time linear in len(data), and allocates nothing for
// Begin, Commit and Insert once m's slices have grown. m aliases data; see
// Message.
func Parse(data []byte, m *Message) error {
	m.Kind = 0
	if len(data) == 0 {
		return &FormatError{Reason: "it is empty"}
	}
	kind := Kind(data[0])
	r := reader{data: data, at: 1}
	if !parseBody(&r, kind, m) {
		return &KindError{Kind: kind}
	}
	if r.ok() && r.left() > 0 {
		r.fail("bytes follow its end")
	}
	if !r.ok() {
		return &FormatError{Kind: kind, Offset: r.at, Reason: r.failed}
	}
	m.Kind = kind
	return nil
}

// parseBody says whether it knows the kind.
func parseBody(r *reader, kind Kind, m *Message) bool {
	switch kind {
	case KindInsert:
		parseInsert(r, &m.Insert)
	case KindBegin:
		m.Begin = Begin{FinalLSN: r.lsn(), CommitTime: r.time(), XID: r.uint32()}
	case KindCommit:
		parseCommit(r, &m.Commit)
	case KindRelation:
		m.Relation = parseRelation(r)
	case KindType:
		m.Type = Type{OID: r.uint32(), Namespace: r.string(), Name: r.string()}
	case KindOrigin:
		m.Origin = Origin{CommitLSN: r.lsn(), Name: r.string()}
	case KindUpdate:
		parseUpdate(r, &m.Update)
	case KindDelete:
		parseDelete(r, &m.Delete)
	case KindTruncate:
		parseTruncate(r, &m.Truncate)
	case KindLogical:
		parseLogical(r, &m.Logical)
	default:
		return false
	}
	return true
}

func parseCommit(r *reader, c *Commit) {
	*c = Commit{Flags: r.byte(), CommitLSN: r.lsn(), EndLSN: r.lsn(), CommitTime: r.time()}
	if c.Flags != 0 {
		// The server's own subscriber refuses them too: a flag could
		// change what the commit means.
		r.fail("its flags are not known")
	}
}

// minColumnBytes is a column without a name: flags, the name's end, type and
// modifier.
const minColumnBytes = 1 + 1 + 4 + 4

func parseRelation(r *reader) *Relation {
	rel := &Relation{OID: r.uint32(), Namespace: r.string(), Name: r.string(), ReplicaIdentity: r.byte()}
	n := r.count(int(int16(r.uint16())), minColumnBytes)
	rel.Columns = make([]RelationColumn, n)
	for i := range rel.Columns {
		rel.Columns[i] = RelationColumn{
			Key:          r.byte()&1 != 0,
			Name:         r.string(),
			TypeOID:      r.uint32(),
			TypeModifier: int32(r.uint32()),
		}
	}
	return rel
}

func parseInsert(r *reader, in *Insert) {
	in.RelationOID = r.uint32()
	if r.byte() != 'N' {
		r.fail("the new row is missing")
	}
	in.Columns = parseTuple(r, in.Columns)
}

func parseUpdate(r *reader, u *Update) {
	u.RelationOID = r.uint32()
	u.OldKind, u.Old = 0, u.Old[:0]
	tag := r.byte()
	if tag == 'K' || tag == 'O' {
		u.OldKind = tag
		u.Old = parseTuple(r, u.Old)
		tag = r.byte()
	}
	if tag != 'N' {
		r.fail("the new row is missing")
	}
	u.New = parseTuple(r, u.New)
}

func parseDelete(r *reader, d *Delete) {
	d.RelationOID = r.uint32()
	d.OldKind = r.byte()
	if d.OldKind != 'K' && d.OldKind != 'O' {
		r.fail("the old row is missing")
	}
	d.Old = parseTuple(r, d.Old)
}

// parseTuple reads one row into columns, whose memory it uses again.
func parseTuple(r *reader, columns []Column) []Column {
	columns = columns[:0]
	n := r.count(int(int16(r.uint16())), 1)
	for range n {
		c := Column{Format: r.byte()}
		switch c.Format {
		case FormatText, FormatBinary:
			c.Data = r.take(int(int32(r.uint32())))
		case FormatNull, FormatUnchanged:
		default:
			r.fail("a column's format is not known")
		}
		if !r.ok() {
			return columns
		}
		columns = append(columns, c)
	}
	return columns
}

func parseTruncate(r *reader, t *Truncate) {
	n := int(int32(r.uint32()))
	options := r.byte()
	t.Cascade, t.RestartIdentity = options&1 != 0, options&2 != 0
	t.RelationOIDs = t.RelationOIDs[:0]
	for range r.count(n, 4) {
		t.RelationOIDs = append(t.RelationOIDs, r.uint32())
	}
}

func parseLogical(r *reader, l *LogicalMessage) {
	*l = LogicalMessage{Transactional: r.byte()&1 != 0, LSN: r.lsn(), Prefix: r.string()}
	l.Content = r.take(int(int32(r.uint32())))
}
