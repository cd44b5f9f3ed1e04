package travel

// span is a range of transfer numbers.
type span struct {
	first uint64
	n     uint16
}

const (
	// maxSpans is how many ranges one ACK holds (a count is one byte).
	maxSpans  = 255
	spanBytes = 5
)

// ackMsg is ACK: u24 low (every transfer below it is accepted), how many
// ranges above it are, then these, each u24 first and u16 count.
type ackMsg struct {
	low      uint64 // 24 bits
	accepted []byte // spanBytes each
}

func appendAck(b []byte, low uint64, accepted []span) []byte {
	b = append(appendU24(b, low), byte(len(accepted)))
	for _, s := range accepted {
		b = le.AppendUint16(appendU24(b, s.first), s.n)
	}
	return b
}

func (m *ackMsg) decode(b []byte) error {
	r := reader{b: b}
	m.low = r.u24()
	n := int(r.u8())
	m.accepted = r.take(n * spanBytes)
	if r.bad || len(r.b) > 0 {
		return malformed(KindAck, "%d bytes with %d ranges do not parse", len(b), n)
	}
	for l := m.accepted; len(l) > 0; l = l[spanBytes:] {
		if n := le.Uint16(l[3:]); n == 0 || n > WindowTransfers {
			return malformed(KindAck, "a range of %d transfers", n)
		}
	}
	return nil
}

// needMsg is NEED: the object's id, u16 first chunk, u16 count.
type needMsg struct {
	id    ID
	first uint16
	count uint16
}

func (m *needMsg) append(b []byte) []byte {
	b = append(b, m.id[:]...)
	b = le.AppendUint16(b, m.first)
	return le.AppendUint16(b, m.count)
}

func (m *needMsg) decode(b []byte) error {
	if len(b) != 36 {
		return malformed(KindNeed, "%d bytes, want 36", len(b))
	}
	copy(m.id[:], b)
	m.first, m.count = le.Uint16(b[32:]), le.Uint16(b[34:])
	if m.count == 0 || m.count > needChunks || m.id.IsZero() {
		return malformed(KindNeed, "%d chunks of %v", m.count, m.id)
	}
	return nil
}

// codeMsg is CODE: the object's id, u32 size of the whole, u16 index of this
// chunk, its bytes. Size 0 says that the object is not to be had here.
type codeMsg struct {
	id    ID
	size  uint32
	index uint16
	data  []byte
}

func (m *codeMsg) append(b []byte) []byte {
	b = append(b, m.id[:]...)
	b = le.AppendUint32(b, m.size)
	return le.AppendUint16(b, m.index)
}

func (m *codeMsg) decode(b []byte) error {
	if len(b) < 38 {
		return malformed(KindCode, "%d bytes, at least 38 needed", len(b))
	}
	copy(m.id[:], b)
	m.size, m.index, m.data = le.Uint32(b[32:]), le.Uint16(b[36:]), b[38:]
	if first, end := chunk(int(m.size), int(m.index)); end-first != len(m.data) || m.id.IsZero() || len(m.data) == 0 && m.size+uint32(m.index) != 0 {
		return malformed(KindCode, "chunk %d of %d bytes has %d, want %d", m.index, m.size, len(m.data), end-first)
	}
	return nil
}

// chunk is where a chunk of an object lies; empty if beyond its end.
func chunk(size, index int) (first, end int) {
	first = min(index*ChunkBytes, size)
	return first, min(first+ChunkBytes, size)
}

// cancelMsg is CANCEL: u16 remaining time, u40 seq.
type cancelMsg struct {
	left uint16
	seq  uint64
}

func (m *cancelMsg) append(b []byte) []byte { return appendU40(le.AppendUint16(b, m.left), m.seq) }

func (m *cancelMsg) decode(b []byte) error {
	r := reader{b: b}
	*m = cancelMsg{left: r.u16(), seq: r.u40()}
	if r.bad || len(r.b) > 0 {
		return malformed(KindCancel, "%d bytes, want 7", len(b))
	}
	return nil
}

// decodeSeq reads FREE and HOLD: u40 seq.
func decodeSeq(k Kind, b []byte) (uint64, error) {
	if len(b) != 5 {
		return 0, malformed(k, "%d bytes, want 5", len(b))
	}
	return getU40(b), nil
}

// roomMsg is ROOM: what, u40 seq.
type roomMsg struct {
	what roomWord
	seq  uint64
}

// roomWord is what ROOM says of an invocation.
type roomWord uint8

const (
	roomGoesOn   roomWord = iota // a branch does not wait for room any more
	roomWaits                    // a branch has waited for room for a while
	roomInTheWay                 // it keeps scratch where an older invocation waits for room
	roomWords
)

// roomBytes is how long ROOM is.
const roomBytes = 6

func (m *roomMsg) append(b []byte) []byte { return appendU40(append(b, byte(m.what)), m.seq) }

func (m *roomMsg) decode(b []byte) error {
	r := reader{b: b}
	*m = roomMsg{what: roomWord(r.u8()), seq: r.u40()}
	if r.bad || len(r.b) > 0 || m.what >= roomWords {
		return malformed(KindRoom, "%d bytes do not parse", len(b))
	}
	return nil
}

// paceMsg is PACE: 1 to wait, 0 to go on; u64 whose branches (their origin's incarnation).
type paceMsg struct {
	wait   bool
	origin uint64
}

// paceBytes is how long PACE is.
const paceBytes = 9

func (m *paceMsg) append(b []byte) []byte {
	wait := byte(0)
	if m.wait {
		wait = 1
	}
	return le.AppendUint64(append(b, wait), m.origin)
}

func (m *paceMsg) decode(b []byte) error {
	r := reader{b: b}
	wait := r.u8()
	*m = paceMsg{wait == 1, r.branch()}
	if r.bad || len(r.b) > 0 || wait > 1 {
		return malformed(KindPace, "%d bytes do not parse", len(b))
	}
	return nil
}

// refusedMsg is REFUSED: u24 transfer, code, then why.
type refusedMsg struct {
	transfer uint64
	code     Code
	reason   uint8
	text     []byte
}

// Reasons of REFUSED that the sender acts on.
const (
	reasonOther         = 0
	reasonUnknownHandle = 1 // declare it again
	reasonCount         = 2
)

func (m *refusedMsg) append(b []byte) []byte {
	b = appendU24(b, m.transfer)
	b = append(b, byte(m.code), m.reason)
	return append(b, m.text...)
}

func (m *refusedMsg) decode(b []byte) error {
	r := reader{b: b}
	*m = refusedMsg{transfer: r.u24(), code: Code(r.u8()), reason: r.u8(), text: r.b}
	if r.bad || m.code == CodeOK || m.code >= codeCount || m.reason >= reasonCount || len(m.text) > maxText {
		return malformed(KindRefused, "%d bytes do not parse", len(b))
	}
	return nil
}
