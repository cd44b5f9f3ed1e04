package wasm

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// storeOps are lab.c's ways to write 16 bytes or fewer at a.
var storeOps = []struct {
	name string
	o    order
	size uint32
}{
	{"i32.store8", order{op: 20, x: 1}, 1},
	{"i32.store16", order{op: 21, x: 1}, 2},
	{"i32.store", order{op: 22, x: 1}, 4},
	{"i64.store", order{op: 23, x: 1}, 8},
	{"f32.store", order{op: 24, x: 1}, 4},
	{"f64.store", order{op: 25, x: 1}, 8},
	{"v128.store", order{op: 26}, 16},
	{"atomic add", order{op: 27, x: 1}, 4},
	{"atomic store", order{op: 28, x: 1}, 8},
	{"atomic compare and swap", order{op: 29, x: 1}, 8},
	{"atomic 32-bit compare and swap", order{op: 32, x: 1}, 4},
	{"memory.fill", order{op: 30, b: 16, c: 1}, 16},
	{"memory.copy", order{op: 31, b: 16, c: 0}, 16},
}

func TestReadOnlyWindow(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		rw, first, second := newSegment(t, 1<<16), newSegment(t, 1<<16), newSegment(t, 1<<17)
		p := compile(t, e, "lab", abi.Limits{})
		b := bind(t, p, "alice", first.window(false), rw.window(true), second.window(false))
		l := b.layout
		for _, s := range storeOps {
			o := s.o
			for _, c := range []struct {
				where  string
				addr   uint64
				window int // -1: allowed; -2: out of bounds
			}{
				{"last bytes before", l.windows[0].addr - uint64(s.size), -1},
				{"across", l.windows[0].addr - uint64(s.size)/2, 0},
				{"first byte", l.windows[0].addr, 0},
				{"last of the first", l.windows[0].addr + 1<<16 - 16, 0},
				{"second", l.windows[2].addr + 64, 2},
				{"beyond", l.end, -2},
			} {
				if c.where == "across" && (s.size == 1 || strings.HasPrefix(s.name, "atomic")) {
					continue
				}
				o.a = uint32(c.addr)
				in := acquire(t, b)
				wants(t, in, 4<<20, &fakeHost{}) // all of it: then a store to the first window is one byte too far
				_, err := in.Run(&Run{Payload: o.payload(), Host: &fakeHost{}})
				in.Release()
				var ro *ReadOnlyError
				var trap *TrapError
				switch {
				case c.window == -1:
					if err != nil {
						t.Errorf("%s, %s: %v", s.name, c.where, err)
					}
				case c.window == -2:
					if !errors.As(err, &trap) || trap.Reason != errOutOfBounds.Error() || !plainStack(trap.Text) {
						t.Errorf("%s, %s: %v", s.name, c.where, err)
					}
				case !errors.As(err, &ro) || ro.Window != c.window || !plainStack(ro.Error()):
					t.Errorf("%s, %s: %v", s.name, c.where, err)
				case ro.Addr != l.windows[c.window].addr+ro.Offset || ro.Addr < c.addr:
					t.Errorf("%s, %s: %+v", s.name, c.where, ro)
				}
			}
		}
		for i, v := range append(first.mem, second.mem...) {
			if v != 0 {
				t.Fatalf("byte %d of a read-only window was written", i)
			}
		}
	})
}

// plainStack says whether a text has a stack that shows the function's own, and none of the engine's.
func plainStack(text string) bool {
	_, stack, _ := strings.Cut(text, "\nwasm stack trace:\n\t")
	return strings.Contains(stack, "wherry_main(") && !strings.Contains(text, "__") && !strings.Contains(text, "wazero") && !strings.Contains(text, "\t.")
}

func TestWindowsAreLive(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		rw, ro := newSegment(t, 1<<16), makeSegment(t, 1<<16, unix.F_SEAL_SHRINK|unix.F_SEAL_FUTURE_WRITE)
		b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice", rw.window(true), ro.window(false))
		for i := range uint64(3) {
			binary.LittleEndian.PutUint64(ro.mem[8:], 100+i)
			if got := value(t, b, order{op: 36, a: 8, b: 1}); got != 100+i {
				t.Errorf("the function reads %d from a read-only window, its owner wrote %d", got, 100+i)
			}
			if _, err := once(t, b, &fakeHost{}, order{op: 35, a: 16, b: 0, x: 200 + i}); err != nil {
				t.Fatal(err)
			}
			if got := binary.LittleEndian.Uint64(rw.mem[16:]); got != 200+i {
				t.Errorf("the owner reads %d from a writable window, the function wrote %d", got, 200+i)
			}
		}
	})
}

func TestPartOfSegment(t *testing.T) {
	e := newEngine(t, Config{})
	seg := newSegment(t, 5<<16)
	w := abi.Window{FD: seg.fd, Offset: 4096, Size: 100000, Writable: true}
	b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice", w)
	if _, err := once(t, b, &fakeHost{}, order{op: 35, a: 99992, x: 7}); err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint64(seg.mem[4096+99992:]); got != 7 {
		t.Errorf("the last word of the window is %d, want 7", got)
	}
}

func TestWindowsRefused(t *testing.T) {
	e := newEngine(t, Config{})
	p := compile(t, e, "lab", abi.Limits{})
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	good, unsealed := newSegment(t, 1<<16), makeSegment(t, 1<<16, unix.F_SEAL_GROW)
	short, frozen := newSegment(t, 1<<16+4096), makeSegment(t, 1<<16, unix.F_SEAL_SHRINK|unix.F_SEAL_FUTURE_WRITE)
	for _, c := range []struct {
		name string
		w    abi.Window
		want string
	}{
		{"closed descriptor", abi.Window{FD: 9999, Size: 1}, "no memfd"},
		{"file", abi.Window{FD: int(file.Fd()), Size: 1 << 16}, "no memfd"},
		{"not sealed", unsealed.window(false), "F_SEAL_SHRINK"},
		{"not padded", abi.Window{FD: short.fd, Size: 1<<16 + 1}, "pad it"},
		{"beyond the end", abi.Window{FD: good.fd, Offset: 4096, Size: 1 << 16}, "pad it"},
		{"offset beyond the end", abi.Window{FD: good.fd, Offset: 1 << 20, Size: 1}, "pad it"},
		{"negative offset", abi.Window{FD: good.fd, Offset: -4096, Size: 1}, "page size"},
		{"odd offset", abi.Window{FD: good.fd, Offset: 8, Size: 1}, "page size"},
		{"too large", abi.Window{FD: good.fd, Size: 1 << 32}, "window_at"},
		{"too large together", abi.Window{FD: good.fd, Size: 4<<30 - 1<<20}, "at most"},
		{"sealed against writing", frozen.window(true), "read-only window"},
	} {
		_, err := p.Bind("alice", []abi.Window{newSegment(t, 1<<16).window(true), c.w})
		var we *WindowError
		if !errors.As(err, &we) || we.Window != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := p.Bind("alice", make([]abi.Window, MaxWindows+1)); err == nil {
		t.Error("too many windows are accepted")
	}
	swapped := newSegment(t, 1<<16)
	b := bind(t, p, "alice", swapped.window(true))
	if err := unix.Dup2(good.fd, swapped.fd); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "another memfd") {
		t.Errorf("a descriptor that became another memfd: %v", err)
	}
}
