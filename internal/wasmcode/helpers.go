package wasmcode

import "fmt"

// helper is a function added behind the module's own.
type helper struct {
	name string
	typ  uint32
	body []byte
}

// Kinds of helpers.
const (
	helperGrow = iota + 1
	helperCopy
	helperFill
	helperInit
	helperMail
	helperMailTo
	helperWindow
)

// callHelper writes a call of the helper, making it at first use. of is the data
// segment, or the import that it stands for.
func (w *writer) callHelper(out []byte, kind uint32, of uint32) []byte {
	return w.callHelperBy(opCall, out, kind, of)
}

func (w *writer) callHelperBy(call opcode, out []byte, kind uint32, of uint32) []byte {
	key := kind<<16 | of
	f, ok := w.helperIndex[key]
	if !ok {
		f = uint32(w.m.functionCount() + addedImports + len(w.helpers))
		w.helperIndex[key] = f
		h := helper{typ: w.bulkType}
		switch kind {
		case helperGrow:
			h = helper{name: "memory.grow", typ: w.growType, body: w.grow()}
		case helperCopy:
			h.name, h.body = "memory.copy", w.copy()
		case helperFill:
			h.name, h.body = "memory.fill", w.fill()
		case helperInit:
			h.name, h.body = fmt.Sprintf("memory.init[%d]", of), w.init(of)
		case helperMail:
			h = helper{name: w.m.Imports[of], typ: w.m.imports[of], body: w.mail(of, false)}
		case helperMailTo:
			h = helper{name: w.m.Imports[of], typ: w.m.imports[of], body: w.mail(of, true)}
		case helperWindow:
			h = helper{name: w.m.Imports[of], typ: w.m.imports[of], body: w.window(of)}
		}
		w.helpers = append(w.helpers, h)
	}
	return uleb(append(out, byte(call)), f)
}

// asm writes instructions of a helper.
type asm struct {
	w *writer
	b []byte
}

func (a *asm) op(ops ...opcode) {
	for _, o := range ops {
		if o > 0xff {
			a.b = append(a.b, byte(o>>8), byte(o))
		} else {
			a.b = append(a.b, byte(o))
		}
	}
}
func (a *asm) get(local int)   { a.b = append(a.b, byte(opLocalGet), byte(local)) }
func (a *asm) set(local int)   { a.b = append(a.b, byte(opLocalSet), byte(local)) }
func (a *asm) i32(v int64)     { a.b = sleb(append(a.b, byte(opI32Const)), v) }
func (a *asm) i64(v int64)     { a.b = sleb(append(a.b, byte(opI64Const)), v) }
func (a *asm) global(g int)    { a.b = uleb(append(a.b, byte(opGlobalGet)), a.w.global(g)) }
func (a *asm) setGlobal(g int) { a.b = uleb(append(a.b, byte(opGlobalSet)), a.w.global(g)) }
func (a *asm) ifThen()         { a.b = append(a.b, byte(opIf), 0x40) }
func (a *asm) loop()           { a.b = append(a.b, byte(opLoop), 0x40) }
func (a *asm) br(depth byte)   { a.b = append(a.b, byte(opBr), depth) }
func (a *asm) end()            { a.op(opEnd) }

// sum pushes x + y of two i32 locals as 64 bits.
func (a *asm) sum(x, y int) {
	a.get(x)
	a.op(opI64ExtendI32U)
	a.get(y)
	a.op(opI64ExtendI32U, opI64Add)
}

// grow is memory.grow on the two globals: (pages) -> old size, or -1.
func (w *writer) grow() []byte {
	a := &asm{w: w, b: []byte{0}}
	a.global(globalHeapPages)
	a.op(opI64ExtendI32U)
	a.get(0)
	a.op(opI64ExtendI32U, opI64Add)
	a.global(globalHeapLimit)
	a.op(opI64ExtendI32U, opI64GtU)
	a.ifThen()
	a.i32(-1)
	a.op(opReturn)
	a.end()
	a.global(globalHeapPages)
	a.global(globalHeapPages)
	a.get(0)
	a.op(opI32Add)
	a.setGlobal(globalHeapPages)
	a.end()
	return a.b
}

// Parameters of the bulk helpers, as of the instructions they replace.
const (
	bulkDst = 0
	bulkSrc = 1 // or the value of a fill
	bulkN   = 2
)

// beyondMemory pushes whether local + n leaves the real memory.
func (a *asm) beyondMemory(local int) {
	a.sum(local, bulkN)
	a.memoryBytes()
	a.op(opI64GtU)
}

// refuse writes: if the condition on the stack holds, run the original instruction on everything, which
// traps as a whole: no chunk of it must have been written before.
func (a *asm) refuse(original func()) {
	a.ifThen()
	original()
	a.op(opReturn)
	a.end()
}

// checkRange refuses [dst, dst+n) at or above the store limit.
func (a *asm) checkRange() {
	if !a.w.opt.CheckStores {
		return
	}
	a.get(bulkN)
	a.ifThen()
	a.sum(bulkDst, bulkN)
	a.global(globalStoreLimit)
	a.op(opI64GtU)
	a.ifThen()
	a.get(bulkDst)
	a.op(opI64ExtendI32U)
	a.b = uleb(append(a.b, byte(opCall)), a.w.storeTrap())
	a.end()
	a.end()
}

// chargeBytes takes fuel for n bytes.
func (a *asm) chargeBytes() {
	a.global(globalFuel)
	a.get(bulkN)
	a.i32(bytesPerShift)
	a.op(opI32ShrU, opI64ExtendI32U, opI64Sub)
	a.b = a.w.settle(a.b)
}

// chunks writes a loop that runs step while more than one chunk is left, taking
// fuel for a chunk each time.
func (a *asm) chunks(step func()) {
	a.loop()
	a.get(bulkN)
	a.i32(chunkBytes)
	a.op(opI32GtU)
	a.ifThen()
	step()
	a.b = a.w.charge(a.b, chunkBytes/bytesPerUnit)
	a.br(1)
	a.end()
	a.end()
	a.chargeBytes()
}

// advance adds a chunk to a pointer.
func (a *asm) advance(local int) {
	a.get(local)
	a.i32(chunkBytes)
	a.op(opI32Add)
	a.set(local)
}

func (a *asm) shorten() {
	a.get(bulkN)
	a.i32(chunkBytes)
	a.op(opI32Sub)
	a.set(bulkN)
}

// copy is memory.copy in chunks: upwards if the destination lies below the source, else
// downwards, so that overlapping ranges come out as if copied at once.
func (w *writer) copy() []byte {
	a := &asm{w: w, b: []byte{0}}
	move := func() { a.op(opMemoryCopy); a.b = append(a.b, 0, 0) }
	whole := func() { a.get(bulkDst); a.get(bulkSrc); a.get(bulkN); move() }
	a.beyondMemory(bulkDst)
	a.refuse(whole)
	a.beyondMemory(bulkSrc)
	a.refuse(whole)
	a.checkRange()
	a.get(bulkDst)
	a.get(bulkSrc)
	a.op(opI32LeU)
	a.ifThen()
	a.chunks(func() {
		a.get(bulkDst)
		a.get(bulkSrc)
		a.i32(chunkBytes)
		move()
		a.advance(bulkDst)
		a.advance(bulkSrc)
		a.shorten()
	})
	whole()
	a.op(opReturn)
	a.end()
	a.chunks(func() {
		a.shorten()
		for _, p := range []int{bulkDst, bulkSrc} {
			a.get(p)
			a.get(bulkN)
			a.op(opI32Add)
		}
		a.i32(chunkBytes)
		move()
	})
	whole()
	a.end()
	return a.b
}

// fill is memory.fill in chunks.
func (w *writer) fill() []byte {
	a := &asm{w: w, b: []byte{0}}
	set := func() { a.op(opMemoryFill); a.b = append(a.b, 0) }
	whole := func() { a.get(bulkDst); a.get(bulkSrc); a.get(bulkN); set() }
	a.beyondMemory(bulkDst)
	a.refuse(whole)
	a.checkRange()
	a.chunks(func() {
		a.get(bulkDst)
		a.get(bulkSrc)
		a.i32(chunkBytes)
		set()
		a.advance(bulkDst)
		a.shorten()
	})
	whole()
	a.end()
	return a.b
}

// init is memory.init of one segment in chunks.
func (w *writer) init(segment uint32) []byte {
	a := &asm{w: w, b: []byte{0}}
	write := func() { a.op(opMemoryInit); a.b = append(uleb(a.b, segment), 0) }
	whole := func() { a.get(bulkDst); a.get(bulkSrc); a.get(bulkN); write() }
	a.beyondMemory(bulkDst)
	a.refuse(whole)
	a.sum(bulkSrc, bulkN)
	a.i64(int64(w.m.data[segment].bytes))
	a.op(opI64GtU)
	a.refuse(whole)
	a.checkRange()
	a.chunks(func() {
		a.get(bulkDst)
		a.get(bulkSrc)
		a.i32(chunkBytes)
		write()
		a.advance(bulkDst)
		a.advance(bulkSrc)
		a.shorten()
	})
	whole()
	a.end()
	return a.b
}

// callHost calls the import with the first n locals, and returns its result.
func (a *asm) callHost(imported uint32, n int) {
	for i := range n {
		a.get(i)
	}
	a.b = uleb(append(a.b, byte(opCall)), imported)
	a.op(opReturn)
}

// memoryBytes pushes the length of the real memory as 64 bits.
func (a *asm) memoryBytes() {
	a.b = append(a.b, byte(opMemorySize), 0)
	a.op(opI64ExtendI32U)
	a.i64(16)
	a.op(opI64Shl)
}

// store64 stores the i64 on the stack at the address below it plus offset.
func (a *asm) store64(offset byte) { a.b = append(a.b, byte(opI64Store), 0, offset) }

// load64 replaces the address on the stack by the i64 at it plus offset.
func (a *asm) load64(offset byte) { a.b = append(a.b, byte(opI64Load), 0, offset) }

// mail leaves a message in the mailbox, if there is one, it is empty, and the
// message is short and lies in memory, with as many bytes behind it as a message can have at
// most: all those are copied, eight at a time, which takes less than a call that copies n.
// Else it calls the host, which empties the mailbox first: messages never overtake each other. Leaving
// to the host and coming back costs more than many functions do otherwise.
func (w *writer) mail(imported uint32, addressed bool) []byte {
	a := &asm{w: w, b: []byte{1, 1, byte(I32)}}
	params := len(w.m.typeOf(imported).Params)
	ptr, n, box := params-2, params-1, params
	to := ptr - 1 // if it is addressed
	a.global(globalMailbox)
	a.set(box)
	a.get(box)
	a.op(opI32Eqz)
	a.get(n)
	a.i32(MailBytes)
	a.op(opI32GtU, opI32Or)
	a.get(ptr)
	a.op(opI64ExtendI32U)
	a.i64(MailBytes)
	a.op(opI64Add)
	a.memoryBytes()
	a.op(opI64GtU, opI32Or)
	a.get(box)
	a.load64(0)
	a.op(opI64Eqz, opI32Eqz, opI32Or)
	if addressed {
		a.get(to)
		a.i32(-1)
		a.op(opI32Eq, opI32Or)
		for i := range to {
			a.get(i)
			a.op(opI32Or)
		}
	}
	a.ifThen()
	a.callHost(imported, params)
	a.end()
	for at := MailBytes - 8; at >= 0; at -= 8 { // the last first: one check then serves for all
		a.get(box)
		a.get(ptr)
		a.load64(byte(at))
		a.store64(byte(8 + at))
	}
	a.get(box)
	a.get(n)
	a.op(opI64ExtendI32U)
	a.i64(1)
	a.op(opI64Add)
	if addressed {
		a.get(to)
		a.i32(1)
		a.op(opI32Add, opI64ExtendI32U)
		a.i64(32)
		a.op(opI64Shl, opI64Or)
	}
	a.store64(0)
	a.i32(0)
	a.end()
	return a.b
}

// window answers from the globals, if the index has some, they are set, and the
// answer may be written to out; else it calls the host.
func (w *writer) window(imported uint32) []byte {
	a := &asm{w: w, b: []byte{0}}
	const index, out = 0, 1
	a.get(out)
	a.op(opI64ExtendI32U)
	a.i64(16)
	a.op(opI64Add)
	a.global(globalStoreLimit) // never beyond the memory
	a.op(opI64GtU)
	a.ifThen()
	a.callHost(imported, 2)
	a.end()
	for i := range FastWindows {
		a.get(index)
		a.i32(int64(i))
		a.op(opI32Eq)
		a.ifThen()
		a.global(globalWindows + 2*i + 1)
		a.op(opI64Eqz, opI32Eqz)
		a.ifThen()
		for half := 1; half >= 0; half-- { // the last first: one check then serves for both
			a.get(out)
			a.global(globalWindows + 2*i + half)
			a.store64(byte(8 * half))
		}
		a.i32(0)
		a.op(opReturn)
		a.end()
		a.end()
	}
	a.callHost(imported, 2)
	a.end()
	return a.b
}
