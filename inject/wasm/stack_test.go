package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

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

// TestSlicesOfStraightCalls: straight calls of a leaf with 16,000 loads, 1,500 in a row and over and over so that slices become as long as they can be, are
// looked at after some of them, from the first on; and the first look ends it where it is to end.
func TestSlicesOfStraightCalls(t *testing.T) {
	const calls, rows = 1500, 20
	const most = 16 // of a leaf, in a slice: some 10 µs each
	section := func(id byte, body ...byte) []byte { return append(leb([]byte{id}, uint32(len(body))), body...) }
	sized := func(body []byte) []byte { return append(leb(nil, uint32(len(body))), body...) }
	// Beside each call the count at 0 becomes one more.
	call := cat([]byte{0x10, 1}, num(0), num(0), []byte{0x28, 2, 0}, num(1), []byte{0x6a, 0x36, 2, 0})
	entry := cat([]byte{1, 1, byte(wasmcode.I32), 0x03, 0x40}, bytes.Repeat(call, calls), []byte{0x20, 2}, num(1), []byte{0x6a, 0x22, 2}, num(rows), []byte{0x49, 0x0d, 0, 0x0b}, num(0), []byte{0x0b})
	leaf := cat([]byte{0}, num(4), bytes.Repeat([]byte{0x28, 2, 0}, 16_000), []byte{0x1a, 0x0b})
	const i32 = byte(wasmcode.I32)
	wasm := cat([]byte("\x00asm\x01\x00\x00\x00"), section(1, 2, 0x60, 2, i32, i32, 1, i32, 0x60, 0, 0), section(3, 2, 0, 1), section(5, 1, 0, 1),
		section(7, cat([]byte{1, byte(len(abi.Entry))}, []byte(abi.Entry), []byte{0, 0})...), section(10, cat([]byte{2}, sized(entry), sized(leaf))...))
	p, err := newEngine(t, Config{}).Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{RunTime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	in := acquire(t, bind(t, p, "alice"))
	defer in.Release()
	last, longest := uint32(0), uint32(0)
	look := func() error {
		n := binary.LittleEndian.Uint32(in.mem)
		longest, last = max(longest, n-last), n
		return nil
	}
	h := &fakeHost{stop: look}
	if st, err := in.Run(&Run{Host: h}); st != 0 || err != nil {
		t.Fatal(st, err)
	}
	if longest = max(longest, calls*rows-last); longest > most {
		t.Errorf("%d calls of the leaf were made between two looks", longest)
	}
	binary.LittleEndian.PutUint32(in.mem, 0)
	last = 0
	h.stop = func() error { return errors.Join(look(), context.Canceled) }
	if _, err := in.Run(&Run{Host: h}); !errors.Is(err, context.Canceled) || last > most {
		t.Errorf("the first look came after %d calls of the leaf: %v", last, err)
	}
}
