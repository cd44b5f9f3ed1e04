package wasmcode

import (
	"bytes"
	"testing"

	"github.com/tetratelabs/wazero"
)

// loads is code of so many loads; each costs loadCost.
func loads(n int) []byte {
	return bytes.Repeat(cat(zero, raw(byte(opI32Load), 2, 0, byte(opDrop))), n)
}

const (
	opI32Load = 0x28
	loadCost  = costMemory + 2
)

// TestStretches: whatever the code, it does not run far without looking whether there is fuel left.
func TestStretches(t *testing.T) {
	skipped := cat(raw(byte(opBlock), 0x40, byte(opI32Const), 1, byte(opBrIf), 0), loads(4000), raw(byte(opEnd)), loads(4000))
	other := cat(zero, raw(byte(opIf), 0x40), loads(4000), raw(byte(opElse)), loads(4000), raw(byte(opEnd)))
	deep := cat(raw(byte(opBlock), 0x40, byte(opBlock), 0x40, byte(opBlock), 0x40, byte(opI32Const), 1, byte(opBrIf), 1), loads(4000), raw(byte(opEnd), byte(opEnd)), loads(2000), raw(byte(opEnd)))
	calls := func(leaf, n int) []byte {
		call := bytes.Repeat(raw(byte(opCall), 1), n)
		return module(types, section(secFunction, vec(raw(0), raw(1))), memory, exports,
			section(secCode, vec(fn(noLocals, cat(call, zero)...), fn(noLocals, loads(leaf)...))))
	}
	for _, c := range []struct {
		name  string
		wasm  []byte
		loads int // that are carried out
	}{
		{"straight", withCode(cat(loads(40_000), zero)...), 40_000},
		{"what is jumped over", withCode(cat(bytes.Repeat(skipped, 10), zero)...), 40_000},
		{"the other branch", withCode(cat(bytes.Repeat(other, 10), zero)...), 40_000},
		{"several blocks left at once", withCode(cat(bytes.Repeat(deep, 10), zero)...), 20_000},
		{"calls of a long leaf", calls(16_000, 1500), 16_000 * 1500},
		{"calls of a short leaf", calls(50, 8000), 50 * 8000},
	} {
		m, err := Decode(c.wasm, testRules())
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		wasm, err := m.Instrument(Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := newRunner(t, wazero.NewRuntimeConfig())
		r.fuel = 0 // it ticks at every look
		if _, err := r.run(wasm, true, 1<<32, 0, 0); err != nil {
			t.Fatal(err)
		}
		if each := c.loads * loadCost / max(int(r.ticks), 1); each > entryCost+stretchCost {
			t.Errorf("%s: it looks %d times for %d loads, every %d units of cost", c.name, r.ticks, c.loads, each)
		}
	}
}
