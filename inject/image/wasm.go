package image

import (
	"fmt"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// WasmRules are what the ABI says of a module: what it can import, and its entry point.
func WasmRules() *wasmcode.Rules {
	r := &wasmcode.Rules{Module: abi.Module, Entry: abi.Entry, Type: wasmType("ii", "i")}
	for _, c := range abi.Calls() {
		r.Imports = append(r.Imports, wasmcode.Import{Name: c.Name, Type: wasmType(c.Types())})
	}
	return r
}

// wasmType reads types as abi.Wasm writes them.
func wasmType(params, results string) wasmcode.Type {
	types := func(letters string) (list []wasmcode.ValType) {
		for _, l := range letters {
			list = append(list, map[rune]wasmcode.ValType{'i': wasmcode.I32, 'I': wasmcode.I64}[l])
		}
		return list
	}
	return wasmcode.Type{Params: types(params), Results: types(results)}
}

// inspectWasm checks what a receiver can check before a compiler sees the module: that its sections are in order, that it
// imports nothing but host calls, exports the entry point and its own single memory. It returns the host calls it imports.
func inspectWasm(code []byte) (imports []string, err error) {
	rules := WasmRules()
	rules.Memory = "memory"
	m, err := wasmcode.Inspect(code, rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return m.ImportsUsed(), nil
}
