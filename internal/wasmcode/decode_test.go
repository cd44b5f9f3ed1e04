package wasmcode

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDecodeMinimal(t *testing.T) {
	m, err := Decode(withCode(zero...), testRules())
	if err != nil {
		t.Fatal(err)
	}
	if m.MinPages != 1 || m.Entry != 0 || m.Init != -1 || m.Start != -1 || m.Recursive {
		t.Errorf("%+v", m)
	}
}

// bad is a module that Decode refuses, with a part of what it says.
type bad struct {
	name string
	wasm []byte
	want string
}

func refused(t *testing.T, cases []bad) {
	t.Helper()
	for _, c := range cases {
		_, err := Decode(c.wasm, testRules())
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

func TestRefusedSections(t *testing.T) {
	imp := func(module, field string, kind ...byte) []byte {
		return section(secImport, vec(cat(name(module), name(field), kind)))
	}
	refused(t, []bad{
		{"nothing", nil, "not a WebAssembly binary"},
		{"version 2", []byte("\x00asm\x02\x00\x00\x00"), "not a WebAssembly binary"},
		{"only the preamble", module(), "defines no memory"},
		{"unknown section", module(raw(13, 0)), "unknown section 13"},
		{"section order", module(functions, types), "function section, offset"},
		{"section twice", module(types, types), "the type section is out of order"},
		{"section too long", module(raw(secType, 5, 1)), "the type section of 5 bytes leaves its section"},
		{"rest in a section", module(section(secType, vec(), raw(0))), "1 bytes too many"},
		{"huge count", module(section(secType, raw(0xff, 0xff, 0xff, 0xff, 0x0f))), "the limit is 4096"},
		{"count beyond the bytes", module(section(secType, raw(9, 0x60))), "9 types in 1 bytes"},
		{"number too long", module(section(secType, raw(0x80, 0x80, 0x80, 0x80, 0x80, 0))), "more than 5 bytes"},
		{"number too large", module(section(secType, raw(0xff, 0xff, 0xff, 0xff, 0x1f))), "does not fit in 32 bits"},
		{"type form", module(section(secType, vec(raw(0x5f)))), "type form 0x5f"},
		{"value type", module(section(secType, vec(raw(0x60, 1, 0x40, 0)))), "unknown value type 0x40"},
		{"import from elsewhere", module(types, imp("env", "puts", 0, 0)), "env.puts is from an unknown module"},
		{"import of WASI", module(types, imp("wasi_snapshot_preview1", "fd_write", 0, 0)), "wasi_snapshot_preview1.fd_write is WASI's"},
		{"import of a memory", module(types, imp("host", "memory", 2, 0, 1)), "is a memory; define it"},
		{"import of a table", module(types, imp("host", "t", 1, 0x70, 0, 1)), "is a table"},
		{"import of a global", module(types, imp("host", "g", 3, 0x7f, 0)), "is a global"},
		{"import of a tag", module(types, imp("host", "g", 4, 0, 0)), "unknown kind"},
		{"unknown import", module(types, imp("host", "three", 0, 0)), "host.three: it does not exist"},
		{"import's type", module(types, imp("host", "one", 0, 0)), "has type (i32, i32) -> (i32), but the host's is () -> (i32)"},
		{"import of an added name", module(types, imp("host", ImportTick, 0, 0)), "does not exist"},
		{"name is no UTF-8", module(types, section(secImport, vec(raw(1, 0xff)))), "not UTF-8"},
	})
}

func TestRefusedDefinitions(t *testing.T) {
	code := section(secCode, vec(fn(noLocals, zero...)))
	refused(t, []bad{
		{"function's type", module(types, section(secFunction, vec(raw(2)))), "type 2, but there are 2"},
		{"no code", module(types, functions, memory), "1 functions are declared, but 0 have code"},
		{"two memories", module(types, section(secMemory, vec(raw(0, 1), raw(0, 1)))), "2 memories; the limit is 1"},
		{"64-bit memory", module(types, section(secMemory, vec(raw(4, 1)))), "flags 0x4"},
		{"huge memory", module(types, section(secMemory, vec(raw(0, 0x80, 0x80, 0x04)))), "65536 pages; the limit is 65535"},
		{"memory's maximum", module(types, section(secMemory, vec(raw(1, 2, 1)))), "maximum 1 is below the minimum 2"},
		{"huge table", module(types, section(secTable, vec(raw(0x70, 0, 0x81, 0x80, 0x04)))), "65537 elements"},
		{"table of numbers", module(types, section(secTable, vec(raw(0x7f, 0, 1)))), "unknown reference type"},
		{"no entry", module(types, functions, memory, code), `no function "main"`},
		{"entry's type", module(types, section(secFunction, vec(raw(1))), memory, exports, section(secCode, vec(fn(noLocals)))), "entry point main has type () -> ()"},
		{"export twice", module(types, functions, memory, section(secExport, vec(cat(name("main"), raw(0, 0)), cat(name("main"), raw(0, 0))))), `two exports are called "main"`},
		{"export of nothing", module(types, functions, memory, section(secExport, vec(cat(name("main"), raw(0, 1))))), "function 1, but there are 1"},
		{"start's type", module(types, functions, memory, section(secStart, raw(0))), "start function has type"},
		{"global's constant", module(section(secGlobal, vec(raw(0x7f, 0, byte(opI64Const), 0, 0x0b)))), "constant of type i64 where i32"},
		{"global reads a global", module(section(secGlobal, vec(raw(0x7f, 0, byte(opGlobalGet), 0, 0x0b)))), "reads a global"},
		{"global computes", module(section(secGlobal, vec(raw(0x7f, 0, byte(opI32Const), 0, byte(opI32Const), 0, byte(opI32Add), 0x0b)))), "more than one instruction"},
		{"global's mutability", module(section(secGlobal, vec(raw(0x7f, 2, byte(opI32Const), 0, 0x0b)))), "mutability is 2"},
		{"data beyond memory", module(types, functions, memory, exports, code, section(secData, vec(cat(raw(0, byte(opI32Const)), sleb(nil, 65534), raw(0x0b, 3, 1, 2, 3))))), "beyond the memory's 1 pages"},
		{"data in memory 1", module(types, functions, memory, exports, code, section(secData, vec(raw(2, 1, byte(opI32Const), 0, 0x0b, 0)))), "memory 1"},
		{"data count", module(types, functions, memory, exports, section(secDataCount, raw(2)), code), "2 data segments are announced"},
		{"elements without a table", module(types, functions, memory, exports, section(secElement, vec(raw(0, byte(opI32Const), 0, 0x0b, 0)))), "table 0, but there are 0"},
		{"elements beyond the table", module(types, functions, section(secTable, vec(raw(0x70, 0, 1))), memory, exports, section(secElement, vec(raw(0, byte(opI32Const), 1, 0x0b, 1, 0)))), "ends at 2, but table 0 has 1"},
		{"element's flags", module(types, functions, memory, exports, section(secElement, vec(raw(8)))), "flags 8"},
	})
}

func TestRefusedCode(t *testing.T) {
	refused(t, []bad{
		{"two bodies", module(types, functions, memory, exports, section(secCode, vec(fn(noLocals, zero...), fn(noLocals, zero...)))), "2 function bodies for 1 functions"},
		{"locals", module(types, functions, memory, exports, section(secCode, vec(fn(raw(2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f))))), "4294967297 locals; the limit is 4096"},
		{"instruction", withCode(0x06), "unknown instruction 0x06"},
		{"prefixed instruction", withCode(0xfc, 18), "unknown instruction 0xfc 0x12"},
		{"instruction of many bits", withCode(0xfd, 0x80, 0x02), "unknown instruction 0xfd 0x100"},
		{"exceptions", withCode(0x08, 0), "unknown instruction 0x08"},
		{"label", withCode(byte(opBr), 1), "label 1, but there are 1"},
		{"table label", withCode(append(zero, 0x0e, 1, 0, 7)...), "label 7, but there are 1"},
		{"call", withCode(byte(opCall), 1), "function 1, but there are 1"},
		{"indirect call", withCode(append(zero, byte(opCallIndirect), 0, 0)...), "table 0, but there are 0"},
		{"local", withCode(byte(opLocalGet), 2), "local 2, but there are 2"},
		{"global", withCode(byte(opGlobalGet), 0), "global 0, but there are 0"},
		{"block type", withCode(byte(opBlock), 0x77, byte(opEnd)), "unknown block type -9"},
		{"block's type index", withCode(byte(opBlock), 2, byte(opEnd)), "type 2, but there are 2"},
		{"alignment", withCode(append(zero, 0x28, 3, 0)...), "alignment 2^3 of an access to 2^2 bytes"},
		{"memory 1", withCode(byte(opMemorySize), 1), "only memory 0 exists"},
		{"else without if", withCode(byte(opElse)), "else without an if"},
		{"two elses", withCode(append(zero, byte(opIf), 0x40, byte(opElse), byte(opElse), byte(opEnd))...), "else without an if"},
		{"code after the end", withCode(append(zero, byte(opEnd))...), "1 bytes after the function's end"},
		{"no end", module(types, functions, memory, exports, section(secCode, vec(raw(3, 0, byte(opI32Const), 0)))), "ends in the middle"},
		{"lane", withCode(0xfd, 21, 16), "lane 16 of 16"},
		{"shuffle", withCode(append([]byte{0xfd, 13}, bytes.Repeat([]byte{32}, 16)...)...), "lane 32 of 32"},
		{"data without a count", withCode(cat(zero, zero, zero, raw(0xfc, 8, 0, 0))...), "no data count section"},
		{"select of two types", withCode(0x1c, 2, 0x7f, 0x7f), "2 types in a select; the limit is 1"},
		{"deep nesting", withCode(append(bytes.Repeat([]byte{byte(opBlock), 0x40}, 600), bytes.Repeat([]byte{byte(opEnd)}, 600)...)...), "nest deeper than 512"},
		{"i32 too wide", withCode(byte(opI32Const), 0xff, 0xff, 0xff, 0xff, 0x4f), "does not fit in 32 bits"},
		{"i64 too long", withCode(append([]byte{byte(opI64Const)}, bytes.Repeat([]byte{0x80}, 10)...)...), "64-bit number takes too many bytes"},
	})
}

func TestErrorSaysWhere(t *testing.T) {
	_, err := Decode(withCode(byte(opCall), 1), testRules())
	const want = "wasm: code section, function 0, offset 0x2c: function 1, but there are 1"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestSizeLimits(t *testing.T) {
	if _, err := Decode(make([]byte, MaxCodeBytes+1), testRules()); err == nil || !strings.Contains(err.Error(), "the limit is") {
		t.Error(err)
	}
	body := bytes.Repeat([]byte{0x01}, MaxFunctionBytes)
	if _, err := Decode(withCode(append(body, zero...)...), testRules()); err == nil || !strings.Contains(err.Error(), "split the function") {
		t.Error(err)
	}
}

// Every prefix of a good module, and every module with one byte changed, must be refused or decoded without a panic.
func TestDamagedModules(t *testing.T) {
	for _, wasm := range corpus(t) {
		rules := hostRules()
		for i := range wasm {
			Decode(wasm[:i], rules) // which may be a whole module, without its last sections
			changed := bytes.Clone(wasm)
			changed[i] ^= 1 << (i % 8)
			if m, err := Decode(changed, rules); err == nil {
				if _, err := m.Instrument(Options{CheckStores: true}); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// hostRules accept any import of the ABI's module, as the test modules of inject/wasm have them.
func hostRules() *Rules {
	i32, i64 := I32, I64
	f := func(name string, results []ValType, params ...ValType) Import {
		return Import{Name: name, Type: Type{Params: params, Results: results}}
	}
	one := []ValType{i32}
	return &Rules{
		Module: "wherry",
		Imports: []Import{
			f("self", one), f("elements", one), f("owner", one, i64, i32), f("shard_rows", one, i32, i32), f("row", []ValType{i64}, i32, i64),
			f("window", one, i32, i32), f("payload", one, i32), f("scratch", one, i64), f("reply", one, i32, i32),
			f("reply_part", one, i32, i32), f("forward", one, i32, i32, i32), f("fork", one, i32, i32, i32),
			f("get", one, i32, i32, i64, i32, i32), f("put", one, i32, i32, i64, i32, i32),
			f("atomic", one, i32, i32, i64, i32, i32, i64, i64, i32), f("log", nil, i32, i32),
			f("now", []ValType{i64}), f("remaining", []ValType{i64}),
		},
		Entry: "wherry_main",
		Type:  Type{Params: []ValType{i32, i32}, Results: []ValType{i32}},
		Init:  "_initialize",
	}
}

// corpus is the compiled C of inject/wasm's tests.
func corpus(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("../../inject/wasm/testdata/*.wasm")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no test modules")
	}
	var out [][]byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}
