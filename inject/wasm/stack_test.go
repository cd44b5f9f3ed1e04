package wasm

import (
	"context"
	"crypto/sha256"
	"runtime"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// chain is a module of functions that call each other in a row, each of which keeps so many vectors meanwhile.
func chain(functions, vectors int) []byte {
	const i32 = byte(wasmcode.I32)
	section := func(id byte, body ...byte) []byte { return append(leb([]byte{id}, uint32(len(body))), body...) }
	index, bodies := leb(nil, uint32(functions)), leb(nil, uint32(functions))
	for f := range functions {
		body := append(leb([]byte{1}, uint32(vectors)), byte(wasmcode.V128))
		for v := range vectors {
			at := uint32(16 * v)
			body = leb(append(cat(body, num(at)), 0xfd, 0, 4, 0, 0x21), uint32(2+v))
		}
		if f+1 < functions {
			body = append(leb(append(cat(body, num(0), num(0)), 0x10), uint32(f+1)), 0x1a)
		}
		for v := range vectors {
			at := uint32(16 * v)
			body = append(leb(append(cat(body, num(at)), 0x20), uint32(2+v)), 0xfd, 11, 4, 0)
		}
		body = append(cat(body, num(0)), 0x0b)
		bodies = append(leb(bodies, uint32(len(body))), body...)
		index = append(index, 0)
	}
	entry := append([]byte{1, byte(len(abi.Entry))}, abi.Entry...)
	return cat([]byte("\x00asm\x01\x00\x00\x00"), section(1, 1, 0x60, 2, i32, i32, 1, i32), section(3, index...), section(5, 1, 0, 1),
		section(7, append(entry, 0, 0)...), section(10, bodies...))
}

// TestStackIsCharged: the stack of a function that does not recur, however large its code has it be, is charged like its memory, with those that it outgrew.
func TestStackIsCharged(t *testing.T) {
	for _, c := range []struct{ functions, vectors int }{{1, 4000}, {20, 1000}, {200, 100}, {400, 3}} {
		wasm := chain(c.functions, c.vectors)
		e := newEngine(t, Config{})
		p, err := e.Compile(context.Background(), sha256.Sum256(wasm), 1, wasm, abi.Limits{PayloadBytes: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		in := acquire(t, bind(t, p, "alice"))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if st, err := in.Run(&Run{Host: &fakeHost{}}); st != 0 || err != nil {
			t.Fatal(st, err)
		}
		runtime.ReadMemStats(&after)
		stacks := after.TotalAlloc - before.TotalAlloc // each twice as large as the one before
		if got := e.Stats().Bytes - ownBytes(p.room); got < stacks {
			t.Errorf("%+v: %d bytes of stack are charged, but it had stacks of %d", c, got, stacks)
		}
		in.Release()
	}
}
