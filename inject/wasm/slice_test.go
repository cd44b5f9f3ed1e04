package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// written is a module whose entry point, function 1, has this code, and two locals of type i32 behind its parameters. Function 0 is get.
func written(code ...byte) []byte {
	return writtenWith("get", code...)
}

// writtenWith is written with another host call of get's type as function 0.
func writtenWith(call string, code ...byte) []byte {
	const i32, i64 = byte(wasmcode.I32), byte(wasmcode.I64)
	return writtenFor(call, []byte{i32, i32, i64, i32, i32}, code...)
}

// writtenFor is written with another host call, which has these parameters, as function 0.
func writtenFor(call string, params []byte, code ...byte) []byte {
	const end = 0x0b
	section := func(id byte, body ...byte) []byte { return append(leb([]byte{id}, uint32(len(body))), body...) }
	body := append([]byte{1, 2, byte(wasmcode.I32)}, append(code, end)...)
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	const i32 = byte(wasmcode.I32)
	wasm = append(wasm, section(1, cat([]byte{2, 0x60, 2, i32, i32, 1, i32, 0x60, byte(len(params))}, params, []byte{1, i32})...)...)
	wasm = append(wasm, section(2, cat([]byte{1, byte(len(abi.Module))}, []byte(abi.Module), []byte{byte(len(call))}, []byte(call), []byte{0, 1})...)...)
	wasm = append(wasm, section(3, 1, 0)...)
	wasm = append(wasm, section(5, 1, 0, 1)...)
	entry := append([]byte{1, byte(len(abi.Entry))}, abi.Entry...)
	wasm = append(wasm, section(7, append(entry, 0, 1)...)...)
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

// mostMoved is how many bytes a host call may move between two looks, where each page of both sides can be touched for the first time: of the thousand pages
// that this is at most nothing interrupts the copy.
const mostMoved = 1000 * 4096 / 2

// mover is a host whose windows have limit bytes. It counts what it moves.
type mover struct {
	fakeHost
	limit       uint64
	moved, most int // since the last tick; at most
	longest     int // at once
	sum         int
	stopAfter   int
}

func (h *mover) move(off uint64, n int) abi.Status {
	if off+uint64(n) > h.limit || off+uint64(n) < off {
		return abi.ErrArgument
	}
	h.moved += n
	h.sum += n
	h.most, h.longest = max(h.most, h.moved), max(h.longest, n)
	return abi.OK
}

func (h *mover) Get(_, _ uint32, off uint64, dst []byte) abi.Status { return h.move(off, len(dst)) }
func (h *mover) Put(_, _ uint32, off uint64, src []byte) abi.Status { return h.move(off, len(src)) }
func (h *mover) ReplyPart(data []byte) abi.Status                   { return h.move(0, len(data)) }
func (h *mover) Fork(_, _ uint32, data []byte) abi.Status           { return h.move(0, len(data)) }
func (h *mover) Reply(data []byte) abi.Status                       { return h.move(0, len(data)) }

func (h *mover) Tick() error {
	h.ticks.Add(1)
	if h.moved = 0; h.stopAfter > 0 && h.sum >= h.stopAfter {
		return errEnough
	}
	return nil
}

var errEnough = errors.New("enough")

// TestHostCallsInPieces: whatever a host call moves, the run is asked for every few megabytes, and one that is refused has moved nothing.
func TestHostCallsInPieces(t *testing.T) {
	b := bind(t, compile(t, newEngine(t, Config{}), "lab", abi.Limits{RunTime: time.Minute, HeapBytes: 256 << 20}), "alice")
	const get, put = 50, 51
	for op := uint32(get); op <= put; op++ {
		for _, c := range []struct {
			off       uint64
			n         uint32
			stopAfter int
			want      int
			st        abi.Status
		}{
			{0, 128 << 20, 0, 128 << 20, abi.OK},
			{5, 9<<20 + 1, 0, 9<<20 + 1, abi.OK},
			{7, 0, 0, 0, abi.OK},
			{128<<20 - 8<<20, 9 << 20, 0, 0, abi.ErrArgument}, // its end lies outside
			{1<<64 - 4<<20, 12 << 20, 0, 0, abi.ErrArgument},
			{0, 128 << 20, 20 << 20, 20 << 20, 0},
		} {
			t.Run(fmt.Sprint(op, c.off, c.n, c.stopAfter), func(t *testing.T) {
				in := acquire(t, b)
				defer in.Release()
				h := &mover{limit: 128 << 20, stopAfter: c.stopAfter}
				st, err := in.Run(&Run{Payload: order{op: op, a: 1 << 20, b: c.n, x: c.off}.payload(), Host: h})
				if c.stopAfter > 0 && !errors.Is(err, errEnough) || c.stopAfter == 0 && err != nil || err == nil && st != c.st || h.sum != c.want {
					t.Errorf("%d bytes were moved, want %d; status %d, %v", h.sum, c.want, st, err)
				}
				if h.most > mostMoved {
					t.Errorf("%d bytes were moved between two looks, %d at once", h.most, h.longest)
				}
			})
		}
	}
}

// TestStraightHostCalls: straight code that has the host copy less than a long copy each time, over and over, is looked at too.
func TestStraightHostCalls(t *testing.T) {
	const n = 60_000
	call := cat(num(0), num(1), []byte{0x42, 0}, num(65536), num(n), []byte{0x10, 0, 0x1a}) // get(0, 1, 0, 65536, n)
	wasm := written(cat(bytes.Repeat(call, 200), num(0))...)
	p, err := newEngine(t, Config{}).Compile(context.Background(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	in := acquire(t, bind(t, p, "alice"))
	defer in.Release()
	h := &mover{limit: n}
	if st, err := in.Run(&Run{Host: h}); st != 0 || err != nil || h.sum != 200*n {
		t.Fatal(st, err, h.sum)
	}
	if h.most > mostMoved {
		t.Errorf("%d bytes were moved between two looks", h.most)
	}
}

// TestMessagesAreLookedAt: what a function sends is the function's to pay for, as what it has copied: straight code that sends long messages over and over is looked at
// too, and a reply that is longer than a long copy is not sent before others have the fabric to drive.
func TestMessagesAreLookedAt(t *testing.T) {
	const n, i32 = 59 << 10, byte(wasmcode.I32)
	e := newEngine(t, Config{})
	sends := func(times int, pages uint32, call string, params []byte, args ...byte) *mover {
		wasm := writtenFor(call, params, cat(num(pages), []byte{0x40, 0, 0x1a}, bytes.Repeat(cat(args, []byte{0x10, 0, 0x1a}), times), num(0))...)
		p, err := e.Compile(context.Background(), sha256.Sum256(wasm), abi.Version, wasm, abi.Limits{RunTime: time.Minute, HeapBytes: 128 << 20, PayloadBytes: 64 << 20, ReplyBytes: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		in := acquire(t, bind(t, p, "alice"))
		defer in.Release()
		h := &mover{limit: 64 << 20}
		if st, err := in.Run(&Run{Host: h}); st != 0 || err != nil || h.sum == 0 {
			t.Fatal(call, st, err, h.sum)
		}
		return h
	}
	for what, h := range map[string]*mover{
		"reply_part": sends(200, 1, "reply_part", []byte{i32, i32}, cat(num(0), num(n))...),
		"fork":       sends(200, 1, "fork", []byte{i32, i32, i32, i32}, cat(num(0), num(1), num(0), num(n))...),
	} {
		if h.sum != 200*n || h.most > mostMoved {
			t.Errorf("%s: of %d bytes %d were sent between two looks", what, h.sum, h.most)
		}
	}
	if h := sends(1, 1024, "reply", []byte{i32, i32}, cat(num(0), num(64<<20))...); h.sum != 64<<20 || h.ticks.Load() == 0 {
		t.Errorf("a reply of %d bytes was sent after %d looks", h.sum, h.ticks.Load())
	}
}
