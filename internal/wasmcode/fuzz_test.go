package wasmcode

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// FuzzDecode: nothing makes the decoder or the rewriter panic, and what an
// engine thinks of a module's code does not change by rewriting it.
func FuzzDecode(f *testing.F) {
	for _, wasm := range corpus(f) {
		f.Add(wasm)
	}
	f.Add(withCode(zero...))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		compare(t, wasm, hostRules())
		compare(t, wasm, testRules())
	})
}

// FuzzBody is FuzzDecode for the instructions of one function, in a module
// that has one of everything.
func FuzzBody(f *testing.F) {
	f.Add(zero)
	f.Add(cat(raw(byte(opBlock), 0x40, byte(opLoop), 0x40, byte(opBr), 0, byte(opEnd), byte(opEnd)), zero))
	f.Add(cat(zero, zero, zero, raw(0xfc, 10, 0, 0), zero, zero, zero, raw(0xfc, 8, 0, 0), zero))
	f.Add(cat(zero, zero, raw(byte(opI64ExtendI32U), 0x37, 3, 8), zero, zero, raw(0xfe, 0, 2, 0)))
	f.Add(cat(zero, zero, raw(byte(opReturnCall), 0)))
	f.Add(cat(zero, zero, zero, raw(byte(opReturnCallIndirect), 0, 0)))
	f.Fuzz(func(t *testing.T, code []byte) {
		compare(t, module(types, functions, section(secTable, vec(raw(0x70, 0, 3))), memory,
			section(secGlobal, vec(raw(byte(I32), 1, byte(opI32Const), 0, byte(opEnd)))), exports,
			section(secElement, vec(raw(0, byte(opI32Const), 0, byte(opEnd), 1, 0))), section(secDataCount, raw(1)),
			section(secCode, vec(fn(vec(raw(1, byte(I64)), raw(1, byte(V128))), code...))),
			section(secData, vec(raw(1, 3, 1, 2, 3)))), testRules())
	})
}

// compare checks that an engine accepts what Decode accepts before
// instrumenting exactly if it does so after.
func compare(t *testing.T, wasm []byte, rules *Rules) {
	m, err := Decode(wasm, rules)
	if err != nil {
		return
	}
	if o, err := Inspect(wasm, rules); err != nil || !slices.Equal(o.Imports, m.Imports) || o.Entry != m.Entry || o.Init != m.Init || o.MinPages != m.MinPages {
		t.Fatalf("inspected it is %+v, %v", o, err)
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features))
	defer rt.Close(ctx)
	_, plain := rt.CompileModule(ctx, wasm)
	for _, check := range []bool{false, true} {
		code, err := m.Instrument(Options{CheckStores: check})
		if err != nil {
			t.Fatalf("check %t: %v", check, err)
		}
		_, err = rt.CompileModule(ctx, code)
		if plain == nil && err != nil {
			t.Errorf("check %t: the module was valid, but instrumented it is not: %v", check, err)
		}
		if plain != nil && err == nil && strings.Contains(plain.Error(), "invalid function") {
			t.Errorf("check %t: instrumenting made valid what was not: %v", check, plain)
		}
	}
}
