package wasmcode

import (
	"slices"
	"testing"
)

// TestStatics: where a module says that its static variables lie, and what it changes that cannot be put back.
func TestStatics(t *testing.T) {
	constant := func(v int64) []byte { return cat(raw(byte(I32), 0, byte(opI32Const)), sleb(nil, v), raw(byte(opEnd))) }
	bounds := func(from, to int64) [][]byte {
		return [][]byte{section(secGlobal, vec(constant(from), constant(to), raw(byte(I64), 1, byte(opI64Const), 5, byte(opEnd)))),
			section(secExport, vec(cat(name("main"), raw(0, 0)), cat(name("__global_base"), raw(3, 0)), cat(name("__data_end"), raw(3, 1))))}
	}
	data := section(secData, vec(cat(raw(0, byte(opI32Const)), sleb(nil, 1024), raw(byte(opEnd), 1, 9))))
	code := func(b ...byte) []byte { return section(secCode, vec(fn(noLocals, cat(b, zero)...))) }
	table := section(secTable, vec(raw(byte(FuncRef), 0, 4)))
	set := []byte{byte(opI32Const), 0, 0xd0, byte(FuncRef), 0x26, 0}
	for _, c := range []struct {
		name     string
		wasm     []byte
		from, to uint32
		lasting  string
	}{
		{"said", module(cat(append([][]byte{types, functions, memory}, append(bounds(1024, 2000), code(), data)...)...)), 1024, 2000, ""},
		{"no data", module(cat(append([][]byte{types, functions, memory}, append(bounds(512, 512), code())...)...)), 512, 512, ""},
		{"said wrong", module(cat(append([][]byte{types, functions, memory}, append(bounds(1030, 2000), code(), data)...)...)), 0, 1 << 16, ""},
		{"beyond the memory", module(cat(append([][]byte{types, functions, memory}, append(bounds(1024, 70000), code(), data)...)...)), 0, 1 << 16, ""},
		{"not said", module(types, functions, memory, exports, code(), data), 0, 1 << 16, ""},
		{"a table", module(types, functions, table, memory, exports, code(set...)), 0, 1 << 16, "code changes a table"},
		{"a segment", module(types, functions, memory, exports, section(secDataCount, raw(1)), code(0xfc, 9, 0), section(secData, vec(raw(1, 1, 9)))), 0, 1 << 16, "code drops a segment"},
		{"a reference", module(types, functions, memory, section(secGlobal, vec(raw(byte(FuncRef), 1, 0xd0, byte(FuncRef), byte(opEnd)))), exports, code()), 0, 1 << 16,
			"global 0 is mutable and of type funcref"},
	} {
		m, err := Decode(c.wasm, testRules())
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if m.Statics.From != c.from || m.Statics.To != c.to || m.Lasting != c.lasting {
			t.Errorf("%s: %+v, %q; want %d to %d, %q", c.name, m.Statics, m.Lasting, c.from, c.to, c.lasting)
		}
		if got := m.Variables(); c.name == "said" && !slices.Equal(got, []string{"__variable2"}) {
			t.Errorf("%s: variables %v", c.name, got)
		}
	}
}
