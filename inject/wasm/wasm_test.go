package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
)

//go:generate testdata/src/build.sh

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == compilerMark {
		beCompiler(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// fakeHost records what a function does. Its slices are copied, as a real one must.
type fakeHost struct {
	derived   []string // by Derive
	constants []byte
	ticks     atomic.Int64
	stop      func() error
	reply     []byte
	parts     [][]byte
	forwards  []string
	forks     int
	log       []byte
	remote    [64]byte // window 1 of every other element
	refuse    abi.Status
	done      bool // a second reply is refused
	replied   bool
	events    []string
	scratch   uint64
	short     error // what the engine said last of its room
	wait      error // what Scratch stops the run with
}

func (h *fakeHost) Tick() error {
	h.ticks.Add(1)
	if h.stop != nil {
		return h.stop()
	}
	return nil
}
func (h *fakeHost) Self() uint32     { return 3 }
func (h *fakeHost) Elements() uint32 { return 5 }
func (h *fakeHost) ShardRows(_, e uint32) (uint64, uint64, abi.Status) {
	if e >= 5 {
		return 0, 0, abi.ErrArgument
	}
	return uint64(e) * 100, 100, abi.OK
}
func (h *fakeHost) Owner(_ uint32, row uint64) (uint32, uint64, abi.Status) {
	if row >= 500 {
		return 0, 0, abi.ErrArgument
	}
	return uint32(row / 100), row % 100, abi.OK
}
func (h *fakeHost) Row(_, e uint32, local uint64) (uint64, abi.Status) {
	if e >= 5 || local >= 100 {
		return 0, abi.ErrArgument
	}
	return uint64(e)*100 + local, abi.OK
}
func (h *fakeHost) Reply(data []byte) abi.Status {
	if h.done {
		h.events = append(h.events, fmt.Sprintf("reply %x", data))
		if h.replied {
			return abi.ErrDone
		}
		h.replied = true
	}
	h.reply = append(h.reply[:0], data...)
	return abi.OK
}
func (h *fakeHost) ReplyPart(data []byte) abi.Status {
	h.parts = append(h.parts, append([]byte(nil), data...))
	return abi.OK
}
func (h *fakeHost) Onward(e uint32, data []byte) abi.Status { return h.Forward(0, e, data) }

func (h *fakeHost) Forward(_, e uint32, data []byte) abi.Status {
	h.forwards = append(h.forwards, string(data))
	return h.refuse
}
func (h *fakeHost) Fork(_, e uint32, data []byte) abi.Status { h.forks++; return abi.OK }
func (h *fakeHost) Get(e, w uint32, off uint64, dst []byte) abi.Status {
	if w != 1 || off > 64 || off+uint64(len(dst)) > 64 {
		return abi.ErrArgument
	}
	copy(dst, h.remote[off:])
	return abi.OK
}
func (h *fakeHost) Put(e, w uint32, off uint64, src []byte) abi.Status {
	if w != 1 || off > 64 || off+uint64(len(src)) > 64 {
		return abi.ErrArgument
	}
	copy(h.remote[off:], src)
	return abi.OK
}
func (h *fakeHost) Atomic(e, w uint32, off uint64, op abi.AtomicOp, width uint32, operand, compare uint64) (uint64, abi.Status) {
	if off+8 > 64 {
		return 0, abi.ErrArgument
	}
	old := binary.LittleEndian.Uint64(h.remote[off:])
	binary.LittleEndian.PutUint64(h.remote[off:], old+operand)
	return old, abi.OK
}
func (h *fakeHost) Scratch(n uint64, short error) (abi.Status, error) {
	h.scratch, h.short = n, short
	return h.refuse, h.wait
}
func (h *fakeHost) Log(text []byte) {
	h.log = append(h.log, text...)
	h.events = append(h.events, fmt.Sprintf("log %x", text))
}

// farElement is one whose windows are not mapped here.
const farElement = 9

func (h *fakeHost) GetNear(element, window uint32, offset uint64, dst []byte) abi.Status {
	if element == farElement {
		return abi.ErrFar
	}
	return h.Get(element, window, offset, dst)
}
func (h *fakeHost) NowNs() uint64  { return 1234567890 }
func (h *fakeHost) Random() uint64 { return 0x1122334455667788 }
func (h *fakeHost) Derive(constants []byte) (uint32, abi.Status) {
	if len(constants) != 4 {
		return 0, abi.ErrArgument
	}
	h.derived = append(h.derived, string(constants))
	return uint32(len(h.derived)), abi.OK
}
func (h *fakeHost) Assemble(code []byte) (uint32, abi.Status) {
	if len(code) > abi.MaxAssembledBytes {
		return 0, abi.ErrLimit
	}
	h.derived = append(h.derived, string(code))
	return uint32(len(h.derived)), abi.OK
}
func (h *fakeHost) Constants() []byte   { return h.constants }
func (h *fakeHost) RemainingNs() uint64 { return 42 }

// order is lab.c's payload.
type order struct {
	op, a, b, c uint32
	x, y        uint64
}

func (o order) payload() []byte {
	var b []byte
	for _, v := range []uint32{o.op, o.a, o.b, o.c} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, o.x)
	return binary.LittleEndian.AppendUint64(b, o.y)
}

func code(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newEngine(t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func compile(t testing.TB, e *Engine, name string, limits abi.Limits) *Program {
	t.Helper()
	b := code(t, name)
	p, err := e.Compile(context.Background(), sha256.Sum256(b), 1, b, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func bind(t testing.TB, p *Program, principal string, windows ...abi.Window) *Binding {
	t.Helper()
	b, err := p.Bind(principal, windows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func acquire(t testing.TB, b *Binding) *Instance {
	t.Helper()
	in, err := b.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// once runs an order on an instance of its own acquisition.
func once(t testing.TB, b *Binding, h *fakeHost, o order) (abi.Status, error) {
	t.Helper()
	in := acquire(t, b)
	defer in.Release()
	return in.Run(&Run{Payload: o.payload(), Host: h})
}

// value is the number that an order is answered with.
func value(t testing.TB, b *Binding, o order) uint64 {
	t.Helper()
	h := &fakeHost{}
	st, err := once(t, b, h, o)
	if err != nil || st != abi.OK || len(h.reply) < 8 {
		t.Fatalf("%+v: status %d, %v, reply %x", o, st, err, h.reply)
	}
	return binary.LittleEndian.Uint64(h.reply)
}

// segment is a sealed memfd with the owner's mapping.
type segment struct {
	fd  int
	mem []byte
}

func newSegment(t testing.TB, bytes int) *segment {
	t.Helper()
	return makeSegment(t, bytes, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
}

func makeSegment(t testing.TB, bytes, seals int) *segment {
	t.Helper()
	fd, err := unix.MemfdCreate("window", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	s := &segment{fd: fd}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		t.Fatal(err)
	}
	if s.mem, err = unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Munmap(s.mem)
		unix.Close(s.fd)
	})
	return s
}

func (s *segment) window(writable bool) abi.Window {
	return abi.Window{FD: s.fd, Size: uint64(len(s.mem)), Writable: writable}
}

func (s *segment) words() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(&s.mem[0])), len(s.mem)/4)
}

func TestEcho(t *testing.T) {
	for _, interpret := range []bool{false, true} {
		e := newEngine(t, Config{Interpret: interpret})
		b := bind(t, compile(t, e, "echo", abi.Limits{}), "alice")
		in := acquire(t, b)
		defer in.Release()
		for _, payload := range []string{"", "ping", string(make([]byte, 100_000))} {
			h := &fakeHost{}
			st, err := in.Run(&Run{Payload: []byte(payload), Host: h})
			if err != nil || st != abi.OK || string(h.reply) != payload {
				t.Fatalf("interpret %t: status %d, %v, reply of %d bytes", interpret, st, err, len(h.reply))
			}
		}
	}
}

// patience is what a test waits for something that takes milliseconds on an idle
// machine; BenchmarkStop measures how many.
const patience = 5 * time.Second

func within(t *testing.T, what string, limit time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > limit {
		t.Errorf("%s took %v", what, took)
	}
}
