package travel

const (
	doneBranch   = 1 << 0 // not branch 0: u64 follows
	doneNumbered = 1 << 1 // carries a transfer number: acknowledge it
	doneFinal    = 1 << 2 // also accepts and releases this transfer of yours
	doneError    = 1 << 3
	doneSent     = 1 << 4 // parts or lists were sent ahead
	doneForks    = 1 << 5
	doneHolds    = 1 << 6 // something is kept here: FREE it
	doneResult   = 1 << 7 // the rest is the reply
)

// doneMsg is DONE: flags, u40 seq, then what the flags say, in their order.
type doneMsg struct {
	flags        uint8
	seq          uint64
	branch       uint64
	transfer     uint64 // 24 bits
	final        uint64 // 24 bits
	code         Code
	status       int32
	element      []byte
	function     []byte
	text         []byte
	parts, lists uint32
	forks        []byte // u64 each
	result       []byte

	settled bool // not on the wire: nothing of the branch is left where it ended
}

func (m *doneMsg) append(b []byte, forks []uint64) []byte {
	b = append(b, m.flags)
	b = appendU40(b, m.seq)
	if m.flags&doneBranch != 0 {
		b = le.AppendUint64(b, m.branch)
	}
	if m.flags&doneNumbered != 0 {
		b = appendU24(b, m.transfer)
	}
	if m.flags&doneFinal != 0 {
		b = appendU24(b, m.final)
	}
	if m.flags&doneError != 0 {
		b = append(b, byte(m.code))
		b = le.AppendUint32(b, uint32(m.status))
		b = append(append(b, byte(len(m.element))), m.element...)
		b = append(append(b, byte(len(m.function))), m.function...)
		b = append(le.AppendUint16(b, uint16(len(m.text))), m.text...)
	}
	if m.flags&doneSent != 0 {
		b = le.AppendUint32(b, m.parts)
		b = le.AppendUint32(b, m.lists)
	}
	if m.flags&doneForks != 0 {
		b = le.AppendUint16(b, uint16(len(forks)))
		for _, f := range forks {
			b = le.AppendUint64(b, f)
		}
	}
	return b // the result follows as the message's body
}

// reader takes fields off a message; after the first that is missing it gives
// zeroes and bad is true.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.b, r.bad = nil, true
		return zeroes[:min(n, len(zeroes))]
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

var zeroes [64]byte

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return le.Uint16(r.take(2)) }
func (r *reader) u24() uint64 { return getU24(r.take(3)) }
func (r *reader) u32() uint32 { return le.Uint32(r.take(4)) }
func (r *reader) u40() uint64 { return getU40(r.take(5)) }
func (r *reader) u64() uint64 { return le.Uint64(r.take(8)) }

// branch reads an explicit branch, which must not be 0.
func (r *reader) branch() uint64 {
	v := r.u64()
	r.bad = r.bad || v == 0
	return v
}

// decode reads m, which is zero, from b.
func (m *doneMsg) decode(b []byte) error {
	if len(b) >= 9 && b[0]&^doneResult == doneFinal { // the cached one-hop case
		m.flags, m.seq, m.final = b[0], getU40(b[1:]), getU24(b[6:])
		if m.flags&doneResult != 0 {
			m.result = b[9:]
		} else if len(b) > 9 {
			return malformed(KindDone, "%d bytes follow that no flag announces", len(b)-9)
		}
		return nil
	}
	r := reader{b: b}
	*m = doneMsg{flags: r.u8(), seq: r.u40()}
	if m.flags&doneBranch != 0 {
		m.branch = r.branch()
	}
	if m.flags&doneNumbered != 0 {
		m.transfer = r.u24()
	}
	if m.flags&doneFinal != 0 {
		m.final = r.u24()
	}
	if m.flags&(doneError|doneSent|doneForks) != 0 {
		m.decodeRest(&r)
	}
	if r.bad {
		return malformed(KindDone, "%d bytes with flags %#x do not parse", len(b), m.flags)
	}
	if m.flags&(doneNumbered|doneFinal) == doneNumbered|doneFinal {
		return malformed(KindDone, "both numbered and final")
	}
	if m.flags&doneResult != 0 {
		m.result = r.b
	} else if len(r.b) > 0 {
		return malformed(KindDone, "%d bytes follow that no flag announces", len(r.b))
	}
	return nil
}

func (m *doneMsg) decodeRest(r *reader) {
	if m.flags&doneError != 0 {
		m.code, m.status = Code(r.u8()), int32(r.u32())
		m.element = r.take(int(r.u8()))
		m.function = r.take(int(r.u8()))
		n := int(r.u16())
		m.text = r.take(n)
		r.bad = r.bad || m.code == CodeOK || m.code >= codeCount || n > maxText
	}
	if m.flags&doneSent != 0 {
		m.parts, m.lists = r.u32(), r.u32()
		r.bad = r.bad || m.parts|m.lists == 0
	}
	if m.flags&doneForks != 0 {
		n := int(r.u16())
		m.forks = r.take(8 * n)
		r.bad = r.bad || n == 0 || n > listForks
	}
}

// partMsg is PART and LIST: flags, u24 transfer, u40 seq, [branch], u32 index,
// then the data; a LIST's is u64 each.
type partMsg struct {
	transfer uint64
	seq      uint64
	branch   uint64
	index    uint32
	data     []byte
}

func (m *partMsg) append(b []byte) []byte {
	flags := byte(0)
	if m.branch != 0 {
		flags = doneBranch
	}
	b = append(b, flags)
	b = appendU24(b, m.transfer)
	b = appendU40(b, m.seq)
	if m.branch != 0 {
		b = le.AppendUint64(b, m.branch)
	}
	return le.AppendUint32(b, m.index)
}

func (m *partMsg) decode(k Kind, b []byte) error {
	r := reader{b: b}
	flags := r.u8()
	*m = partMsg{transfer: r.u24(), seq: r.u40()}
	if flags&doneBranch != 0 {
		m.branch = r.branch()
	}
	m.index = r.u32()
	m.data = r.b
	if r.bad || flags&^doneBranch != 0 {
		return malformed(k, "%d bytes with flags %#x do not parse", len(b), flags)
	}
	if k == KindList && (len(m.data) == 0 || len(m.data)%8 != 0 || len(m.data) > 8*listForks || m.index >= maxLists) {
		return malformed(k, "list %d has %d bytes", m.index, len(m.data))
	}
	return nil
}

// lostMsg is LOST: flags, code, u40 seq, [branch], [u24 transfer], u64
// incarnation of the lost element, its name, and text.
type lostMsg struct {
	numbered    bool
	mayHaveRun  bool
	code        Code
	seq         uint64
	branch      uint64
	transfer    uint64
	incarnation uint64
	name        []byte
	text        []byte
}

const lostMayHaveRun = doneFinal // the bit is free in LOST

func (m *lostMsg) append(b []byte) []byte {
	flags := byte(0)
	if m.branch != 0 {
		flags |= doneBranch
	}
	if m.numbered {
		flags |= doneNumbered
	}
	if m.mayHaveRun {
		flags |= lostMayHaveRun
	}
	b = append(b, flags, byte(m.code))
	b = appendU40(b, m.seq)
	if m.branch != 0 {
		b = le.AppendUint64(b, m.branch)
	}
	if m.numbered {
		b = appendU24(b, m.transfer)
	}
	b = le.AppendUint64(b, m.incarnation)
	b = append(append(b, byte(len(m.name))), m.name...)
	return append(b, m.text...)
}

func (m *lostMsg) decode(b []byte) error {
	r := reader{b: b}
	flags, code := r.u8(), Code(r.u8())
	*m = lostMsg{code: code, seq: r.u40(), numbered: flags&doneNumbered != 0, mayHaveRun: flags&lostMayHaveRun != 0}
	if flags&doneBranch != 0 {
		m.branch = r.branch()
	}
	if m.numbered {
		m.transfer = r.u24()
	}
	m.incarnation = r.u64()
	m.name = r.take(int(r.u8()))
	m.text = r.b
	if r.bad || flags&^(doneBranch|doneNumbered|lostMayHaveRun) != 0 || m.code == CodeOK || m.code >= codeCount || len(m.text) > maxText {
		return malformed(KindLost, "%d bytes with flags %#x do not parse", len(b), flags)
	}
	return nil
}
