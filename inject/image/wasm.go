package image

import (
	"fmt"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// WasmRules are what an ABI version says of a module: what it can import, and its entry point.
func WasmRules(version uint32) *wasmcode.Rules {
	r := &wasmcode.Rules{Module: abi.Module, Entry: abi.Entry, Type: wasmType("ii", "i")}
	for _, c := range abi.CallsOf(version) {
		r.Imports = append(r.Imports, WasmImport(&c))
	}
	r.Missing = func(name string) error {
		_, err := abi.CallNamed(name, version)
		return err
	}
	return r
}

// WasmImport is a host call as a module imports it.
func WasmImport(c *abi.Call) wasmcode.Import {
	return wasmcode.Import{Name: c.Name, Type: wasmType(c.Types()), As: c.Symbol()}
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
func inspectWasm(code []byte, version uint32) (imports []string, err error) {
	rules := WasmRules(version)
	rules.Memory = "memory"
	m, err := wasmcode.Inspect(code, rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return m.ImportsUsed(), nil
}
