package wasmcode

// An opcode is one byte, or a prefix (0xfc, 0xfd, 0xfe) and a number below 256:
// prefix<<8 | number.
type opcode uint16

const (
	opUnreachable        opcode = 0x00
	opBlock              opcode = 0x02
	opLoop               opcode = 0x03
	opIf                 opcode = 0x04
	opElse               opcode = 0x05
	opEnd                opcode = 0x0b
	opBr                 opcode = 0x0c
	opBrIf               opcode = 0x0d
	opReturn             opcode = 0x0f
	opCall               opcode = 0x10
	opCallIndirect       opcode = 0x11
	opReturnCall         opcode = 0x12
	opReturnCallIndirect opcode = 0x13
	opDrop               opcode = 0x1a
	opLocalGet           opcode = 0x20
	opLocalSet           opcode = 0x21
	opLocalTee           opcode = 0x22
	opGlobalGet          opcode = 0x23
	opGlobalSet          opcode = 0x24
	opMemorySize         opcode = 0x3f
	opMemoryGrow         opcode = 0x40
	opI64Load            opcode = 0x29
	opI64Store           opcode = 0x37
	opI32Const           opcode = 0x41
	opI64Const           opcode = 0x42
	opF32Const           opcode = 0x43
	opF64Const           opcode = 0x44
	opI32Eqz             opcode = 0x45
	opI32Eq              opcode = 0x46
	opI32GtU             opcode = 0x4b
	opI32LeU             opcode = 0x4d
	opI64LtS             opcode = 0x53
	opI64GtU             opcode = 0x56
	opI64Eqz             opcode = 0x50
	opI32Add             opcode = 0x6a
	opI32Or              opcode = 0x72
	opI32Sub             opcode = 0x6b
	opI32ShrU            opcode = 0x76
	opI64Add             opcode = 0x7c
	opI64Sub             opcode = 0x7d
	opI64Or              opcode = 0x84
	opI64Shl             opcode = 0x86
	opI32TruncF32S       opcode = 0xa8 // then F32U, F64S, F64U
	opI64ExtendI32U      opcode = 0xad
	opI64TruncF32S       opcode = 0xae // then F32U, F64S, F64U
	opRefNull            opcode = 0xd0
	opRefFunc            opcode = 0xd2

	opMemoryInit opcode = 0xfc08
	opTableSet   opcode = 0x26
	opDataDrop   opcode = 0xfc09
	opElemDrop   opcode = 0xfc0d
	opMemoryCopy opcode = 0xfc0a
	opMemoryFill opcode = 0xfc0b
	opTableInit  opcode = 0xfc0c
	opTableCopy  opcode = 0xfc0e
	opTableGrow  opcode = 0xfc0f
	opTableFill  opcode = 0xfc11

	opV128Const    opcode = 0xfd0c
	opAtomicNotify opcode = 0xfe00
	opI32AtomicLd  opcode = 0xfe10
)

// immediate says what follows an opcode.
type immediate uint8

const (
	immInvalid immediate = iota
	immNone
	immBlock         // block type
	immLabel         // label
	immLabels        // br_table
	immFunction      // function
	immIndirect      // type, table
	immLocal         // local
	immGlobal        // global
	immTable         // table
	immMemory        // alignment, offset
	immMemoryLane    // alignment, offset, lane
	immMemoryIndex   // a zero byte
	immMemoryIndices // two zero bytes
	immI32
	immI64
	immF32
	immF64
	immRefType
	immTypes // select t*
	immV128  // 16 bytes
	immShuffle
	immLane
	immDataMemory // data segment, a zero byte
	immData
	immElemTable // element segment, table
	immElem
	immTableTable
	immFence // a zero byte
)

// opInfo describes one opcode.
type opInfo struct {
	imm     immediate
	align   uint8   // log2 of the bytes a memory access touches
	lanes   uint8   // lane immediates are below this
	cost    uint8   // in plain instructions
	operand ValType // of a store: the type of the value(s) on top of the address; 0 if it is no store
	pair    bool    // of a store: two values
}

// opTable holds opInfo by prefix: plain, 0xfc, 0xfd, 0xfe. It is never written.
var opTable = [4][256]opInfo{plainOps(), bulkOps(), vectorOps(), atomicOps()}

func info(op opcode) *opInfo {
	switch op >> 8 {
	case 0xfc:
		return &opTable[1][op&0xff]
	case 0xfd:
		return &opTable[2][op&0xff]
	case 0xfe:
		return &opTable[3][op&0xff]
	}
	return &opTable[0][op&0xff]
}

func fill(t *[256]opInfo, first, last int, o opInfo) {
	if o.cost == 0 {
		o.cost = 1
	}
	for i := first; i <= last; i++ {
		t[i] = o
	}
}

func plainOps() (t [256]opInfo) {
	fill(&t, 0x00, 0x01, opInfo{imm: immNone})
	fill(&t, 0x02, 0x04, opInfo{imm: immBlock})
	fill(&t, 0x05, 0x05, opInfo{imm: immNone})
	fill(&t, 0x0b, 0x0b, opInfo{imm: immNone})
	fill(&t, 0x0c, 0x0d, opInfo{imm: immLabel})
	fill(&t, 0x0e, 0x0e, opInfo{imm: immLabels})
	fill(&t, 0x0f, 0x0f, opInfo{imm: immNone})
	fill(&t, 0x10, 0x10, opInfo{imm: immFunction, cost: costCall})
	fill(&t, 0x11, 0x11, opInfo{imm: immIndirect, cost: costCall})
	fill(&t, 0x12, 0x12, opInfo{imm: immFunction, cost: costCall})
	fill(&t, 0x13, 0x13, opInfo{imm: immIndirect, cost: costCall})
	fill(&t, 0x1a, 0x1b, opInfo{imm: immNone})
	fill(&t, 0x1c, 0x1c, opInfo{imm: immTypes})
	fill(&t, 0x20, 0x22, opInfo{imm: immLocal})
	fill(&t, 0x23, 0x24, opInfo{imm: immGlobal})
	fill(&t, 0x25, 0x26, opInfo{imm: immTable})
	for i, align := range []uint8{2, 3, 2, 3, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2} {
		fill(&t, 0x28+i, 0x28+i, opInfo{imm: immMemory, align: align, cost: costMemory})
	}
	for i, s := range []struct {
		align uint8
		v     ValType
	}{{2, I32}, {3, I64}, {2, F32}, {3, F64}, {0, I32}, {1, I32}, {0, I64}, {1, I64}, {2, I64}} {
		fill(&t, 0x36+i, 0x36+i, opInfo{imm: immMemory, align: s.align, operand: s.v, cost: costMemory})
	}
	fill(&t, 0x3f, 0x40, opInfo{imm: immMemoryIndex})
	fill(&t, 0x41, 0x41, opInfo{imm: immI32})
	fill(&t, 0x42, 0x42, opInfo{imm: immI64})
	fill(&t, 0x43, 0x43, opInfo{imm: immF32})
	fill(&t, 0x44, 0x44, opInfo{imm: immF64})
	fill(&t, 0x45, 0xc4, opInfo{imm: immNone})
	for _, r := range [][2]int{{0x6d, 0x70}, {0x7f, 0x82}, {0x91, 0x91}, {0x95, 0x95}, {0x9f, 0x9f}, {0xa3, 0xa3}} {
		fill(&t, r[0], r[1], opInfo{imm: immNone, cost: costDivide})
	}
	fill(&t, 0xd0, 0xd0, opInfo{imm: immRefType})
	fill(&t, 0xd1, 0xd1, opInfo{imm: immNone})
	fill(&t, 0xd2, 0xd2, opInfo{imm: immFunction})
	return t
}

func bulkOps() (t [256]opInfo) {
	fill(&t, 0, 7, opInfo{imm: immNone})
	fill(&t, 8, 8, opInfo{imm: immDataMemory})
	fill(&t, 9, 9, opInfo{imm: immData})
	fill(&t, 10, 10, opInfo{imm: immMemoryIndices})
	fill(&t, 11, 11, opInfo{imm: immMemoryIndex})
	fill(&t, 12, 12, opInfo{imm: immElemTable})
	fill(&t, 13, 13, opInfo{imm: immElem})
	fill(&t, 14, 14, opInfo{imm: immTableTable})
	fill(&t, 15, 17, opInfo{imm: immTable})
	return t
}

func vectorOps() (t [256]opInfo) {
	fill(&t, 14, 255, opInfo{imm: immNone})
	for _, r := range [][2]int{ // numbers that SIMD leaves free
		{0x9a, 0x9a}, {0xa2, 0xa2}, {0xa5, 0xa6}, {0xaf, 0xb0}, {0xb2, 0xb4}, {0xbb, 0xbb},
		{0xc2, 0xc2}, {0xc5, 0xc6}, {0xcf, 0xd0}, {0xd2, 0xd4}, {0xe2, 0xe2}, {0xee, 0xee},
	} {
		fill(&t, r[0], r[1], opInfo{})
	}
	for i, align := range []uint8{4, 3, 3, 3, 3, 3, 3, 0, 1, 2, 3} {
		fill(&t, i, i, opInfo{imm: immMemory, align: align, cost: costMemory})
	}
	fill(&t, 11, 11, opInfo{imm: immMemory, align: 4, operand: V128, cost: costMemory})
	fill(&t, 12, 12, opInfo{imm: immV128})
	fill(&t, 13, 13, opInfo{imm: immShuffle})
	for i, lanes := range []uint8{16, 16, 16, 8, 8, 8, 4, 4, 2, 2, 4, 4, 2, 2} {
		fill(&t, 21+i, 21+i, opInfo{imm: immLane, lanes: lanes})
	}
	for i := range 4 {
		lane := opInfo{imm: immMemoryLane, align: uint8(i), lanes: 16 >> i, cost: costMemory}
		fill(&t, 84+i, 84+i, lane)
		lane.operand = V128
		fill(&t, 88+i, 88+i, lane)
	}
	fill(&t, 92, 92, opInfo{imm: immMemory, align: 2, cost: costMemory})
	fill(&t, 93, 93, opInfo{imm: immMemory, align: 3, cost: costMemory})
	for _, i := range []int{0xe3, 0xe7, 0xef, 0xf3} { // square roots, divisions
		t[i].cost = costDivide
	}
	return t
}

func atomicOps() (t [256]opInfo) {
	fill(&t, 0, 1, opInfo{imm: immMemory, align: 2, cost: costMemory})
	fill(&t, 2, 2, opInfo{imm: immMemory, align: 3, cost: costMemory})
	fill(&t, 3, 3, opInfo{imm: immFence})
	const firstLoad, firstStore, firstCompare, last = 0x10, 0x17, 0x48, 0x4e
	aligns := [7]uint8{2, 3, 0, 1, 0, 1, 2}
	types := [7]ValType{I32, I64, I32, I32, I64, I64, I64}
	for i := firstLoad; i <= last; i++ {
		k := (i - firstLoad) % 7
		o := opInfo{imm: immMemory, align: aligns[k], cost: costMemory}
		if i >= firstStore {
			o.operand = types[k]
		}
		o.pair = i >= firstCompare
		fill(&t, i, i, o)
	}
	return t
}
