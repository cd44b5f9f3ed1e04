package wasmcode

// bodies writes all bodies of the module's own functions, each with its size.
func (w *writer) bodies() ([]byte, error) {
	out := make([]byte, 0, len(w.m.code)*2)
	for i := range w.m.bodies {
		b := &w.m.bodies[i]
		w.tmp = w.body(w.tmp[:0], i, b)
		if w.code.err != nil {
			return nil, w.code.err
		}
		out = append(uleb(out, uint32(len(w.tmp))), w.tmp...)
	}
	return out, nil
}

// Locals that a function with checked stores gets behind its own. They hold a
// store's operands while its address is compared.
const (
	localAddress = iota // i32
	localI32
	_ // the second of a pair
	localI64
	_
	localF32
	localF64
	localV128
	addedGroups = 5 // in the binary: i32 ×3, i64 ×2, f32, f64, v128
)

// body writes function i's locals and code. What needs no change is copied in
// runs: from is where the current run starts.
func (w *writer) body(out []byte, i int, b *body) []byte {
	w.code = reader{b: w.m.code[:b.end], pos: b.start, section: "code", fn: len(w.m.imports) + i}
	r := &w.code
	r.u32() // groups of locals
	groups := r.pos
	check := w.opt.CheckStores && b.stores > 0
	edges, work := b.edges(0), b.work
	if check {
		edges = b.edges(b.stores)
		work += b.work / (b.blocks + 1) * b.stores * blocksOfCheck
	}
	w.squares += edges * edges
	if check && (work > MaxFunctionWork || edges > MaxFunctionBlocks) {
		r.failAt(b.start, "too complex to compile with checked stores, as read-only windows and scratch want them: %d stores (split the function)", b.stores)
		return out
	}
	if w.squares > MaxModuleBlocks {
		r.failAt(b.start, "too complex to compile with checked stores, as read-only windows and scratch want them: the functions up to here are (split the largest ones, or the module)")
		return out
	}
	if check {
		out = append(uleb(out, uint32(b.groups+addedGroups)), w.m.code[groups:b.code]...)
		out = append(out, 3, byte(I32), 2, byte(I64), 1, byte(F32), 1, byte(F64), 1, byte(V128))
	} else {
		out = append(uleb(out, uint32(b.groups)), w.m.code[groups:b.code]...)
	}
	if b.charge {
		out = w.charge(out, min(b.costs[0], entryCost)) // for the rest it looks on the way
	}
	r.pos = b.code
	from, loop, looks := r.pos, 0, b.looks
	var in instr
	for r.ok() && r.left() > 0 {
		o := r.next(&in)
		if len(looks) > 0 && looks[0] == in.start {
			out = w.charge(append(out, w.m.code[from:in.start]...), stretchCost)
			from, looks = in.start, looks[1:]
		}
		switch {
		case in.op == opLoop:
			loop++
			out = append(out, w.m.code[from:r.pos]...)
			out = w.charge(out, min(b.costs[loop], entryCost))
			from = r.pos
		case o.operand != 0 && check:
			out = append(out, w.m.code[from:in.start]...)
			out = w.checkStore(out, b.locals, &in, o)
			from = in.start
		default:
			if next, changed := w.replace(out, from, &in); changed {
				out, from = next, r.pos
			}
		}
	}
	return append(out, w.m.code[from:b.end]...)
}

// replace writes the run from from up to the instruction, and what stands for it.
// changed is false if it stays as it is.
func (w *writer) replace(out []byte, from int, in *instr) (_ []byte, changed bool) {
	switch in.op {
	case opCall, opReturnCall, opRefFunc:
		if kind := w.standIns[in.a]; kind != 0 && in.op != opRefFunc {
			out = append(out, w.m.code[from:in.start]...)
			return w.callHelperBy(in.op, out, kind, in.a), true
		}
		if in.a < w.first {
			return out, false
		}
		out = append(out, w.m.code[from:in.start]...)
		return uleb(append(out, byte(in.op)), w.function(in.a)), true
	case opMemorySize:
		out = append(out, w.m.code[from:in.start]...)
		return uleb(append(out, byte(opGlobalGet)), w.global(globalHeapPages)), true
	case opMemoryGrow:
		return w.callHelper(append(out, w.m.code[from:in.start]...), helperGrow, 0), true
	case opMemoryCopy:
		return w.callHelper(append(out, w.m.code[from:in.start]...), helperCopy, 0), true
	case opMemoryFill:
		return w.callHelper(append(out, w.m.code[from:in.start]...), helperFill, 0), true
	case opMemoryInit:
		return w.callHelper(append(out, w.m.code[from:in.start]...), helperInit, in.a), true
	case opTableInit, opTableCopy, opTableGrow, opTableFill:
		out = append(out, w.m.code[from:in.start]...)
		out = w.charge(out, costTable)
		return append(out, w.m.code[in.start:w.code.pos]...), true
	case opAtomicNotify:
		// No guest can wait on this memory: check the address as the original would, and answer 0.
		out = append(out, w.m.code[from:in.start]...)
		out = append(out, byte(opI32Eqz), byte(opDrop), 0xfe, byte(opI32AtomicLd&0xff)) // eqz: the count must be an i32
		out = uleb(uleb(out, in.a), in.offset)
		return append(out, byte(opDrop), byte(opI32Const), 0), true
	}
	return out, false
}

// charge takes cost from the fuel and, below zero, asks the host for more.
func (w *writer) charge(out []byte, cost uint32) []byte {
	fuel := w.global(globalFuel)
	out = uleb(append(out, byte(opGlobalGet)), fuel)
	out = sleb(append(out, byte(opI64Const)), int64(cost))
	out = append(out, byte(opI64Sub))
	return w.settle(out)
}

// settle stores the i64 on the stack as the fuel and ticks if it is below zero.
func (w *writer) settle(out []byte) []byte {
	fuel := w.global(globalFuel)
	out = uleb(append(out, byte(opGlobalSet)), fuel)
	out = uleb(append(out, byte(opGlobalGet)), fuel)
	out = append(out, byte(opI64Const), 0, byte(opI64LtS), byte(opIf), 0x40)
	out = uleb(append(out, byte(opCall)), w.tick())
	out = uleb(append(out, byte(opGlobalSet)), fuel)
	return append(out, byte(opEnd))
}

// checkStore moves a store's operands to locals, compares the end of what it
// writes with the limit, and puts them back. The store itself follows.
func (w *writer) checkStore(out []byte, locals int, in *instr, o *opInfo) []byte {
	local := func(op opcode, which int) { out = uleb(append(out, byte(op)), uint32(locals+which)) }
	value := operandLocal(o.operand)
	if o.pair {
		local(opLocalSet, value+1)
	}
	local(opLocalSet, value)
	local(opLocalTee, localAddress)
	out = append(out, byte(opI64ExtendI32U), byte(opI64Const))
	out = sleb(out, int64(in.offset)+int64(1)<<o.align)
	out = append(out, byte(opI64Add))
	out = uleb(append(out, byte(opGlobalGet)), w.global(globalStoreLimit))
	out = append(out, byte(opI64GtU), byte(opIf), 0x40)
	local(opLocalGet, localAddress)
	out = append(out, byte(opI64ExtendI32U), byte(opI64Const))
	out = sleb(out, int64(in.offset))
	out = append(out, byte(opI64Add))
	out = uleb(append(out, byte(opCall)), w.storeTrap())
	out = append(out, byte(opEnd))
	local(opLocalGet, localAddress)
	local(opLocalGet, value)
	if o.pair {
		local(opLocalGet, value+1)
	}
	return out
}

// operandLocal is the added local that holds a store's value.
func operandLocal(v ValType) int {
	switch v {
	case I64:
		return localI64
	case F32:
		return localF32
	case F64:
		return localF64
	case V128:
		return localV128
	}
	return localI32
}
