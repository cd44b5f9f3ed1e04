package native

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/internal/memfd"
	"github.com/wherry-fabric/wherry/sdk"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

// fakeHost is an invocation that remembers what a function did.
type fakeHost struct {
	derived   []string // by Derive
	constants []byte
	ticks     atomic.Int64
	stop      func() error
	room      func(n uint64, short error) (abi.Status, error)
	reply     []byte
	replied   bool
	parts     []string
	forwarded string
	onward    string
	forks     []string
	log       []string
	limited   []string
	calls     int           // of Owner, Row and ShardRows
	asked     int           // of Range
	near      bool          // there are windows that GetNear reads
	dealt     bool          // which it does not tell
	gets      int           // of more than there is
	memory    [1 << 16]byte // of window 1 of any element
}

func (h *fakeHost) Tick() error {
	h.ticks.Add(1)
	if h.stop != nil {
		return h.stop()
	}
	return nil
}
func (h *fakeHost) Self() uint32     { return 2 }
func (h *fakeHost) Elements() uint32 { return 5 }
func (h *fakeHost) ShardRows(dataset, element uint32) (uint64, uint64, abi.Status) {
	h.calls++
	if dataset != 0 || element > 4 {
		return 0, 0, abi.ErrArgument
	}
	return uint64(element) * 100, 100, abi.OK
}
func (h *fakeHost) Range(element uint32) (first, count uint64, ok bool) {
	h.asked++
	first, count, st := h.ShardRows(0, element)
	h.calls--
	return first, count, st == abi.OK && !h.dealt
}
func (h *fakeHost) Near() bool { return h.near }
func (h *fakeHost) Owner(dataset uint32, row uint64) (uint32, uint64, abi.Status) {
	h.calls++
	if dataset != 0 || row >= 500 {
		return 0, 0, abi.ErrArgument
	}
	return uint32(row / 100), row % 100, abi.OK
}
func (h *fakeHost) Row(dataset, element uint32, local uint64) (uint64, abi.Status) {
	h.calls++
	if dataset != 0 || element > 4 {
		return 0, abi.ErrArgument
	}
	return uint64(element)*100 + local, abi.OK
}
func (h *fakeHost) Reply(data []byte) abi.Status {
	if h.replied || h.forwarded != "" {
		return abi.ErrDone
	}
	h.reply, h.replied = append([]byte(nil), data...), true
	return abi.OK
}
func (h *fakeHost) ReplyPart(data []byte) abi.Status {
	h.parts = append(h.parts, string(data))
	return abi.OK
}
func (h *fakeHost) Forward(function, element uint32, payload []byte) abi.Status {
	if function != 0 {
		h.forwarded = fmt.Sprintf("function %d, ", function)
	}
	h.forwarded += fmt.Sprintf("%d:%d", element, len(payload))
	return abi.OK
}
func (h *fakeHost) Onward(element uint32, payload []byte) abi.Status {
	h.onward = fmt.Sprintf("%d:%d", element, len(payload))
	return abi.OK
}
func (h *fakeHost) Fork(function, element uint32, payload []byte) abi.Status {
	if function > 1 {
		return abi.ErrArgument
	}
	h.forks = append(h.forks, fmt.Sprintf("%d:%d:%d", function, element, len(payload)))
	return abi.OK
}
func (h *fakeHost) Get(element, window uint32, offset uint64, dst []byte) abi.Status {
	if len(dst) > len(h.memory) {
		h.gets++
		return abi.OK // as if it had been copied
	}
	if window != 1 || offset > uint64(len(h.memory)-len(dst)) {
		return abi.ErrArgument
	}
	copy(dst, h.memory[offset:])
	return abi.OK
}
func (h *fakeHost) Put(element, window uint32, offset uint64, src []byte) abi.Status {
	copy(h.memory[offset:], src)
	return abi.OK
}
func (h *fakeHost) Atomic(element, window uint32, offset uint64, op abi.AtomicOp, width uint32, operand, compare uint64) (uint64, abi.Status) {
	old := binary.LittleEndian.Uint64(h.memory[offset:])
	binary.LittleEndian.PutUint64(h.memory[offset:], old+operand)
	return old, abi.OK
}
func (h *fakeHost) Scratch(n uint64, short error) (abi.Status, error) {
	if h.room != nil {
		return h.room(n, short)
	}
	if short != nil {
		return abi.ErrLimit, nil
	}
	return abi.OK, nil
}
func (h *fakeHost) Log(text []byte) { h.log = append(h.log, string(text)) }

// farElement is one whose windows are not mapped here.
const farElement = 9

func (h *fakeHost) GetNear(element, window uint32, offset uint64, dst []byte) abi.Status {
	h.calls++
	if element == farElement {
		return abi.ErrFar
	}
	return h.Get(element, window, offset, dst)
}
func (h *fakeHost) NowNs() uint64  { return uint64(time.Now().UnixNano()) }
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
func (h *fakeHost) RemainingNs() uint64 { return 1234 }
func (h *fakeHost) OverLimit(field string, limit, ceiling uint64) {
	h.limited = append(h.limited, fmt.Sprintf("%s %d %d", field, limit, ceiling))
}

// order is a payload of testdata/lab.c.
type order struct {
	op, n uint32
	a, b  uint64
}

func (o order) payload() []byte {
	b := binary.LittleEndian.AppendUint32(nil, o.op)
	b = binary.LittleEndian.AppendUint32(b, o.n)
	b = binary.LittleEndian.AppendUint64(b, o.a)
	return binary.LittleEndian.AppendUint64(b, o.b)
}

// limits are those of a run: of an order that never ends a short time, and of any other the program's, which it has ended long before on a slow machine too.
func (o order) limits() *abi.Limits {
	if o.op == 12 || o.op == 47 {
		return &abi.Limits{RunTime: 20 * time.Millisecond}
	}
	return nil
}

var lab = sync.OnceValues(func() ([]byte, error) { return compileFile("testdata/lab.c") })

// compileFile compiles C as functions are compiled, for this machine.
func compileFile(path string, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "native")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "wherry.h"), []byte(sdk.Header()), 0o600); err != nil {
		return nil, err
	}
	for name, text := range sdk.Parts() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	out := filepath.Join(dir, "x.o")
	flags = append(flags, "--target="+triple(), "-c", "-O2", "-fPIC", "-ffreestanding", "-ffp-contract=off", "-fsigned-char", "-fno-stack-protector",
		"-fno-asynchronous-unwind-tables", "-I", dir, "-o", out, path)
	cmd := exec.Command("clang", flags...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", cmd.Args, err, text)
	}
	return os.ReadFile(out)
}

func allCalls() (names []string) {
	for _, c := range abi.CallsOf(abi.Version) {
		names = append(names, c.Name)
	}
	return names
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
		if s := e.Stats(); s.Live != 0 || s.Bytes != 0 {
			t.Errorf("after the end there are %+v", s)
		}
	})
	if why := e.Offers()[0].Why; why != "" {
		t.Fatalf("no native code here: %s", why)
	}
	return e
}

func load(t testing.TB, e *Engine, limits abi.Limits) abi.Program {
	t.Helper()
	object, err := lab()
	return loadObject(t, e, object, err, limits)
}

func loadObject(t testing.TB, e *Engine, object []byte, err error, limits abi.Limits) abi.Program {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Load(t.Context(), abi.Code{Form: "elf", Triple: worker.Arch + "-linux-gnu", ABI: abi.Version, Imports: allCalls(), Bytes: object, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func bind(t testing.TB, p abi.Program, principal string, windows ...abi.Window) abi.Bound {
	t.Helper()
	b, err := p.Bind(t.Context(), principal, windows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func acquire(t testing.TB, b abi.Bound) *instance {
	t.Helper()
	place, err := b.Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := place.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return in.(*instance)
}

// run runs an order on an instance of its own, and gives what the host heard.
func run(t testing.TB, b abi.Bound, o order) (*fakeHost, abi.Status, error) {
	t.Helper()
	in := acquire(t, b)
	defer in.Release()
	h := &fakeHost{}
	st, err := in.Run(o.payload(), o.limits(), h)
	return h, st, err
}

func numbers(b []byte) (out []uint64) {
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, binary.LittleEndian.Uint64(b))
	}
	return out
}

func segment(t testing.TB, bytes int64) *memfd.File {
	t.Helper()
	f, err := memfd.Create("window", bytes, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestRun: a function gets its payload and answers, any number of times, on one worker.
func TestRun(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	for i := range 20 {
		o := order{op: 1, a: uint64(i)}
		h, st, err := run(t, b, o)
		if err != nil || st != abi.OK || string(h.reply) != string(o.payload()) {
			t.Fatalf("run %d: %v, %v, %x", i, st, err, h.reply)
		}
	}
	if h, st, err := run(t, b, order{op: 3, n: 17}); err != nil || st != 17 || h.replied {
		t.Errorf("its own status: %v, %v", st, err)
	}
	if s := e.Stats(); s.Created != 1 || s.Live != 1 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStatics: static variables are as declared at every run, the zeroed ones too, in whichever way they are zeroed, and in both forms.
func TestStatics(t *testing.T) {
	for name, b := range map[string]abi.Bound{
		"native": bind(t, load(t, newEngine(t, Config{}), abi.Limits{}), "alice"),
		"wasm":   wasmBound(t),
	} {
		for i := range 3 {
			want := fmt.Sprintf("reply true %x", binary.LittleEndian.AppendUint64(nil, 42*10000+100+1))
			if got := heard(t, b, order{op: 2}); !strings.Contains(got, want) {
				t.Fatalf("%s: run %d: %s, want %s", name, i, got, want)
			}
		}
	}
}

// TestFaults: whatever a function does to itself ends its run with the reason, and the next run works.
func TestFaults(t *testing.T) {
	e := newEngine(t, Config{})
	readOnly, writable := segment(t, 1<<16), segment(t, 1<<16)
	b := bind(t, load(t, e, abi.Limits{}), "alice",
		abi.Window{FD: readOnly.FD(), Size: 1 << 16}, abi.Window{FD: writable.FD(), Size: 1 << 16, Writable: true})
	for _, c := range []struct {
		name string
		o    order
		want string
	}{
		{"null", order{op: 10}, "SIGSEGV in poke+"},
		{"a read-only window", order{op: 21, n: 0, a: 8, b: 1}, "window 0, which is read-only, at its byte 8"},
		{"behind a window", order{op: 20, n: 1, a: 1 << 16}, "touched byte 65536 of window 1, which has 65536"},
		{"the stack's end", order{op: 11, a: 1 << 20}, "the stack of 1024 KiB is used up"},
		{"an endless loop", order{op: 12}, "run_time_ns"},
		{"endless host calls", order{op: 47}, "run_time_ns"},
		{"trap", order{op: 13}, "an instruction that is none"},
		{"division", order{op: 14, a: 1}, "SIGFPE"},
		{"open", order{op: 15, n: 257}, "a system call, number 257"},
		{"socket", order{op: 15, n: 41, a: 2}, "a system call, number 41"},
		{"mremap", order{op: 15, n: 25}, "a system call, number 25"},
		{"mprotect", order{op: 15, n: 10, a: worker.FunctionAt, b: 4096}, "a system call, number 10"},
		{"kill", order{op: 15, n: 62, a: uint64(os.Getppid()), b: 9}, "a system call, number 62"},
		{"futex of another kind", order{op: 15, n: 202, a: worker.PayloadAt, b: 6}, "a system call, number 202"},
		{"exit", order{op: 15, n: 231, a: 3}, "ended with status 3"},
		{"its own code", order{op: 16}, "its own code"},
		{"data as code", order{op: 17}, "where no code is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if worker.Arch != "x86_64" && (c.o.op == 15 || c.o.op == 14) {
				t.Skip("the numbers are x86_64's, and so is a trap by division")
			}
			_, st, err := run(t, b, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, %v; want %q", st, err, c.want)
			}
			if h, st, err := run(t, b, order{op: 1}); err != nil || st != abi.OK || !h.replied {
				t.Errorf("the next run: %v, %v", st, err)
			}
		})
	}
	if string(readOnly.Bytes()[:16]) != string(make([]byte, 16)) {
		t.Error("the read-only window was written to")
	}
}
