package wasm

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/room"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// roomyScratch is a function that may have much scratch.
var roomyScratch = abi.Limits{HeapBytes: 1 << 20, PayloadBytes: 1 << 16, ScratchBytes: 512 << 20}

// resident counts the bytes of machine pages in memory.
func resident(t *testing.T, mem []byte) (bytes int) {
	t.Helper()
	page := unix.Getpagesize()
	in := make([]byte, len(mem)/page)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, b := range in {
		bytes += int(b&1) * page
	}
	return bytes
}

// wants has an instance ask for scratch, and says whether it got some.
func wants(t *testing.T, in *Instance, bytes uint64, h *fakeHost) bool {
	t.Helper()
	st, err := in.Run(&Run{Payload: order{op: 46, x: bytes}.payload(), Host: h})
	if err != nil || st != abi.OK {
		t.Fatalf("asking for %d bytes of scratch: %d, %v", bytes, st, err)
	}
	return binary.LittleEndian.Uint64(h.reply) != 0
}

// TestScratchIsCharged: functions that may have much scratch and ask for little run at once where the engine's memory would not
// hold all that they may have, and one that asks for all of it is charged for all.
func TestScratchIsCharged(t *testing.T) {
	const many = 16
	e := newEngine(t, Config{Ceilings: roomyScratch, MemoryBytes: 3 << 30})
	p := compile(t, e, "lab", roomyScratch)
	b := bind(t, p, "alice")
	var all []*Instance
	var least uint64
	for range many {
		in := acquire(t, b)
		if len(all) == 0 {
			least = e.Stats().Bytes
		}
		if !wants(t, in, 100<<10, &fakeHost{}) {
			t.Fatal("no scratch")
		}
		all = append(all, in)
	}
	if want := many * (least + pages(100<<10)); e.Stats().Bytes != want {
		t.Errorf("%d bytes are charged, want %d", e.Stats().Bytes, want)
	}
	for _, in := range all {
		in.Release()
	}
	if want := many * least; e.Stats().Bytes != want {
		t.Errorf("%d bytes are charged when all have given their scratch back, want %d", e.Stats().Bytes, want)
	}
	one := acquire(t, b)
	defer one.Release()
	before := e.Stats().Bytes
	if !wants(t, one, 400<<20, &fakeHost{}) {
		t.Fatal("no scratch")
	}
	if got := e.Stats().Bytes - before; got != 400<<20 {
		t.Errorf("400 MiB of scratch are charged as %d", got)
	}
}

// TestScratchShort: beyond a principal's share, or the engine's memory, the host hears which it is; idle instances go first.
func TestScratchShort(t *testing.T) {
	e := newEngine(t, Config{Ceilings: roomyScratch, MemoryBytes: 1000 << 20})
	p := compile(t, e, "lab", roomyScratch)
	a, b := bind(t, p, "alice"), bind(t, p, "bob") // an instance takes 101 MiB besides
	first, second, bobs, idle := acquire(t, a), acquire(t, a), acquire(t, b), acquire(t, b)
	if !wants(t, first, 400<<20, &fakeHost{}) {
		t.Fatal("no scratch")
	}
	h := &fakeHost{}
	if wants(t, second, 400<<20, h) || !errors.Is(h.short, abi.ErrShareBusy) || !strings.Contains(h.short.Error(), `"alice"`) {
		t.Errorf("more than alice's share; the host is told %v", h.short)
	}
	h = &fakeHost{}
	if wants(t, bobs, 390<<20, h) || !errors.Is(h.short, abi.ErrEngineBusy) || errors.Is(h.short, abi.ErrShareBusy) {
		t.Errorf("more than there is; the host is told %v", h.short)
	}
	idle.Release()
	second.Release()
	if !wants(t, bobs, 390<<20, &fakeHost{}) {
		t.Error("no scratch though idle instances could make room")
	}
	if s := e.Stats(); s.Evicted != 2 || s.Live != 2 {
		t.Errorf("stats %+v", s)
	}
	first.Release()
	bobs.Release()
}

// TestScratchHuge: scratch that is asked for in addition may be on huge pages, which are made one in a slice; what is asked for at first is not, and what one invocation has had does
// not become the next one's, which would then take more than it is charged.
func TestScratchHuge(t *testing.T) {
	e := newEngine(t, Config{Ceilings: roomyScratch})
	b := bind(t, compile(t, e, "lab", roomyScratch), "alice")
	in := acquire(t, b)
	from := b.layout.scratch
	h := &fakeHost{}
	asks := func(bytes uint64) {
		t.Helper()
		if !wants(t, in, bytes, h) {
			t.Fatalf("no scratch of %d bytes", bytes)
		}
	}
	touched := func(at uint64, most int) {
		t.Helper()
		in.mem[from+at] = 1
		if n := resident(t, in.mem[from:from+roomyScratch.ScratchBytes]); n > most {
			t.Errorf("%d bytes are resident after a store at %d of scratch, want at most %d", n, at, most)
		}
	}
	asks(64 << 20)
	touched(32<<20, 64<<10)
	before := h.ticks.Load()
	asks(128 << 20)
	if n := h.ticks.Load() - before; in.huge && n < 32 {
		t.Errorf("the host was asked %d times while 32 huge pages were made, want once for each", n)
	}
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err == nil && !in.huge {
		t.Error("scratch asked for in addition is not advised to have huge pages")
	}
	if n := resident(t, in.mem[from+64<<20:from+128<<20]); in.huge && n != 64<<20 {
		t.Errorf("%d bytes are resident of 64 MiB that may be on huge pages: the function makes the others, many in a slice", n)
	}
	for _, r := range []struct{ from, to uint64 }{{0, 64 << 20}, {128 << 20, 512 << 20}} {
		if n := resident(t, in.mem[from+r.from:from+r.to]); n > 64<<10 {
			t.Errorf("%d bytes are resident between %d and %d of scratch", n, r.from, r.to)
		}
	}
	in.Release()
	again := acquire(t, b)
	defer again.Release()
	if again != in {
		t.Fatal("another instance: this test proves nothing")
	}
	asks(100<<20 + 64<<10)
	touched(100<<20, 64<<10)
}

// TestScratchNotAsked: whatever a function does to the scratch that it has not asked for, none of it becomes resident.
func TestScratchNotAsked(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		window := newSegment(t, 1<<16)
		p := compile(t, e, "lab", abi.Limits{HeapBytes: 1 << 20, PayloadBytes: 1 << 16, ScratchBytes: 8 << 20})
		for name, b := range map[string]*Binding{"no window": bind(t, p, "alice"), "read-only": bind(t, p, "alice", window.window(false)), "writable": bind(t, p, "alice", window.window(true))} {
			const asked = 1 << 16
			from, to := b.layout.scratch+asked, b.layout.scratch+8<<20
			for op := uint32(20); op <= 32; op++ {
				for _, at := range []uint64{from, from - 1, from + 1<<16, to - 64} {
					if op == 27 || op == 28 || op == 29 || op == 32 {
						at &^= 7 // what traps otherwise is that it is not aligned
					}
					if op == 20 && at == from-1 || op >= 27 && op != 30 && op != 31 && at < from {
						continue
					}
					in := acquire(t, b)
					if !wants(t, in, asked, &fakeHost{}) {
						t.Fatal("no scratch")
					}
					_, err := in.Run(&Run{Payload: order{op: op, a: uint32(at), b: 32, c: uint32(b.layout.inbox), x: 1, y: 1}.payload(), Host: &fakeHost{}})
					if err == nil || !strings.Contains(err.Error(), "scratch") {
						t.Errorf("%s: op %d at %#x: %v", name, op, at, err)
					}
					if n := resident(t, in.mem[from:to]); n != 0 {
						t.Errorf("%s: op %d at %#x: %d bytes are resident that were not asked for", name, op, at, n)
					}
					in.Release()
				}
			}
			for _, o := range []order{{op: 56, a: uint32(from)}, {op: 58, a: uint32(from)}, {op: 50, a: uint32(from), b: 8}} { // by the host's hand
				in := acquire(t, b)
				if st, err := in.Run(&Run{Payload: o.payload(), Host: &fakeHost{}}); err != nil || st != abi.ErrMemory {
					t.Errorf("%s: %+v: %d, %v", name, o, st, err)
				}
				in.Release()
			}
		}
	})
}

// TestScratchAhead: a function that may write to windows is charged for all of its scratch beforehand: it could not start over.
func TestScratchAhead(t *testing.T) {
	e := newEngine(t, Config{})
	p := compile(t, e, "lab", abi.Limits{ScratchBytes: 8 << 20})
	window := newSegment(t, 1<<16)
	reads, writes := bind(t, p, "alice", window.window(false)), bind(t, p, "alice", window.window(true))
	if reads.Need(8<<20) != writes.Need(0) || writes.Need(0) != reads.Need(0)+8<<20 {
		t.Errorf("needs %d without scratch, %d with it; %d with a writable window", reads.Need(0), reads.Need(8<<20), writes.Need(0))
	}
	in := acquire(t, writes)
	defer in.Release()
	before := e.Stats().Bytes
	if wants(t, in, 8<<20, &fakeHost{}); e.Stats().Bytes != before {
		t.Errorf("scratch that was charged is charged again: %d bytes, and then %d", before, e.Stats().Bytes)
	}
}

// TestScratchReserved: what was reserved is charged from the beginning, and given back if the run does not ask for it.
func TestScratchReserved(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{ScratchBytes: 8 << 20}), "alice")
	for range 2 { // a new instance, and an idle one
		p, err := b.Reserve(8 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if e.Stats().Bytes != b.Need(8<<20) {
			t.Errorf("%d bytes are charged, want %d", e.Stats().Bytes, b.Need(8<<20))
		}
		p.Release()
		if p, err = b.Reserve(8 << 20); err != nil {
			t.Fatal(err)
		}
		in, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if wants(t, (*Instance)(in.(*runnerInstance)), 100, &fakeHost{}); e.Stats().Bytes != b.Need(100) {
			t.Errorf("%d bytes are charged, want %d", e.Stats().Bytes, b.Need(100))
		}
		in.Release()
		if e.Stats().Bytes != b.Need(0) {
			t.Errorf("%d bytes are charged for an idle instance, want %d", e.Stats().Bytes, b.Need(0))
		}
	}
}

// TestScratchWaits: the host can end a run that finds no room for scratch.
func TestScratchWaits(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice")
		in := acquire(t, b)
		wait := errors.New("wait")
		if _, err := in.Run(&Run{Payload: order{op: 46, x: 100}.payload(), Host: &fakeHost{wait: wait}}); !errors.Is(err, wait) || !in.Broken() {
			t.Errorf("%v; broken: %t", err, in.Broken())
		}
		if in.Release(); e.Stats().Bytes != 0 {
			t.Errorf("%d bytes are charged in the end", e.Stats().Bytes)
		}
	})
}

// asksFirst is a function whose _initialize asks for 1 MiB of scratch, and then fails or does not.
func asksFirst(fails bool) []byte {
	const code = "\x42\x80\x80\xc0\x00\x10\x00\x1a" // scratch(1 << 20), and drop
	end := "\x01\x0b"                               // nop
	if fails {
		end = "\x00\x0b" // unreachable
	}
	return []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x0f\x03\x60\x01\x7e\x01\x7f\x60\x02\x7f\x7f\x01\x7f\x60\x00\x00" + // (i64) i32, (i32 i32) i32, ()
		"\x02\x12\x01\x06wherry\x07scratch\x00\x00" +
		"\x03\x03\x02\x01\x02" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x1d\x02\x0bwherry_main\x00\x01\x0b_initialize\x00\x02" +
		"\x0a\x12\x02\x04\x00\x41\x00\x0b\x0b\x00" + code + end)
}

// TestScratchAtTheStart: what asks for scratch before there is an invocation gets none, and nothing stays charged for it.
func TestScratchAtTheStart(t *testing.T) {
	for _, fails := range []bool{false, true} {
		e := newEngine(t, Config{})
		p, err := e.Compile(t.Context(), ID{}, 1, asksFirst(fails), abi.Limits{ScratchBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		b := bind(t, p, "alice")
		for _, reserved := range []uint64{0, 4 << 20} {
			place, err := b.Reserve(reserved)
			if err != nil {
				t.Fatal(err)
			}
			in, err := place.Acquire(t.Context())
			if (err != nil) != fails {
				t.Fatalf("fails %v: %v", fails, err)
			}
			if err == nil {
				if got := e.Stats().Bytes; got != b.Need(reserved) {
					t.Errorf("with %d bytes reserved, %d are charged, want %d", reserved, got, b.Need(reserved))
				}
				if in := in.(*runnerInstance); in.scratch != 0 {
					t.Errorf("it has %d bytes of scratch", in.scratch)
				}
				in.Release()
			}
			e.room.Evict(func(room.Instance) bool { return true })
			if got := e.Stats().Bytes; got != 0 {
				t.Errorf("fails %v, with %d bytes reserved: %d are charged when there is no instance", fails, reserved, got)
			}
		}
	}
}

// TestNoGrowth: a function that never asks for a larger heap is charged for the one that it has, and one that never asks for scratch for none.
func TestNoGrowth(t *testing.T) {
	e := newEngine(t, Config{})
	for name, want := range map[string]uint64{"echo": 0, "lab": 16 << 20} {
		b := bind(t, compile(t, e, name, abi.Limits{}), "alice")
		m, err := wasmcode.Decode(code(t, name), rules(1))
		if err != nil {
			t.Fatal(err)
		}
		want = max(want, uint64(m.MinPages)*pageBytes) + pages(boxBytes+1<<20)
		if m.Recursive {
			want += stackBytes
		} else {
			want += 2 * m.StackBytes
		}
		if got := b.Need(0); got != want {
			t.Errorf("%s needs %d, want %d", name, got, want)
		}
	}
}
