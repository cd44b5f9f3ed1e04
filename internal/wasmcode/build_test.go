package wasmcode

func module(sections ...[]byte) []byte {
	b := append([]byte(nil), preamble...)
	for _, s := range sections {
		b = append(b, s...)
	}
	return b
}

func section(id byte, parts ...[]byte) []byte {
	body := cat(parts...)
	return append(uleb([]byte{id}, uint32(len(body))), body...)
}

// vec is a section's vector: its length and its items.
func vec(items ...[]byte) []byte { return append(uleb(nil, uint32(len(items))), cat(items...)...) }

func cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func name(s string) []byte { return str(nil, s) }

func raw(b ...byte) []byte { return b }

// fn is one function's code: groups of locals (encoded, with their count) and instructions without the end.
func fn(locals []byte, code ...byte) []byte {
	body := append(cat(locals, code), byte(opEnd))
	return append(uleb(nil, uint32(len(body))), body...)
}

var (
	noLocals  = raw(0)
	entryType = raw(0x60, 2, byte(I32), byte(I32), 1, byte(I32))
	voidType  = raw(0x60, 0, 0)
	types     = section(secType, vec(entryType, voidType))
	functions = section(secFunction, vec(raw(0)))
	memory    = section(secMemory, vec(raw(0, 1)))
	exports   = section(secExport, vec(cat(name("main"), raw(0, 0))))
	zero      = raw(byte(opI32Const), 0)
)

// testRules accept the two host calls that tests use.
func testRules() *Rules {
	return &Rules{
		Module:  "host",
		Imports: []Import{{Name: "one", Type: Type{Results: []ValType{I32}}}, {Name: "two", Type: Type{Params: []ValType{I64}}}},
		Entry:   "main",
		Type:    Type{Params: []ValType{I32, I32}, Results: []ValType{I32}},
		Init:    "init",
	}
}

// withCode is a module whose entry point has this code.
func withCode(code ...byte) []byte {
	return module(types, functions, memory, exports, section(secCode, vec(fn(noLocals, code...))))
}
