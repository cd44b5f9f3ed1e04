package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// wasmBound is testdata/lab.c as wasm, with the same windows.
func wasmBound(t *testing.T, windows ...abi.Window) abi.Bound {
	t.Helper()
	return bind(t, must(wasmProgram(t, "lab.c", abi.Version, nil))(t), "alice", windows...)
}

// must is the program, or the end of the test.
func must(p abi.Program, err error) func(*testing.T) abi.Program {
	return func(t *testing.T) abi.Program {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
}

// wasmProgram is a source as wasm, for an ABI version.
func wasmProgram(t *testing.T, name string, version uint32, defines map[string]string) (abi.Program, error) {
	t.Helper()
	source, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	code, err := cbuild.Compile(t.Context(), cbuild.Source{Name: name, Code: source}, cbuild.Options{Defines: defines})
	if err != nil {
		t.Fatal(err)
	}
	e, err := wasm.New(wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return wasm.Runner{Engine: e}.Load(t.Context(), abi.Code{Form: "wasm32", ABI: version, Bytes: code})
}

// heard is all that a host heard of a run, and how the run ended.
func heard(t *testing.T, b abi.Bound, o order) string {
	t.Helper()
	place, err := b.Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := place.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	h := &fakeHost{}
	for i := range h.memory {
		h.memory[i] = byte(i * 7)
	}
	st, err := in.Run(o.payload(), o.limits(), h)
	if err != nil {
		return "fails"
	}
	if o.op == 30 { // the clock
		h.reply = append(h.reply[:16:16], h.reply[24:]...)
	}
	return fmt.Sprintf("%d reply %v %x parts %q forwarded %q onward %q forks %q log %q over %q memory %x", st, h.replied, h.reply, h.parts, h.forwarded, h.onward,
		h.forks, h.log, h.limited, h.memory[:32])
}

// TestAsWasm: the same source gives the same answers, messages and errors as wasm, call by call.
func TestAsWasm(t *testing.T) {
	readOnly, writable := segment(t, 1<<16), segment(t, 1<<16)
	for i := range readOnly.Bytes() {
		readOnly.Bytes()[i] = byte(i)
	}
	windows := []abi.Window{{FD: readOnly.FD(), Size: 60000}, {FD: writable.FD(), Size: 1 << 16, Writable: true}, {}}
	native, portable := bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice", windows...), wasmBound(t, windows...)
	orders := []order{{op: 1}, {op: 3, n: 9}, {op: 20, n: 0, a: 40}, {op: 20, n: 2}, {op: 20, n: 3}, {op: 20, n: 1 << 31}, {op: 21, n: 1, a: 8, b: 5}, {op: 21, n: 0, b: 5},
		{op: 13}, {op: 14, a: 1}, {op: 14, a: 8, b: 2}, {op: 42, a: 0}, {op: 42, a: 64}, {op: 42, a: 65}, {op: 42, a: 32768}, {op: 47},
		{op: 34, n: 1, a: 1 << 20}, {op: 36, a: 3, b: 1}, {op: 31, a: 499}, {op: 31, a: 500}, {op: 32, n: 5}, {op: 33, n: 5}, {op: 38, n: 1},
		{op: 55, n: 0, a: 8}, {op: 55, n: 1, a: 4096}, {op: 55, n: 2, a: 8}, {op: 55, n: 3, a: 8},
		{op: 52, a: 7, b: 3}, {op: 52, n: 1}, {op: 53}, {op: 53, n: 1}, {op: 53, n: 2}, {op: 54}, {op: 54, n: 1},
		{op: 50, a: 1}, {op: 50, a: 1 << 20}, {op: 50, a: 5 << 20}, {op: 50}, {op: 51, a: 100, b: 99}, {op: 51, a: 100, b: 1 << 16}}
	for op := uint32(30); op < 45; op++ {
		orders = append(orders, order{op: op, n: 1, a: 8, b: 3})
	}
	var here abi.Bound // in this process, where that can be, and where the run time is by the clock
	if stackswitch.Resumes() {
		here = bind(t, load(t, inside(t, Config{}), abi.Limits{RunTime: time.Minute}), "alice", windows...)
	}
	for _, o := range orders {
		want := heard(t, portable, o)
		if here != nil && want != "fails" { // nothing there contains what fails
			if got := heard(t, here, o); got != want {
				t.Errorf("%+v:\nhere %s\nwasm %s", o, got, want)
			}
		}
		if got := heard(t, native, o); got != want {
			t.Errorf("%+v:\nnative %s\nwasm   %s", o, got, want)
		}
	}
	if got := numbers(writable.Bytes()[8:16])[0]; got != 5 {
		t.Errorf("the writable window has %d", got)
	}
}

// TestLargeWindows: windows that do not fit into a function's memory are seen a part at a time, and as a whole natively; the answers are the same.
func TestLargeWindows(t *testing.T) {
	const size, step = 6<<30 + 24, 32<<20 + 8
	large, small := sparse(t, size), segment(t, 1<<16)
	var sum, n uint64
	for at := uint64(0); at+8 <= size; at += step {
		n++
		sum += at * n
		if _, err := unix.Pwrite(large, binary.LittleEndian.AppendUint64(nil, at), int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	windows := []abi.Window{{FD: large, Size: size}, {FD: large, Size: size, Writable: true}, {FD: small.FD(), Size: 1 << 16}}
	native, portable := bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice", windows...), wasmBound(t, windows...)
	want := fmt.Sprintf("reply true %x", numbersOf(0, sum, n, sum, size, ^uint64(0)))
	for window := range uint32(2) {
		for range 2 { // the second run finds another part than the first one did
			o := order{op: 55, n: window, a: step}
			for name, b := range map[string]abi.Bound{"native": native, "wasm": portable} {
				if got := heard(t, b, o); !strings.Contains(got, want) {
					t.Errorf("%s, window %d: %s, want %s", name, window, got, want)
				}
			}
		}
	}
	if got, want := heard(t, portable, order{op: 20, n: 0}), fmt.Sprintf("%d reply false", abi.ErrLimit); !strings.HasPrefix(got, want) {
		t.Errorf("the whole of a large window: %s", got)
	}
	if got := heard(t, portable, order{op: 20, n: 2}); !strings.HasPrefix(got, "0 reply true") {
		t.Errorf("a small window beside it: %s", got)
	}
}

// TestWholeWindows: windows that are wanted whole are seen so, one at a time where they do not fit beside one another; natively all are there.
func TestWholeWindows(t *testing.T) {
	const size, step = 448<<20 - 24, 32<<20 + 8
	var windows []abi.Window
	for i := range uint64(12) {
		fd := sparse(t, size)
		for at := uint64(0); at+8 <= size; at += step {
			if _, err := unix.Pwrite(fd, binary.LittleEndian.AppendUint64(nil, at+i), int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		windows = append(windows, abi.Window{FD: fd, Size: size, Whole: true}, abi.Window{FD: segment(t, 1<<16).FD(), Size: 1 << 16, Whole: true})
	}
	native, portable := bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice", windows...), wasmBound(t, windows...)
	staged := 0
	for range 2 { // the second time another one lies there than the first time
		for i := range uint64(12) {
			var sum, n uint64
			for at := uint64(0); at+8 <= size; at += step {
				n++
				sum += (at + i) * n
			}
			want := fmt.Sprintf("reply true %x", numbersOf(0, sum, n, sum, size, ^uint64(0)))
			for name, b := range map[string]abi.Bound{"native": native, "wasm": portable} {
				if got := heard(t, b, order{op: 55, n: uint32(2 * i), a: step}); !strings.Contains(got, want) {
					t.Errorf("%s, window %d: %s, want %s", name, 2*i, got, want)
				}
			}
			if strings.HasPrefix(heard(t, portable, order{op: 20, n: uint32(2 * i)}), fmt.Sprintf("%d reply false", abi.ErrLimit)) {
				staged++
			}
			if got := heard(t, portable, order{op: 20, n: uint32(2*i + 1)}); !strings.HasPrefix(got, "0 reply true") {
				t.Errorf("a small window beside it: %s", got)
			}
		}
	}
	if staged != 2*4 { // eight of them, the stage among those, have room in 4 GiB with a heap
		t.Errorf("%d of 24 times a window did not fit beside the others", staged)
	}
}

// sparse is a memfd of so many bytes, which takes as much memory as is written.
func sparse(t *testing.T, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("sparse", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, (size+1<<16-1)&^(1<<16-1)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	return fd
}

func numbersOf(list ...uint64) (b []byte) {
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// TestABI1: functions of ABI 1 run as they did, in both forms; one that uses a call of ABI 2 is refused with its name.
func TestABI1(t *testing.T) {
	object := func(e *Engine, flags ...string) (abi.Program, error) {
		code, err := compileFile("testdata/abi1.c", flags...)
		if err != nil {
			t.Fatal(err)
		}
		calls := []string{"forward", "fork", "owner", "reply", "row", "shard_rows"}
		if len(flags) > 0 {
			calls = append(calls, "random")
		}
		return e.Load(t.Context(), abi.Code{Form: "elf", Triple: triple(), ABI: 1, Imports: calls, Bytes: code})
	}
	e := newEngine(t, Config{})
	natives := []abi.Bound{bind(t, must(object(e))(t), "alice")}
	if stackswitch.Resumes() {
		natives = append(natives, bind(t, must(object(inside(t, Config{})))(t), "alice"))
	}
	portable := bind(t, must(wasmProgram(t, "abi1.c", 1, nil))(t), "alice")
	for _, o := range []order{{op: 1, n: 3}, {op: 2, n: 4}, {op: 3, n: 2}, {op: 4, n: 1, a: 250, b: 9}, {op: 4, n: 9, a: 500}} {
		want := heard(t, portable, o)
		for i, b := range natives {
			if got := heard(t, b, o); got != want || o.op == 3 && !strings.Contains(got, `forks ["0:2:24"]`) || o.op == 2 && !strings.Contains(got, `"4:200"`) {
				t.Errorf("%+v:\nnative %d %s\nwasm   %s", o, i, got, want)
			}
		}
	}
	_, asWasm := wasmProgram(t, "abi1.c", 1, map[string]string{"LATER": "1"})
	_, asObject := object(e, "-DLATER=1")
	for _, err := range []error{asWasm, asObject} {
		if err == nil || !strings.Contains(err.Error(), `"random" came with ABI version 2`) {
			t.Errorf("ABI 1 with random: %v", err)
		}
	}
}

// TestPointers: what a host call names must be the function's own; a Get does not write to constants or read-only windows.
func TestPointers(t *testing.T) {
	readOnly := segment(t, 1<<16)
	b := bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice", abi.Window{FD: readOnly.FD(), Size: 1 << 16})
	stack := uint64(worker.StackAt)
	for _, c := range []struct {
		o    order
		want abi.Status
	}{
		{order{op: 45, n: 100, a: 0}, abi.ErrMemory},
		{order{op: 45, n: 100, a: worker.Base}, abi.ErrMemory},
		{order{op: 45, n: 100, a: worker.ContextAt}, abi.ErrMemory},
		{order{op: 45, n: 100, a: worker.ScratchAt}, abi.ErrMemory},
		{order{op: 45, n: 100, a: worker.WindowsAt + 1<<16 - 99}, abi.ErrMemory},
		{order{op: 45, n: 100, a: worker.WindowsAt + 1<<16 - 100}, abi.OK},
		{order{op: 45, n: 100, a: ^uint64(0) - 50}, abi.ErrMemory},
		{order{op: 45, n: 1 << 31, a: stack}, abi.ErrMemory},
		{order{op: 45, n: worker.StackBytes, a: stack}, abi.OK},
		{order{op: 45, n: 0, a: stack}, abi.OK},
		{order{op: 46, n: 8, a: worker.WindowsAt}, abi.ErrRights},
		{order{op: 46, n: 8, a: worker.FunctionAt}, abi.ErrRights},
		{order{op: 46, n: 8, a: stack}, abi.OK},
	} {
		if _, st, err := run(t, b, c.o); err != nil || st != c.want {
			t.Errorf("%+v: %v, %v; want %v", c.o, st, err, c.want)
		}
	}
}

// TestStops: a run ends when its host says so, soon, and its worker with it.
func TestStops(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	enough := errors.New("enough")
	in := acquire(t, b)
	_, err := in.Run(order{op: 12}.payload(), nil, &fakeHost{stop: func() error { return enough }})
	var stopped *StoppedError
	if !errors.Is(err, enough) || !errors.As(err, &stopped) {
		t.Errorf("%v", err)
	}
	if _, err := in.Run(nil, nil, &fakeHost{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a run after that: %v", err)
	}
	in.Release()
	if s := e.Stats(); s.Failed != 1 || s.Live != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	in = acquire(t, b)
	defer in.Release()
	_, err = in.Run(order{op: 12}.payload(), &abi.Limits{RunTime: 10 * time.Millisecond}, &fakeHost{})
	if !errors.Is(err, abi.ErrOverLimit) || !strings.Contains(err.Error(), "run_time_ns") {
		t.Errorf("a run with a limit of its own: %v", err)
	}
}

// TestCopiesAreCharged: what the node copies for a function is the function's time.
func TestCopiesAreCharged(t *testing.T) {
	const runTime = 200 * time.Millisecond // so long that no machine is too busy for the first copy
	in := acquire(t, bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: runTime}), "alice"))
	defer in.Release()
	h := &fakeHost{}
	_, err := in.Run(order{op: 49}.payload(), nil, h)
	if most := int(runTime) * copyRate >> 20; !errors.Is(err, abi.ErrOverLimit) || h.gets > most || h.gets == 0 {
		t.Errorf("%d copies of 1 MiB, at most %d in %v: %v", h.gets, most, runTime, err)
	}
}

// TestLongCopiesGiveWay: before each copy that takes a while, others get the fabric to drive.
func TestLongCopiesGiveWay(t *testing.T) {
	in := acquire(t, bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: time.Minute}), "alice"))
	defer in.Release()
	h := &fakeHost{}
	if _, err := in.Run(order{op: 56}.payload(), nil, h); err != nil || h.gets != 100 || h.ticks.Load() < 100 {
		t.Errorf("%d copies of 100 KiB, and %d looks: %v", h.gets, h.ticks.Load(), err)
	}
}

// mover is a host whose windows have any size. It counts what it moves.
type mover struct {
	fakeHost
	moved, most int // since the last look; at most
	sum         int
	stopAfter   int
}

func (h *mover) move(n int) abi.Status {
	h.moved, h.sum = h.moved+n, h.sum+n
	h.most = max(h.most, h.moved)
	return abi.OK
}

func (h *mover) Get(_, _ uint32, _ uint64, dst []byte) abi.Status { return h.move(len(dst)) }
func (h *mover) Put(_, _ uint32, _ uint64, src []byte) abi.Status { return h.move(len(src)) }
func (h *mover) Reply(data []byte) abi.Status                     { return h.move(len(data)) }
func (h *mover) ReplyPart(data []byte) abi.Status                 { return h.move(len(data)) }
func (h *mover) Fork(_, _ uint32, data []byte) abi.Status         { return h.move(len(data)) }

func (h *mover) Tick() error {
	h.ticks.Add(1)
	if h.moved = 0; h.stopAfter > 0 && h.sum >= h.stopAfter {
		return errEnough
	}
	return nil
}

var errEnough = errors.New("enough")

// TestHostCallsInPieces: of the largest copies that there are, over and over, each piece is looked at first, so that a run ends in the middle of one; in a worker and in
// this process.
func TestHostCallsInPieces(t *testing.T) {
	const window, stop = 128 << 20, 300 << 20
	large := sparse(t, window)
	engines := map[string]*Engine{"in a worker": newEngine(t, Config{})}
	if stackswitch.Resumes() {
		engines["in this process"] = inside(t, Config{})
	}
	for where, e := range engines {
		b := bind(t, load(t, e, abi.Limits{RunTime: time.Minute}), "alice", abi.Window{FD: large, Size: window, Writable: true})
		for _, op := range []uint32{57, 58} {
			h := &mover{stopAfter: stop}
			in := acquire(t, b)
			if _, err := in.Run(order{op: op, n: 200, a: window}.payload(), nil, h); !errors.Is(err, errEnough) || h.sum != stop || h.most > abi.PieceBytes {
				t.Errorf("%s, order %d: of 200 copies of 128 MiB it made %d bytes, at most %d between two looks: %v", where, op, h.sum, h.most, err)
			}
			in.Release()
		}
	}
}

// oneSlice is a host of a run whose slice does not end any more once it has made a host call: from there on what it is charged ends it, and nothing else.
type oneSlice struct {
	mover
	in *instance
}

func (h *oneSlice) move(n int) abi.Status {
	const most = 1 << 17 // calls, and then slices end as ever
	h.in.slice.used = 0
	if h.in.slice.end = time.Now().Add(time.Minute); h.calls >= most {
		h.in.slice.end = time.Time{}
	}
	h.calls++
	return h.mover.move(n)
}

func (h *oneSlice) ReplyPart(data []byte) abi.Status               { return h.move(len(data)) }
func (h *oneSlice) Fork(_, _ uint32, data []byte) abi.Status       { return h.move(len(data)) }
func (h *oneSlice) Row(_, _ uint32, _ uint64) (uint64, abi.Status) { return 0, h.move(0) }

// TestMessagesAreCharged: what a function sends is its own time, as what it has copied is and each host call. It sends what it can pay for and not one message more,
// however late its slice ends.
func TestMessagesAreCharged(t *testing.T) {
	const runTime, messages, long = 100 * time.Millisecond, 1 << 14, 59 << 10
	e := newEngine(t, Config{Ceilings: abi.Limits{ReplyBytes: 1 << 40}})
	b := bind(t, load(t, e, abi.Limits{RunTime: runTime, ReplyBytes: 1 << 40, Forks: 1 << 16}), "alice")
	for _, c := range []struct {
		what  string
		op    uint32
		bytes int
	}{{"parts of a reply", 59, long}, {"forks", 60, long}, {"host calls", 47, 0}} {
		in := acquire(t, b)
		h := &oneSlice{in: in}
		h.dealt = true // so that the node answers each call
		want := int(runTime / (callTime + time.Duration(c.bytes/copyRate)))
		if _, err := in.Run(order{op: c.op, n: messages}.payload(), nil, h); !errors.Is(err, abi.ErrOverLimit) || h.calls != want || h.sum != want*c.bytes {
			t.Errorf("%d %s, of %d bytes, in a run time of %v, want %d: %v", h.calls, c.what, h.sum, runTime, want, err)
		}
		in.Release()
	}
}

// TestLongReplyGivesWay: a reply that is longer than a long copy is not sent before others have the fabric to drive.
func TestLongReplyGivesWay(t *testing.T) {
	in := acquire(t, bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: time.Minute}), "alice"))
	defer in.Release()
	h := &mover{}
	if _, err := in.Run(order{op: 61, n: 1 << 20}.payload(), nil, h); err != nil || h.sum != 1<<20 || h.ticks.Load() == 0 {
		t.Errorf("a reply of %d bytes was sent after %d looks: %v", h.sum, h.ticks.Load(), err)
	}
}

// TestLimits: what is beyond a limit is refused, and the host hears which.
func TestLimits(t *testing.T) {
	p := load(t, newEngine(t, Config{}), abi.Limits{PayloadBytes: 100, ReplyBytes: 1000, Forks: 1, LogBytes: 3})
	b := bind(t, p, "alice")
	for _, c := range []struct {
		o    order
		want string
		st   abi.Status
	}{
		{order{op: 42, a: 1001}, "reply_bytes 1000 67108864", abi.ErrLimit},
		{order{op: 41}, "payload_bytes 100 67108864", abi.ErrLimit},
		{order{op: 50, a: 1 << 30}, "scratch_bytes 4194304 1073741824", abi.ErrLimit},
	} {
		h, st, err := run(t, b, c.o)
		if err != nil || st != c.st || !slices.Contains(h.limited, c.want) {
			t.Errorf("%+v: %v, %v, %q", c.o, st, err, h.limited)
		}
	}
	in := acquire(t, b)
	defer in.Release()
	if _, err := in.Run(make([]byte, 101), nil, &fakeHost{}); !errors.Is(err, abi.ErrOverLimit) {
		t.Errorf("a long payload: %v", err)
	}
	h := &fakeHost{}
	if _, err := in.Run(order{op: 38}.payload(), nil, h); err != nil || fmt.Sprint(h.log) != "[alp]" {
		t.Errorf("a long line: %q, %v", h.log, err)
	}
	object, err := lab()
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.(*program).engine.Load(t.Context(), abi.Code{Form: "elf", Triple: triple(), ABI: abi.Version, Imports: allCalls(), Bytes: object, Limits: abi.Limits{HeapBytes: 1 << 20}})
	if !errors.Is(err, abi.ErrOverLimit) || !strings.Contains(err.Error(), "heap_bytes") {
		t.Errorf("large statics: %v", err)
	}
}

// TestScratch: scratch keeps its content between the runs of an invocation, is zero for the next one, and what was
// not asked for cannot be touched.
func TestScratch(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	base := e.Stats().Bytes
	for range 2 {
		in := acquire(t, b)
		base = e.Stats().Bytes
		for i := range 3 {
			h := &fakeHost{}
			if _, err := in.Run(order{op: 50, a: 100 << 10}.payload(), nil, h); err != nil || numbers(h.reply)[0] != uint64(i) {
				t.Errorf("run %d finds %v, %v", i, numbers(h.reply), err)
			}
		}
		if got := e.Stats().Bytes; got != base+128<<10 {
			t.Errorf("charged %d, want %d for 100 KiB of scratch", got, base+128<<10)
		}
		in.Release()
		if got := e.Stats().Bytes; got != base {
			t.Errorf("charged %d after its release, want %d", got, base)
		}
	}
	in := acquire(t, b)
	defer in.Release()
	_, err := in.Run(order{op: 51, a: 100 << 10, b: 128 << 10}.payload(), nil, &fakeHost{})
	if err == nil || !strings.Contains(err.Error(), "byte 131072 of scratch, of which it has asked for 102400") {
		t.Errorf("a store to scratch that was not asked for: %v", err)
	}
}

// TestRoom: workers are bounded, in all and for one principal; idle ones make room; who finds none hears so.
func TestRoom(t *testing.T) {
	e := newEngine(t, Config{MaxWorkers: 4})
	p := load(t, e, abi.Limits{})
	alice, bob := bind(t, p, "alice"), bind(t, p, "bob")
	var running []*instance
	for range 3 {
		running = append(running, acquire(t, alice))
	}
	if _, err := alice.Reserve(0); !errors.Is(err, abi.ErrShareBusy) {
		t.Errorf("a fourth worker of four for one principal: %v", err)
	}
	running = append(running, acquire(t, bob))
	if _, err := bob.Reserve(0); !errors.Is(err, abi.ErrEngineBusy) {
		t.Errorf("a fifth worker of four: %v", err)
	}
	running[0].Release()
	running[0] = acquire(t, bob)
	if s := e.Stats(); s.Evicted != 1 || s.Live != 4 {
		t.Errorf("%+v", s)
	}
	for _, in := range running {
		in.Release()
	}
	place, err := bob.Reserve(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	place.Release()
	if got, want := bob.Need(1<<20)-bob.Need(0), uint64(1<<20); got != want {
		t.Errorf("1 MiB of scratch needs %d", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other := bind(t, p, "carol")
	if place, err = other.Reserve(0); err == nil {
		_, err = place.Acquire(ctx)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("acquired with a canceled context: %v", err)
	}
}

// TestNear: a worker answers by itself that another element is far, where none is near; of itself, and of what is no element, it asks.
func TestNear(t *testing.T) {
	p := load(t, newEngine(t, Config{}), abi.Limits{})
	for _, near := range []bool{false, true} {
		in := acquire(t, bind(t, p, "alice"))
		for _, o := range []struct {
			element uint32
			offset  uint64
			want    abi.Status
			asks    bool // though none is near
		}{{1, 8, abi.OK, false}, {1, 1 << 20, abi.ErrArgument, false}, {2, 8, abi.OK, true}, {2, 1 << 20, abi.ErrArgument, true}, {farElement, 8, abi.ErrFar, true}} {
			h := &fakeHost{near: near}
			h.memory[8] = 42
			if _, err := in.Run(order{op: 62, n: o.element, a: o.offset}.payload(), nil, h); err != nil {
				t.Fatal(err)
			}
			want, calls, word := abi.ErrFar, 0, uint64(0)
			if near || o.asks {
				want, calls = o.want, 1
			}
			if want == abi.OK {
				word = 42
			}
			if got := numbers(h.reply); abi.Status(got[0]) != want || got[1] != word || h.calls != calls {
				t.Errorf("near %v, %+v: %v with %d calls; want %v, %d with %d", near, o, got[:2], h.calls, want, word, calls)
			}
		}
		in.Release()
	}
}

// TestNearLater: a worker hears of an element that has become near before its next run.
func TestNearLater(t *testing.T) {
	in := acquire(t, bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice"))
	defer in.Release()
	for i, want := range []abi.Status{abi.ErrFar, abi.OK} {
		h := &fakeHost{near: i == 1}
		if _, err := in.Run(order{op: 62, n: 1, a: 8}.payload(), nil, h); err != nil {
			t.Fatal(err)
		}
		if got := abi.Status(numbers(h.reply)[0]); got != want {
			t.Errorf("run %d: %v, want %v", i, got, want)
		}
	}
}

// TestRanges: a worker is told once which rows are where, and asks only for what is none of them, or if nothing is to be told.
func TestRanges(t *testing.T) {
	p := load(t, newEngine(t, Config{}), abi.Limits{})
	for _, dealt := range []bool{false, true} {
		in := acquire(t, bind(t, p, "alice"))
		for i, o := range []struct {
			order
			want  []uint64
			calls int
		}{
			{order{op: 31, a: 0}, []uint64{0, 0}, 0},
			{order{op: 31, a: 99}, []uint64{0, 99}, 0},
			{order{op: 31, a: 100}, []uint64{1, 0}, 0},
			{order{op: 31, a: 499}, []uint64{4, 99}, 0},
			{order{op: 31, a: 500}, []uint64{0xffffffffffffffff, 0}, 1},
			{order{op: 32, n: 3, a: 7}, []uint64{307, 0}, 0},
			{order{op: 32, n: 3, a: 100}, []uint64{400, 0}, 1},
			{order{op: 33, n: 4}, []uint64{0, 400, 100}, 0},
			{order{op: 33, n: 5}, []uint64{0xffffffffffffffff}, 1},
			{order{op: 33, n: 1 << 31}, []uint64{0xffffffffffffffff}, 1},
		} {
			h := &fakeHost{dealt: dealt}
			if _, err := in.Run(o.payload(), nil, h); err != nil {
				t.Fatal(err)
			}
			if dealt {
				o.calls = 1
			}
			if got := numbers(h.reply)[:len(o.want)]; !slices.Equal(got, o.want) || h.calls != o.calls || i > 0 && h.asked > 0 {
				t.Errorf("dealt %v, %+v: %v with %d calls, asked %d; want %v with %d", dealt, o.order, got, h.calls, h.asked, o.want, o.calls)
			}
		}
		in.Release()
	}
}

// TestSleepsItsTurn: a function that sleeps uses no processor time, but holds its worker, and that has an end too.
func TestSleepsItsTurn(t *testing.T) {
	number, ok := map[string]uint32{"x86_64": 202, "aarch64": 98, "riscv64": 98}[worker.Arch]
	if !ok {
		t.Fatalf("which number has futex on %s?", worker.Arch)
	}
	b := bind(t, load(t, newEngine(t, Config{}), abi.Limits{RunTime: 20 * time.Millisecond}), "alice")
	in := acquire(t, b)
	defer in.Release()
	h := &fakeHost{}
	h.stop = func() error {
		if h.ticks.Load() > 500 {
			return errors.New("it sleeps on")
		}
		return nil
	}
	if _, err := in.Run(order{op: 18, n: number}.payload(), nil, h); !errors.Is(err, abi.ErrOverLimit) || !strings.Contains(err.Error(), "run_time_ns") {
		t.Errorf("%v", err)
	}
}

// TestCallsAreCharged: a run pays for the node's time at each host call that the node answers.
func TestCallsAreCharged(t *testing.T) {
	b := bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice")
	in := acquire(t, b)
	defer in.Release()
	h := &fakeHost{dealt: true}
	if st, err := in.Run(order{op: 31, a: 150}.payload(), nil, h); err != nil || st != abi.OK {
		t.Fatalf("%v, %v", st, err)
	}
	if want := time.Duration(h.calls) * callTime; h.calls == 0 || in.slice.spent != want {
		t.Errorf("%d calls are charged %v, want %v", h.calls, in.slice.spent, want)
	}
}
