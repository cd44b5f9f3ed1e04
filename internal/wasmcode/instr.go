package wasmcode

// instr is one instruction of a body.
type instr struct {
	op     opcode
	start  int // offset of its opcode
	a, b   uint32
	offset uint32 // of a memory access
}

// next reads the instruction at r.pos and checks the parts of its immediates
// that need no context. Indices are checked by bodyChecker.
func (r *reader) next(in *instr) *opInfo {
	in.start = r.pos
	in.a, in.b, in.offset = 0, 0, 0
	in.op = opcode(r.u8())
	if in.op >= 0xfc && in.op <= 0xfe {
		n := r.u32()
		if n > 255 {
			r.failAt(in.start, "unknown instruction %#x %#x", uint16(in.op), n)
			return &opTable[0][opEnd]
		}
		in.op = in.op<<8 | opcode(n)
	}
	o := info(in.op)
	if o.imm != immNone && r.err == nil {
		r.immediate(in, o)
	}
	return o
}

func (r *reader) immediate(in *instr, o *opInfo) {
	switch o.imm {
	case immBlock:
		r.blockType(in)
	case immLabel, immFunction, immLocal, immGlobal, immTable, immData, immElem:
		in.a = r.u32()
	case immIndirect, immElemTable, immTableTable:
		in.a, in.b = r.u32(), r.u32()
	case immLabels:
		r.labels(in)
	case immMemory, immMemoryLane:
		at := r.pos
		if in.a = r.u32(); in.a > uint32(o.align) {
			r.failAt(at, "alignment 2^%d of an access to 2^%d bytes", in.a, o.align)
		}
		in.offset = r.u32()
		if o.imm == immMemoryLane {
			r.lane(in, o.lanes)
		}
	case immMemoryIndex, immFence:
		r.zero()
	case immMemoryIndices:
		r.zero()
		r.zero()
	case immDataMemory:
		in.a = r.u32()
		r.zero()
	case immI32:
		in.a = uint32(r.signed(32))
	case immI64:
		r.signed(64)
	case immF32:
		r.take(4, "a constant")
	case immF64:
		r.take(8, "a constant")
	case immRefType:
		in.a = uint32(r.refType())
	case immTypes:
		if n := r.count("types in a select", 1); n != 1 {
			r.failAt(in.start, "a select with %d types, want 1", n)
		}
		r.valType()
	case immV128:
		r.take(16, "a constant")
	case immShuffle:
		for _, lane := range r.take(16, "lanes") {
			if lane >= 32 {
				r.failAt(in.start, "lane %d of 32", lane)
			}
		}
	case immLane:
		r.lane(in, o.lanes)
	default:
		r.failAt(in.start, "unknown instruction %s", in.op)
	}
}

func (op opcode) String() string {
	const digits = "0123456789abcdef"
	s := "0x"
	if op > 0xff {
		s += string([]byte{digits[op>>12], digits[op>>8&15], ' ', '0', 'x'})
	}
	return s + string([]byte{digits[op>>4&15], digits[op&15]})
}

func (r *reader) zero() {
	if c := r.u8(); c != 0 {
		r.failAt(r.pos-1, "byte %#x where 0 is reserved (only memory 0 exists)", c)
	}
}

func (r *reader) lane(in *instr, lanes uint8) {
	if l := r.u8(); l >= lanes {
		r.failAt(in.start, "lane %d of %d", l, lanes)
	}
}

// Block types: a is the type index, or one of these.
const (
	blockEmpty = 1<<32 - 1
	blockValue = 1<<32 - 2
)

func (r *reader) blockType(in *instr) {
	at := r.pos
	t := r.signed(33)
	switch {
	case r.err != nil:
	case t == -64:
		in.a = blockEmpty
	case t < 0:
		if t < -64 || !ValType(t&0x7f).valid() {
			r.failAt(at, "unknown block type %d", t)
		}
		in.a = blockValue
	case t >= blockValue:
		r.failAt(at, "block type %d is out of range", t)
	default:
		in.a = uint32(t)
	}
}

// labels reads br_table's targets; a is the highest, b how many there are besides the default.
func (r *reader) labels(in *instr) {
	n := r.count("branch targets", MaxBranchTargets)
	in.b = uint32(n)
	for i := 0; i <= n && r.ok(); i++ {
		in.a = max(in.a, r.u32())
	}
}
