package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// written is a module whose entry point has this code, and two locals of type i32 behind its parameters.
func written(code ...byte) []byte {
	const end = 0x0b
	section := func(id byte, body ...byte) []byte { return append(leb([]byte{id}, uint32(len(body))), body...) }
	body := append([]byte{1, 2, byte(wasmcode.I32)}, append(code, end)...)
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	wasm = append(wasm, section(1, 1, 0x60, 2, byte(wasmcode.I32), byte(wasmcode.I32), 1, byte(wasmcode.I32))...)
	wasm = append(wasm, section(3, 1, 0)...)
	wasm = append(wasm, section(5, 1, 0, 1)...)
	entry := append([]byte{1, byte(len(abi.Entry))}, abi.Entry...)
	wasm = append(wasm, section(7, append(entry, 0, 0)...)...)
	return append(wasm, section(10, append(leb([]byte{1}, uint32(len(body))), body...)...)...)
}

func leb(b []byte, n uint32) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func num(n uint32) []byte { // i32.const
	b := []byte{0x41}
	for v := int32(n); ; v >>= 7 {
		if v >= -64 && v < 64 {
			return append(b, byte(v)&0x7f)
		}
		b = append(b, byte(v)|0x80)
	}
}

func cat(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// mostTouched is how many pages a function may touch for the first time in a slice. Each takes up to a microsecond, and a slice at most 20 ms.
const mostTouched = 20_000

// TestSlicesOfPages: a function that computes, so that its slices become as long as they can be, and then touches a page with each store is
// looked at before it has touched many.
func TestSlicesOfPages(t *testing.T) {
	const i, addr = 2, 3
	const pages, step = 3999, 4096
	code := cat(
		num(pages), []byte{0x40, 0, 0x1a}, // memory.grow
		[]byte{0x03, 0x40, 0x20, i, 0x41, 1, 0x6a, 0x22, i}, num(100_000_000), []byte{0x49, 0x0d, 0, 0x0b}, // counts
		num(step), []byte{0x21, addr, 0x03, 0x40},
		bytes.Repeat(cat([]byte{0x20, addr, 0x20, addr, 0x36, 2, 0, 0x20, addr}, num(step), []byte{0x6a, 0x21, addr}), 4),
		[]byte{0x20, addr}, num(pages<<16), []byte{0x49, 0x0d, 0, 0x0b},
		num(0))
	wasm := written(code...)
	e := newEngine(t, Config{})
	p, err := e.Compile(context.Background(), sha256.Sum256(wasm), 2, wasm, abi.Limits{RunTime: time.Minute, HeapBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	in := acquire(t, bind(t, p, "alice"))
	defer in.Release()
	at, most := step, 0
	touched := func() error {
		n := 0
		for ; at < pages<<16 && binary.LittleEndian.Uint32(in.mem[at:]) != 0; at += step {
			n++
		}
		most = max(most, n)
		return nil
	}
	if st, err := in.Run(&Run{Host: &fakeHost{stop: touched}}); st != 0 || err != nil {
		t.Fatal(st, err)
	}
	most = max(most, pages<<16/step-at/step) // since the last tick; its heap is as at the start again
	if most > mostTouched {
		t.Errorf("it touched %d pages in one slice, want at most %d", most, mostTouched)
	}
}
