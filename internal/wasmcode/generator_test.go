package wasmcode

import "pgregory.net/rapid"

// generator writes random, valid, terminating modules. Every function takes and
// returns (i32, i32) -> i32; each entry and each round of a loop takes from a budget in global 0,
// and a function without budget returns at once.
type generator struct {
	t *rapid.T
}

const (
	genFuncs   = 4
	genGlobals = 3 // i32 budget, i32, i64
	genData    = 100
	// Locals: two parameters, then i32, i64, f64, v128 and a loop counter.
	locI32  = 2
	locI64  = 3
	locF64  = 4
	locV128 = 5
	locLoop = 6
)

func (g *generator) n(limit int) int { return rapid.IntRange(0, limit-1).Draw(g.t, "n") }

func (g *generator) module() []byte {
	var bodies, elems [][]byte
	for i := range genFuncs {
		bodies = append(bodies, g.function())
		elems = append(elems, raw(byte(i)))
	}
	max := section(secMemory, vec(raw(1, 1, testPages)))
	i32const := func(v int64) []byte { return append(sleb(raw(byte(opI32Const)), v), byte(opEnd)) }
	globals := section(secGlobal, vec(
		cat(raw(byte(I32), 1), i32const(60)),
		cat(raw(byte(I32), 1), i32const(7)),
		raw(byte(I64), 1, byte(opI64Const), 9, byte(opEnd))))
	passive := make([]byte, genData)
	for i := range passive {
		passive[i] = byte(i + 1)
	}
	return module(
		section(secType, vec(entryType, voidType)),
		section(secFunction, vec(raw(0), raw(0), raw(0), raw(0))),
		section(secTable, vec(raw(0x70, 1, 6, 9))),
		max, globals,
		section(secExport, vec(cat(name("main"), raw(0, 0)), cat(name("other"), raw(0, 3)))),
		section(secElement, vec(
			cat(raw(0, byte(opI32Const), 1, byte(opEnd)), vec(elems...)),
			cat(raw(1, 0), vec(elems...)))),
		section(secDataCount, raw(2)),
		section(secCode, vec(bodies...)),
		section(secData, vec(
			cat(raw(0), i32const(64), raw(5), []byte("hello")),
			cat(raw(1), uleb(nil, genData), passive))))
}

func (g *generator) function() []byte {
	locals := cat(vec(raw(1, byte(I32)), raw(1, byte(I64)), raw(1, byte(F64)), raw(1, byte(V128)), raw(1, byte(I32))))
	code := g.spend(cat(raw(byte(opI32Const), 5, byte(opReturn))))
	for range g.n(5) {
		code = append(code, g.statement(3)...)
	}
	return fn(locals, append(code, g.expr(I32, 3)...)...)
}

// spend takes one from the budget; without budget it runs otherwise.
func (g *generator) spend(otherwise []byte) []byte {
	return cat(raw(byte(opGlobalGet), 0, byte(opI32Const), 1, byte(opI32Sub), byte(opGlobalSet), 0,
		byte(opGlobalGet), 0, byte(opI32Const), 0, 0x48, byte(opIf), 0x40), otherwise, raw(byte(opEnd)))
}

func (g *generator) statement(depth int) []byte {
	if depth == 0 {
		return cat(g.expr(I32, 0), raw(byte(opLocalSet), locI32))
	}
	d := depth - 1
	switch g.n(18) {
	case 0:
		return cat(g.expr(I64, d), raw(byte(opLocalSet), locI64))
	case 1:
		return cat(g.expr(F64, d), raw(byte(opLocalSet), locF64))
	case 2:
		return cat(g.expr(V128, d), raw(byte(opLocalSet), locV128))
	case 3:
		return cat(g.expr(I32, d), raw(byte(opGlobalSet), 1))
	case 4:
		return cat(g.expr(I64, d), raw(byte(opGlobalSet), 2))
	case 5: // i32 and i64 stores of all widths
		op := 0x36 + g.n(9)
		v := map[int]ValType{0x36: I32, 0x38: F32, 0x39: F64, 0x3a: I32, 0x3b: I32}[op]
		if v == 0 {
			v = I64
		}
		return cat(g.address(d), g.expr(v, d), raw(byte(op), 0), uleb(nil, uint32(g.n(5000))))
	case 6:
		return cat(g.address(d), g.expr(V128, d), raw(0xfd, 11, 0, byte(g.n(100))))
	case 7: // v128.store lane
		w := g.n(4)
		return cat(g.address(d), g.expr(V128, d), raw(0xfd, byte(88+w), 0, byte(g.n(100)), byte(g.n(16>>w))))
	case 8:
		return cat(g.address(d), g.expr(I32, d), g.length(), raw(0xfc, 11, 0))
	case 9:
		return cat(g.address(d), g.address(d), g.length(), raw(0xfc, 10, 0, 0))
	case 10:
		return cat(g.address(d), g.mask(d, 63), raw(byte(opI32Const), 32), raw(0xfc, 8, 1, 0))
	case 11: // a loop of up to ten rounds
		body := cat(raw(byte(opLocalGet), locLoop), raw(byte(opI32Const), 1, byte(opI32Sub), byte(opLocalTee), locLoop, byte(opI32Eqz), byte(opBrIf), 1),
			g.spend(raw(byte(opBr), 2)), g.statement(d), raw(byte(opBr), 0))
		return cat(raw(byte(opI32Const), byte(1+g.n(10)), byte(opLocalSet), locLoop, byte(opBlock), 0x40, byte(opLoop), 0x40), body, raw(byte(opEnd), byte(opEnd)))
	case 12:
		return cat(g.expr(I32, d), raw(byte(opIf), 0x40), g.statement(d), raw(byte(opElse)), g.statement(d), raw(byte(opEnd)))
	case 13:
		return cat(raw(byte(opBlock), 0x40), g.statement(d), g.expr(I32, d), raw(byte(opBrIf), 0), g.statement(d), raw(byte(opEnd)))
	case 14: // table.set, table.fill, table.copy, table.init
		switch g.n(4) {
		case 0:
			return cat(raw(byte(opI32Const), byte(g.n(6))), raw(byte(opRefFunc), byte(g.n(genFuncs)), 0x26, 0))
		case 1:
			return cat(raw(byte(opI32Const), byte(g.n(3)), byte(opRefNull), 0x70, byte(opI32Const), byte(g.n(3)), 0xfc, 17, 0))
		case 2:
			return raw(byte(opI32Const), byte(g.n(3)), byte(opI32Const), byte(g.n(3)), byte(opI32Const), byte(g.n(4)), 0xfc, 14, 0, 0)
		}
		return raw(byte(opI32Const), byte(g.n(3)), byte(opI32Const), byte(g.n(2)), byte(opI32Const), byte(g.n(3)), 0xfc, 12, 1, 0)
	case 15: // br_table over two blocks
		return cat(raw(byte(opBlock), 0x40, byte(opBlock), 0x40), g.expr(I32, d), raw(0x0e, 1, 0, 1, byte(opEnd)), g.statement(d), raw(byte(opEnd)))
	case 16: // atomic store
		return cat(g.mask(d, 4088), g.expr(I64, d), raw(0xfe, 0x18, 3, 8))
	}
	return cat(g.expr(I32, d), raw(byte(opLocalSet), locI32), g.statement(d))
}

// address is an i32 below 32 KiB, so that accesses stay in the first page.
func (g *generator) address(d int) []byte { return g.mask(d, 0x7fff) }

func (g *generator) mask(d int, m int64) []byte {
	return append(sleb(append(g.expr(I32, d), byte(opI32Const)), m), 0x71)
}

func (g *generator) length() []byte { return sleb(raw(byte(opI32Const)), int64(g.n(9000))) }

func (g *generator) binary(v ValType, d int, op ...byte) []byte {
	return cat(g.expr(v, d), g.expr(v, d), op)
}

func (g *generator) expr(v ValType, depth int) []byte {
	if depth <= 0 {
		return g.leaf(v)
	}
	d := depth - 1
	switch v {
	case I32:
		return g.i32(d)
	case I64:
		return g.i64(d)
	case F32:
		if g.n(2) == 0 {
			return cat(g.expr(I32, d), raw(0xb2)) // f32.convert_i32_s
		}
		return g.binary(F32, 0, 0x92)
	case F64:
		switch g.n(3) {
		case 0:
			return cat(g.expr(I64, d), raw(0xb9)) // f64.convert_i64_s
		case 1:
			return g.binary(F64, d, 0xa0)
		}
		return cat(g.expr(F64, d), raw(0x99)) // abs
	}
	switch g.n(4) {
	case 0:
		return cat(g.expr(I32, d), raw(0xfd, 17)) // i32x4.splat
	case 1:
		return cat(g.binary(V128, d), raw(0xfd, 0xae, 1)) // i32x4.add
	case 2:
		return cat(g.address(d), raw(0xfd, 0, 0, byte(g.n(100)))) // v128.load
	}
	return cat(g.expr(V128, d), g.expr(I64, d), raw(0xfd, 30, byte(g.n(2)))) // i64x2.replace_lane
}

func (g *generator) leaf(v ValType) []byte {
	constant := g.n(2) == 0
	switch {
	case v == I32 && constant:
		return sleb(raw(byte(opI32Const)), int64(rapid.Int32().Draw(g.t, "c")))
	case v == I32:
		return raw(byte(opLocalGet), byte(g.n(3)))
	case v == I64 && constant:
		return sleb(raw(byte(opI64Const)), rapid.Int64().Draw(g.t, "c"))
	case v == I64:
		return raw(byte(opLocalGet), locI64)
	case v == F32:
		return raw(byte(opF32Const), 0, 0, byte(g.n(256)), 0x42)
	case v == F64 && constant:
		return raw(byte(opF64Const), 0, 0, 0, 0, 0, byte(g.n(256)), 0x20, 0x40)
	case v == F64:
		return raw(byte(opLocalGet), locF64)
	}
	return raw(byte(opLocalGet), locV128)
}

func (g *generator) i32(d int) []byte {
	switch g.n(16) {
	case 0, 1:
		return g.binary(I32, d, byte(0x6a+g.n(15))) // arithmetic; division may trap
	case 2:
		return g.binary(I32, d, byte(0x46+g.n(10)))
	case 3:
		return g.binary(I64, d, byte(0x51+g.n(10)))
	case 4:
		return cat(g.expr(I64, d), raw(0xa7))
	case 5:
		return cat(g.address(d), raw(byte([]int{0x28, 0x2c, 0x2d, 0x2e, 0x2f}[g.n(5)]), 0, byte(g.n(100))))
	case 6:
		return raw(byte(opMemorySize), 0)
	case 7:
		return raw(byte(opI32Const), byte(g.n(3)), byte(opMemoryGrow), 0)
	case 8:
		return cat(g.expr(I32, d), g.expr(I32, d), raw(byte(opCall), byte(g.n(genFuncs))))
	case 9: // indirect; the table has null ends
		return cat(g.expr(I32, d), g.expr(I32, d), raw(byte(opI32Const), byte(1+g.n(4)), byte(opCallIndirect), 0, 0))
	case 10:
		return cat(g.expr(I32, d), g.expr(I32, d), g.expr(I32, d), raw(0x1b))
	case 11:
		return cat(g.expr(I32, d), raw(byte(opIf), byte(I32)), g.expr(I32, d), raw(byte(opElse)), g.expr(I32, d), raw(byte(opEnd)))
	case 12:
		return cat(g.mask(d, 4092), g.expr(I32, d), raw(0xfe, 0x1e, 2, 4)) // i32.atomic.rmw.add
	case 13:
		return cat(g.mask(d, 4092), g.expr(I32, d), g.expr(I32, d), raw(0xfe, 0x48, 2, 0)) // i32.atomic.rmw.cmpxchg
	case 14:
		return cat(g.expr(F64, d), raw(0xfc, 2)) // i32.trunc_sat_f64_s
	}
	switch g.n(4) {
	case 0:
		return raw(byte(opI32Const), byte(g.n(6)), 0x25, 0, 0xd1) // ref.is_null(table.get)
	case 1:
		return cat(g.expr(V128, d), raw(0xfd, 27, byte(g.n(4)))) // i32x4.extract_lane
	case 2:
		return cat(g.mask(d, 4092), raw(byte(opI32Const), 1, 0xfe, 0, 2, 0)) // notify
	}
	return cat(raw(byte(opRefFunc), byte(g.n(genFuncs)), byte(opI32Const), 1, 0xfc, 15, 0)) // table.grow
}

func (g *generator) i64(d int) []byte {
	switch g.n(5) {
	case 0:
		return g.binary(I64, d, byte(0x7c+g.n(3)))
	case 1:
		return cat(g.expr(I32, d), raw(byte(0xac+g.n(2))))
	case 2:
		return cat(g.address(d), raw(0x29, 0, byte(g.n(100))))
	case 3:
		return raw(byte(opGlobalGet), 2)
	}
	return cat(g.mask(d, 4088), g.expr(I64, d), g.expr(I64, d), raw(0xfe, 0x49, 3, 8)) // i64.atomic.rmw.cmpxchg
}
