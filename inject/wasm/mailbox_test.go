package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// guest writes a module by hand: what its entry point does, call by call.
type guest struct {
	imports []string
	table   bool // of one function: the first import
	body    []byte
	calls   int
}

const (
	resultsAt  = 1024 // where a guest leaves what its calls returned, 4 bytes each
	guestPages = 1
)

func uleb(b []byte, x uint64) []byte { return binary.AppendUvarint(b, x) }

func (g *guest) op(code ...byte) { g.body = append(g.body, code...) }

func (g *guest) i32(v uint32) {
	g.op(0x41)
	for x := int64(int32(v)); ; x >>= 7 {
		if rest := x >> 7; rest == 0 && x&0x40 == 0 || rest == -1 && x&0x40 != 0 {
			g.op(byte(x & 0x7f))
			return
		}
		g.op(byte(x&0x7f) | 0x80)
	}
}

// store64 stores v at an address.
func (g *guest) store64(at uint32, v uint64) {
	for half := range uint32(2) {
		g.i32(at + 4*half)
		g.i32(uint32(v >> (32 * half)))
		g.op(0x36, 0, 0)
	}
}

// keep stores the result of what arguments and code leave on the stack.
func (g *guest) keep(code func()) {
	g.i32(uint32(resultsAt + 4*g.calls))
	code()
	g.op(0x36, 0, 0)
	g.calls++
}

func (g *guest) index(name string) byte {
	i := slices.Index(g.imports, name)
	if i < 0 {
		panic(name)
	}
	return byte(i)
}

// call calls an import and keeps the result.
func (g *guest) call(name string, args ...uint32) {
	g.keep(func() {
		for _, a := range args {
			g.i32(a)
		}
		g.op(0x10, g.index(name))
	})
}

// module is the binary; the entry point ends with the status 0 unless its code ended it.
func (g *guest) module() []byte {
	section := func(b []byte, id byte, items int, body []byte) []byte {
		body = append(uleb(nil, uint64(items)), body...)
		return append(uleb(append(b, id), uint64(len(body))), body...)
	}
	str := func(s string) []byte { return append(uleb(nil, uint64(len(s))), s...) }
	list := func(vs []wasmcode.ValType) []byte {
		b := uleb(nil, uint64(len(vs)))
		for _, v := range vs {
			b = append(b, byte(v))
		}
		return b
	}
	var types, imports []byte
	for i, name := range g.imports {
		at := slices.IndexFunc(hostCalls(), func(c hostCall) bool { return c.name == name })
		c := hostCalls()[at]
		types = slices.Concat(types, []byte{0x60}, list(c.params), list(c.results))
		imports = slices.Concat(imports, str(abi.Module), str(name), []byte{0, byte(i)})
	}
	n := len(g.imports)
	types = append(types, 0x60, 2, 0x7f, 0x7f, 1, 0x7f)
	b := section([]byte("\x00asm\x01\x00\x00\x00"), 1, n+1, types)
	if n > 0 {
		b = section(b, 2, n, imports)
	}
	b = section(b, 3, 1, []byte{byte(n)})
	if g.table {
		b = section(b, 4, 1, []byte{0x70, 0, 2})
	}
	b = section(b, 5, 1, []byte{0, guestPages})
	b = section(b, 7, 1, append(str(abi.Entry), 0, byte(n)))
	if g.table {
		b = section(b, 9, 1, []byte{0, 0x41, 0, 0x0b, 1, 0})
	}
	body := slices.Concat([]byte{0}, g.body, []byte{0x41, 0, 0x0b})
	return section(b, 10, 1, slices.Concat(uleb(nil, uint64(len(body))), body))
}

// ledger is a host that notes what it is asked for, and answers as a branch's host does.
type ledger struct {
	fakeHost
	log    []string
	closed bool // the branch has moved on or is answered
}

func (l *ledger) note(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func (l *ledger) Reply(data []byte) abi.Status {
	l.note("reply %x", data)
	if l.closed {
		return abi.ErrDone
	}
	l.closed = true
	return abi.OK
}

func (l *ledger) Onward(element uint32, data []byte) abi.Status { return l.Forward(0, element, data) }

func (l *ledger) Forward(_, element uint32, data []byte) abi.Status {
	l.note("forward %d %x", element, data)
	switch {
	case l.closed:
		return abi.ErrDone
	case element >= 5:
		return abi.ErrArgument
	}
	l.closed = true
	return abi.OK
}

func (l *ledger) Fork(_, element uint32, data []byte) abi.Status {
	l.note("fork %d %x", element, data)
	return abi.OK
}

func (l *ledger) Log(text []byte) { l.note("log %x", text) }

// mailed is what came of one run.
type mailed struct {
	log     []string
	status  abi.Status
	err     error
	results []uint32
	memory  []byte
}

// play runs a guest once. Without the mailbox every call goes to the host.
func play(t *testing.T, e *Engine, g *guest, mailbox bool, windows ...abi.Window) mailed {
	t.Helper()
	code := g.module()
	p, err := e.Compile(context.Background(), sha256.Sum256(code), 1, code, abi.Limits{})
	if err != nil {
		t.Fatalf("%v\n%x", err, code)
	}
	defer p.Close()
	b, err := p.Bind("alice", windows)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	in := acquire(t, b)
	defer in.Release()
	if !mailbox {
		in.global(wasmcode.ExportMailbox).Set(0)
		for i := range 2 * wasmcode.FastWindows {
			in.global(wasmcode.ExportWindow + strconv.Itoa(i)).Set(0)
		}
	}
	for i := range 256 {
		in.mem[i] = byte(i)
	}
	h := &ledger{}
	m := mailed{}
	m.status, m.err = in.Run(&Run{Payload: []byte("payload"), Host: h})
	m.log = h.log
	for i := range g.calls {
		m.results = append(m.results, binary.LittleEndian.Uint32(in.mem[resultsAt+4*i:]))
	}
	m.memory = bytes.Clone(in.mem[:resultsAt])
	if head := binary.LittleEndian.Uint64(in.mem[b.layout.mailbox:]); head != 0 {
		t.Errorf("the mailbox was left with %#x in it", head)
	}
	return m
}

// lay is the layout that a guest's instance has with these windows.
func lay(t *testing.T, e *Engine, windows ...abi.Window) layout {
	t.Helper()
	room := e.Limits(abi.Limits{})
	room.HeapBytes, room.ScratchBytes = guestPages*pageBytes, 0 // it asks for no more
	l, err := plan(room, windows, false)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var mailCalls = []string{"forward", "reply", "window", "log", "fork", "now"}

// TestMailboxOrder: calls that wait in the mailbox and calls that leave happen in the order they were made, with the same bytes.
func TestMailboxOrder(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		end := uint32(lay(t, e).end)
		long := fmt.Sprintf("%x", seq(0, 65))
		for _, c := range []struct {
			name   string
			do     func(g *guest)
			log    string
			status abi.Status
		}{
			{"forward", func(g *guest) { g.call("forward", 2, 10, 3) }, "forward 2 0a0b0c", 0},
			{"forward then reply", func(g *guest) { g.call("forward", 2, 10, 3); g.call("reply", 1, 1) }, "forward 2 0a0b0c; reply 01", abi.ErrDone},
			{"reply then forward", func(g *guest) { g.call("reply", 1, 1); g.call("forward", 2, 10, 3) }, "reply 01; forward 2 0a0b0c", abi.ErrDone},
			{"forward twice", func(g *guest) { g.call("forward", 0, 1, 1); g.call("forward", 1, 2, 1) }, "forward 0 01; forward 1 02", abi.ErrDone},
			{"forward then window", func(g *guest) { g.call("forward", 0, 1, 1); g.call("window", 0, 512) }, "forward 0 01", abi.ErrNoWindow},
			{"forward then fork", func(g *guest) { g.call("forward", 0, 1, 1); g.call("fork", 3, 2, 1) }, "forward 0 01; fork 3 02", 0},
			{"forward to 0", func(g *guest) { g.call("forward", 0, 1, 1) }, "forward 0 01", 0},
			{"forward to -1", func(g *guest) { g.call("forward", 0xffffffff, 1, 1) }, "forward 4294967295 01", abi.ErrArgument},
			{"forward to -2", func(g *guest) { g.call("forward", 0xfffffffe, 1, 1) }, "forward 4294967294 01", abi.ErrArgument},
			{"forward out of range", func(g *guest) { g.call("forward", 5, 1, 1) }, "forward 5 01", abi.ErrArgument},
			{"out of range, then forward", func(g *guest) { g.call("forward", 5, 1, 1); g.call("forward", 1, 2, 1) }, "forward 5 01; forward 1 02", abi.ErrArgument},
			{"nothing", func(g *guest) { g.call("forward", 4, 1, 0) }, "forward 4 ", 0},
			{"nothing at the end", func(g *guest) { g.call("forward", 4, end, 0) }, "forward 4 ", 0},
			{"nothing beyond the end", func(g *guest) { g.call("forward", 4, end+1, 0) }, "forward 4 ", 0},
			{"64 bytes", func(g *guest) { g.call("forward", 4, 0, 64) }, "forward 4 " + long[:128], 0},
			{"65 bytes", func(g *guest) { g.call("forward", 4, 0, 65) }, "forward 4 " + long, 0},
			{"reply of 64 bytes", func(g *guest) { g.call("reply", 0, 64) }, "reply " + long[:128], 0},
			{"across the end", func(g *guest) { g.call("forward", 4, end-8, 9) }, "", abi.ErrMemory},
			{"up to the end", func(g *guest) { g.call("forward", 4, end-8, 8) }, "forward 4 0000000000000000", 0},
			{"wrapping", func(g *guest) { g.call("forward", 4, 0xfffffff8, 16) }, "", abi.ErrMemory},
			{"changed afterwards", func(g *guest) { g.call("forward", 4, 16, 2); g.store64(16, 0) }, "forward 4 1011", 0},
		} {
			g := &guest{imports: mailCalls}
			c.do(g)
			m := play(t, e, g, true)
			status := m.status
			for _, r := range m.results { // what a call was told, its caller may pass on
				if status == abi.OK && r != 0 {
					status = abi.Status(r)
				}
			}
			if got := strings.Join(m.log, "; "); m.err != nil || got != c.log || status != c.status {
				t.Errorf("%s: %q, status %v, %v; want %q, %v", c.name, got, status, m.err, c.log, c.status)
			}
		}
	})
}

func seq(first, n int) (b []byte) {
	for i := range n {
		b = append(b, byte(first+i))
	}
	return b
}

// TestMailboxTrap: what was forwarded before a trap is told, so that its branch is known to have moved, and the run failed.
func TestMailboxTrap(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		for _, mailbox := range []bool{true, false} {
			g := &guest{imports: mailCalls}
			g.call("forward", 1, 3, 1)
			g.op(0x00)
			if m := play(t, e, g, mailbox); m.err == nil || fmt.Sprint(m.log) != "[forward 1 03]" {
				t.Errorf("mailbox %v: %v, %v", mailbox, m.log, m.err)
			}
		}
	})
}

// TestMailboxWays: a forward by return_call, call_indirect or a ref.func is the same forward.
func TestMailboxWays(t *testing.T) {
	forward := func(g *guest) { g.i32(3); g.i32(20); g.i32(2) }
	ways := map[string]func(g *guest){
		"return_call":          func(g *guest) { forward(g); g.op(0x12, 0) },
		"return_call_indirect": func(g *guest) { forward(g); g.i32(0); g.op(0x13, 0, 0) },
		"call_indirect":        func(g *guest) { g.keep(func() { forward(g); g.i32(0); g.op(0x11, 0, 0) }) },
		"ref.func": func(g *guest) {
			g.i32(1)
			g.op(0xd2, 0, 0x26, 0) // table.set
			g.keep(func() { forward(g); g.i32(1); g.op(0x11, 0, 0) })
		},
	}
	both(t, func(t *testing.T, e *Engine) {
		for name, do := range ways {
			g := &guest{imports: mailCalls, table: true}
			do(g)
			m := play(t, e, g, true)
			if m.err != nil || m.status != abi.OK || fmt.Sprint(m.log) != "[forward 3 1415]" {
				t.Errorf("%s: %v, %v, %v", name, m.log, m.status, m.err)
			}
		}
	})
}

// TestMailboxForged: what a function writes into its mailbox itself is at most what it could have called.
func TestMailboxForged(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		box := uint32(lay(t, e).mailbox)
		for _, c := range []struct {
			imports string
			head    uint64
			log     string
			status  abi.Status
		}{
			{"forward reply", 2 | 3<<32, "[forward 2 07]", 0},
			{"forward reply", 2, "[reply 07]", 0},
			{"forward reply", 65 | 1<<32, "[forward 0 07" + strings.Repeat("00", 63) + "]", 0},
			{"forward reply", 66 | 1<<32, "[]", 0},
			{"forward reply", 1 << 32, "[]", 0},
			{"forward reply", 0xffffffff, "[]", 0},
			{"forward reply", 2 | 0xffffffff<<32, "[forward 4294967294 07]", abi.ErrArgument},
			{"forward", 2, "[]", 0},
			{"reply", 2, "[reply 07]", 0},
			{"reply", 2 | 3<<32, "[]", 0},
			{"now", 2 | 3<<32, "[]", 0},
			{"now", 2, "[]", 0},
		} {
			g := &guest{imports: strings.Fields(c.imports)}
			g.store64(box+8, 7)
			g.store64(box, c.head)
			if m := play(t, e, g, true); m.err != nil || m.status != c.status || fmt.Sprint(m.log) != c.log {
				t.Errorf("a function with %s forged the head %#x: %v, %v, %v; want %s", c.imports, c.head, m.log, m.status, m.err, c.log)
			}
		}
	})
}

// TestWindowInside: windows that are answered from globals read as the host says, and are refused where it refuses.
func TestWindowInside(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		rw, ro := newSegment(t, 1<<16), newSegment(t, 1<<17)
		for name, windows := range map[string][]abi.Window{
			"none":          nil,
			"writable":      {rw.window(true)},
			"read-only":     {ro.window(false), rw.window(true), ro.window(false)},
			"absent first":  {{FD: -1}, ro.window(false), {FD: -1}, rw.window(true)},
			"absent second": {rw.window(true), {FD: -1}},
			"odd size":      {{FD: rw.fd, Size: 777, Writable: true}, {FD: ro.fd, Size: 3}},
		} {
			l := lay(t, e, windows...)
			for _, out := range []uint64{256, 259, l.scratch - 16, l.store - 17, l.store - 16, l.store - 15, l.store - 1, l.store, l.end - 16, l.end - 15, l.end, 0xfffffff0, 0xffffffff} {
				for _, index := range []uint32{0, 1, 2, 3, 4, 0xffffffff} {
					if testing.Short() && index%2 == 1 { // the race detector makes each of them long
						continue
					}
					g := &guest{imports: mailCalls}
					g.call("window", index, uint32(out))
					if out+16 <= l.store && out+16 <= l.end { // see what was written
						for i := range uint32(4) {
							g.keep(func() { g.i32(uint32(out) + 4*i); g.op(0x28, 0, 0) })
						}
					}
					inside, outside := play(t, e, g, true, windows...), play(t, e, g, false, windows...)
					if fmt.Sprint(inside.err) != fmt.Sprint(outside.err) || inside.status != outside.status || !slices.Equal(inside.results, outside.results) {
						t.Errorf("%s: window(%d, %#x): %v %v %v; the host says %v %v %v", name, index, out,
							inside.results, inside.status, inside.err, outside.results, outside.status, outside.err)
					}
				}
			}
		}
	})
}

// TestMailboxIsInvisible: any sequence of calls does the same with and without the mailbox, with both engines. Only
// an error that the mailbox cannot know is told at the end instead.
func TestMailboxIsInvisible(t *testing.T) {
	compiler, interpreter := newEngine(t, Config{}), newEngine(t, Config{Interpret: true})
	end := uint32(lay(t, compiler).end)
	pick := func(r *rand.Rand, from ...uint32) uint32 { return from[r.IntN(len(from))] }
	seeds := uint64(120)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		g := &guest{imports: mailCalls}
		var names []string
		for range 1 + r.IntN(7) {
			name := mailCalls[r.IntN(4)]
			if r.IntN(8) == 0 {
				name = "fork"
			}
			ptr, n := pick(r, 0, 7, 64, 191, end-64, end-8, end, 0xfffffff0), pick(r, 0, 1, 8, 63, 64, 65, 66)
			names = append(names, name)
			switch name {
			case "forward", "fork":
				g.call(name, pick(r, 0, 1, 4, 5, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff), ptr, n)
			case "reply":
				g.call(name, ptr, n)
			case "window":
				g.call(name, uint32(r.IntN(4)), pick(r, 300, 301, end-16, end-15, end))
			case "log":
				g.i32(ptr)
				g.i32(n)
				g.op(0x10, g.index(name))
				names = names[:len(names)-1]
			}
		}
		want := play(t, compiler, g, false)
		for i, e := range []*Engine{compiler, interpreter} {
			got := play(t, e, g, true)
			if !slices.Equal(got.log, want.log) || got.err != nil || want.err != nil || !bytes.Equal(got.memory, want.memory) {
				t.Fatalf("seed %d, engine %d: %v: %q, %v; without a mailbox %q, %v", seed, i, names, got.log, got.err, want.log, want.err)
			}
			late := abi.OK
			for k, r := range got.results {
				if w := want.results[k]; r == 0 && w != 0 && (names[k] == "reply" || names[k] == "forward") {
					if late == abi.OK {
						late = abi.Status(w)
					}
				} else if r != w {
					t.Fatalf("seed %d, engine %d: %v: call %d returned %d, without a mailbox %d", seed, i, names, k, r, w)
				}
			}
			if got.status != late {
				t.Fatalf("seed %d, engine %d: %v ended with %v, want %v", seed, i, names, got.status, late)
			}
		}
	}
}
