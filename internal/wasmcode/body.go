package wasmcode

// body is one function's code.
type body struct {
	start, end int // of the body in the file, without its size
	code       int // offset of the first instruction
	locals     int // parameters included
	groups     int // of locals
	// costs are what regions of it take: the code outside of loops, then each
	// loop without those inside it. callGraph adds what is called from there.
	costs  []uint32
	looks  []int // offsets of instructions before which it looks for fuel, since code before them is long
	calls  []callSite
	stores int  // instructions in it that write memory
	blocks int  // basic blocks and calls, once instrumented
	exits  int  // what edges counts besides
	traps  int  // conversions to integers that trap, each of which becomes up to six blocks and 100 bytes
	work   int  // see MaxFunctionWork
	joins  int  // at most so many values are made where ways through the code meet
	stack  int  // bytes of it, at most; with the deepest callee's once callGraph has been there
	charge bool // entering it takes costs[0]; else callers pay that
}

// What instrumentation adds to the basic blocks and calls of a body.
const (
	blocksOfCharge = 3 // a branch, a call, a join
	blocksOfCheck  = 3
	blocksOfExit   = 3 // in edges: each is one more edge into the function's end
)

// callSite is a direct call of a function defined in the module.
type callSite struct {
	region int32 // index in costs
	callee int32 // index in Module.bodies
}

// frame is an open block.
type frame struct {
	op    opcode
	cost  int  // index in body.costs that instructions in this block count towards
	takes int  // values that a branch to it brings
	long  bool // it looks for fuel somewhere inside: a jump over that lands behind it
}

// bodyChecker checks bodies; it is reused so that its stack is allocated once.
type bodyChecker struct {
	m      *Module
	b      *body
	frames []frame

	// Loops are numbered from 1 in a body. assigned holds, for every local and
	// then every global, the highest number of a loop that it was counted in.
	loops     int
	openLoops []int // numbers of the open loops
	assigned  []int
	pairs     int // of a loop and something it assigns

	stretch uint32 // what the code since it last looked for fuel costs, as it stands there
	left    bool   // the block that was just left looks for fuel somewhere inside

	mutable    int // globals
	totalWork  int
	totalPairs int
	squares    int // of blocks, summed
}

func (d *decoder) codeSection(r *reader) {
	n := r.count("function bodies", MaxFunctions)
	if r.ok() && n != len(d.m.functions) {
		r.fail("%d function bodies for %d functions", n, len(d.m.functions))
		return
	}
	d.m.bodies = make([]body, n)
	d.checker = bodyChecker{m: d.m}
	for _, g := range d.m.globals {
		if g.mutable {
			d.checker.mutable++
		}
	}
	for i := range d.m.bodies {
		r.fn = len(d.m.imports) + i
		at := r.pos
		size := r.u32()
		if size > MaxFunctionBytes {
			r.failAt(at, "a body of %d bytes; the limit is %d (split the function)", size, MaxFunctionBytes)
		}
		r.take(int(size), "a body")
		if !r.ok() {
			return
		}
		br := reader{b: r.b[:r.pos], pos: r.pos - int(size), section: r.section, fn: r.fn}
		d.checker.body(&br, &d.m.bodies[i], len(d.m.types[d.m.functions[i]].Params))
		if br.err != nil {
			r.err = br.err
			return
		}
	}
	r.fn = -1
	d.bodies = n
}

func (c *bodyChecker) body(r *reader, b *body, params int) {
	b.start, b.end = r.pos, len(r.b)
	b.locals = params
	b.groups = r.count("groups of locals", MaxLocals)
	for range b.groups {
		at := r.pos
		n := r.u32()
		if r.ok() && int64(n)+int64(b.locals) > MaxLocals {
			r.failAt(at, "%d locals; the limit is %d", int64(n)+int64(b.locals), MaxLocals)
			return
		}
		b.locals += int(n)
		r.valType()
	}
	b.code = r.pos
	b.costs = append(b.costs, uint32(b.locals/8)) // a frame must be cleared
	c.b, c.stretch = b, 0
	c.loops, c.pairs, c.openLoops = 0, 0, c.openLoops[:0]
	c.assigned = append(c.assigned[:0], make([]int, b.locals+len(c.m.globals))...)
	c.frames = append(c.frames[:0], frame{op: opBlock})
	var in instr
	for r.ok() && len(c.frames) > 0 {
		o := r.next(&in)
		if r.ok() {
			region := c.frames[len(c.frames)-1].cost
			before := b.costs[region]
			c.instr(r, &in, o)
			c.look(r, in.op, b.costs[region]-before)
		}
	}
	if r.ok() && r.left() > 0 {
		r.fail("%d bytes after the function's end", r.left())
	}
	c.complexity(r)
}

// look has long code look for fuel on its way. Any way through it passes such a place at least as often as the code does as it stands there: behind a
// block that has one inside, and where the other branch of an if begins, there is one more.
func (c *bodyChecker) look(r *reader, op opcode, cost uint32) {
	if len(c.frames) == 0 || !r.ok() {
		return
	}
	top := &c.frames[len(c.frames)-1]
	c.stretch += cost
	switch {
	case c.stretch > stretchCost:
		for i := len(c.frames) - 1; i >= 0 && !c.frames[i].long; i-- {
			c.frames[i].long = true
		}
	case op == opEnd && c.left || op == opElse && top.long:
	default:
		return
	}
	c.stretch = 0
	c.b.looks = append(c.b.looks, r.pos)
	c.b.blocks += blocksOfCharge
}

// What a body has on the stack at most, in bytes: no local, no value that is made where ways meet and none that its code makes has more than one place there.
const (
	frameBytes  = 256 // what is saved on entry
	valueBytes  = 16
	bytesOfByte = 8 // of code: the shortest that makes a vector has four bytes
	mostOfStack = 1 << 40
)

// complexity checks what the body costs to compile.
func (c *bodyChecker) complexity(r *reader) {
	b := c.b
	b.stack = frameBytes + valueBytes*(b.locals+c.mutable+b.joins+c.pairs) + bytesOfByte*(b.end-b.start)
	b.work = (b.locals + c.mutable + 1) * (b.blocks + 1)
	c.totalWork += b.work
	c.totalPairs += c.pairs
	c.squares += b.edges(0) * b.edges(0)
	switch {
	case b.edges(0) > MaxFunctionBlocks:
		r.failAt(b.start, "too complex to compile: %d blocks, branches and calls; the limit is %d (split the function)", b.edges(0), MaxFunctionBlocks)
	case c.squares > MaxModuleBlocks:
		r.failAt(b.start, "too complex to compile: the blocks, branches and calls of the functions up to here, squared, are %d in sum; the limit is %d (split the largest functions, or the module)",
			c.squares, MaxModuleBlocks)
	case b.work > MaxFunctionWork:
		r.failAt(b.start, "too complex to compile: %d locals and globals times %d blocks and calls; the limit is a product of %d (split the function)",
			b.locals+c.mutable, b.blocks, MaxFunctionWork)
	case c.pairs > MaxFunctionLoops:
		r.failAt(b.start, "too complex to compile: its loops assign %d locals, globals and values of blocks and branches in sum; the limit is %d (split the function)", c.pairs, MaxFunctionLoops)
	case c.totalWork > MaxModuleWork || c.totalPairs > MaxModuleLoops:
		r.failAt(b.start, "too complex to compile: the module up to here is beyond %d times what one function may be", MaxModuleWork/MaxFunctionWork)
	}
}

// Quick reports whether the module, whose instrumented code has so many bytes, takes a compiler milliseconds whatever it does: at most 20 (BenchmarkQuick).
func (m *Module) Quick(instrumented int) bool {
	squares, work, traps := 0, 0, 0
	for i := range m.bodies {
		b := &m.bodies[i]
		kept, edges := b.work/(b.blocks+1), b.edges(b.stores)
		squares += edges * edges
		work += kept * (edges + 1)
		traps += b.traps
	}
	return instrumented <= quickBytes && squares <= quickSquares && work <= quickWork && traps <= quickTraps
}

// edges is what MaxFunctionBlocks bounds, with so many stores that are checked.
func (b *body) edges(stores int) int { return b.blocks + b.exits + stores*blocksOfCheck }

// assign counts a local (or, behind the locals, a global) for every open loop
// in which it was not counted yet. If it was counted in a loop it was in all around that one.
func (c *bodyChecker) assign(i int) {
	c.b.joins += len(c.frames) // at the end of each block that it lies in
	for k := len(c.openLoops) - 1; k >= 0 && c.openLoops[k] > c.assigned[i]; k-- {
		c.pairs++
	}
	if n := len(c.openLoops); n > 0 {
		c.assigned[i] = max(c.assigned[i], c.openLoops[n-1])
	}
}

func (c *bodyChecker) instr(r *reader, in *instr, o *opInfo) {
	top := &c.frames[len(c.frames)-1]
	cost := &c.b.costs[top.cost]
	*cost += uint32(o.cost)
	if o.operand != 0 {
		c.b.stores++
	}
	bound := func(what string, i uint32, n int) {
		if int64(i) >= int64(n) {
			r.failAt(in.start, "%s %d, but there are %d", what, i, n)
		}
	}
	switch o.imm {
	case immBlock:
		c.open(r, in)
	case immLabel, immLabels:
		bound("label", in.a, len(c.frames))
		c.b.blocks += 1 + int(in.b)
		if r.ok() {
			c.pairs += c.frames[len(c.frames)-1-int(in.a)].takes * (1 + int(in.b))
		}
	case immFunction:
		bound("function", in.a, c.m.functionCount())
		if r.ok() {
			c.function(in, cost)
		}
	case immIndirect:
		bound("type", in.a, len(c.m.types))
		bound("table", in.b, len(c.m.tables))
		c.m.Recursive = true
		c.b.blocks++
	case immLocal:
		bound("local", in.a, c.b.locals)
		if in.op != opLocalGet && r.ok() {
			c.assign(int(in.a))
		}
	case immGlobal:
		bound("global", in.a, len(c.m.globals))
		if in.op == opGlobalSet && r.ok() && !c.m.globals[in.a].mutable {
			r.failAt(in.start, "global %d is constant", in.a)
		}
		if in.op == opGlobalSet && r.ok() {
			c.assign(c.b.locals + int(in.a))
		}
	case immTable:
		bound("table", in.a, len(c.m.tables))
	case immDataMemory, immData:
		if c.m.dataCount < 0 {
			r.failAt(in.start, "a data segment is used, but there is no data count section")
			return
		}
		bound("data segment", in.a, c.m.dataCount)
	case immElemTable:
		bound("element segment", in.a, len(c.m.elems))
		bound("table", in.b, len(c.m.tables))
	case immElem:
		bound("element segment", in.a, len(c.m.elems))
	case immTableTable:
		bound("table", in.a, len(c.m.tables))
		bound("table", in.b, len(c.m.tables))
	}
	c.block(r, in, cost)
}

// block handles what opens no block but concerns them, and what becomes a call.
func (c *bodyChecker) block(r *reader, in *instr, cost *uint32) {
	switch in.op {
	case opReturn, opUnreachable, opReturnCall, opReturnCallIndirect:
		c.b.exits += blocksOfExit
	case opIf, opBrIf, opLoop:
		c.b.exits++ // besides what is jumped to, what follows
	case opI32TruncF32S, opI32TruncF32S + 1, opI32TruncF32S + 2, opI32TruncF32S + 3, opI64TruncF32S, opI64TruncF32S + 1, opI64TruncF32S + 2, opI64TruncF32S + 3:
		c.b.traps++
	case opElse:
		top := &c.frames[len(c.frames)-1]
		if top.op != opIf {
			r.failAt(in.start, "an else without an if")
		}
		top.op = opElse
		c.b.blocks++
	case opEnd:
		if c.frames[len(c.frames)-1].op == opLoop {
			c.openLoops = c.openLoops[:len(c.openLoops)-1]
		}
		c.left = c.frames[len(c.frames)-1].long
		c.frames = c.frames[:len(c.frames)-1]
	case opMemoryInit, opMemoryCopy, opMemoryFill:
		c.b.stores++
		*cost += costCall
		c.b.blocks++
	case opMemoryGrow:
		c.m.Grows = true
		*cost += costCall
		c.b.blocks++
	case opTableInit, opTableCopy, opTableGrow, opTableFill:
		c.b.blocks += blocksOfCharge
		c.m.lasts("code changes a table")
	case opTableSet:
		c.m.lasts("code changes a table")
	case opDataDrop, opElemDrop:
		c.m.lasts("code drops a segment")
	}
}

func (c *bodyChecker) open(r *reader, in *instr) {
	if len(c.frames) > MaxNesting {
		r.failAt(in.start, "blocks nest deeper than %d", MaxNesting)
		return
	}
	if in.a < blockValue && int64(in.a) >= int64(len(c.m.types)) {
		r.failAt(in.start, "type %d, but there are %d", in.a, len(c.m.types))
		return
	}
	f := frame{op: in.op, cost: c.frames[len(c.frames)-1].cost}
	c.b.blocks++
	if in.a < blockValue {
		t := c.m.types[in.a]
		f.takes = len(t.Results)
		if in.op == opLoop {
			f.takes = len(t.Params)
		}
		c.pairs += len(t.Params) + len(t.Results)
	} else if in.a != blockEmpty && in.op != opLoop {
		f.takes = 1
		c.pairs++
	}
	if in.op == opLoop {
		c.b.blocks += blocksOfCharge
		c.loops++
		c.openLoops = append(c.openLoops, c.loops)
		f.cost = len(c.b.costs)
		c.b.costs = append(c.b.costs, 1)
	}
	c.frames = append(c.frames, f)
}

func (c *bodyChecker) function(in *instr, cost *uint32) {
	defined := int(in.a) - len(c.m.imports)
	switch {
	case in.op == opRefFunc:
		c.m.usesRef = true
		if defined >= 0 {
			c.m.bodies[defined].charge = true // it may be called indirectly
		}
	case defined < 0:
		*cost += costHostCall
		c.b.blocks++
	default:
		c.b.blocks++
		c.b.calls = append(c.b.calls, callSite{int32(c.frames[len(c.frames)-1].cost), int32(defined)})
	}
}
