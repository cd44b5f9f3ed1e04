package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// both runs a test with the compiler and with the interpreter.
func both(t *testing.T, test func(t *testing.T, e *Engine)) {
	for _, interpret := range []bool{false, true} {
		name := kindCompiler
		if interpret {
			name = kindInterpreter
		}
		t.Run(name, func(t *testing.T) { test(t, newEngine(t, Config{Interpret: interpret})) })
	}
}

func TestTraps(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{RunTime: time.Minute}), "alice")
		for _, c := range []struct {
			name   string
			o      order
			reason string
		}{
			{"unreachable", order{op: 0}, "unreachable"},
			{"division", order{op: 1, a: 1}, "integer divide by zero"},
			{"load beyond memory", order{op: 2, a: 0xfffffff0}, "out of bounds memory access"},
			{"recursion", order{op: 4, a: 0xffffffff}, "stack overflow"},
			{"indirect call of another type", order{op: 5, a: 2}, "indirect call type mismatch"},
			{"indirect call of nothing", order{op: 5, a: 3}, "invalid table access"},
			{"conversion", order{op: 6}, "integer overflow"},
			{"wait on memory that is not shared", order{op: 10}, "expected shared memory"},
			{"store beyond memory", order{op: 23, a: 0xfffffff0}, "out of bounds memory access"},
			{"fill beyond memory", order{op: 30, a: 0, b: 0xffffffff}, "out of bounds memory access"},
			{"copy beyond memory", order{op: 31, a: 0, b: 16, c: 0xfffffff8}, "out of bounds memory access"},
		} {
			t.Run(c.name, func(t *testing.T) {
				_, err := once(t, b, &fakeHost{}, c.o)
				var trap *TrapError
				if !errors.As(err, &trap) {
					t.Fatalf("error %v, want a trap", err)
				}
				if trap.Reason != c.reason {
					t.Errorf("reason %q, want %q", trap.Reason, c.reason)
				}
				if c.reason != "stack overflow" && !strings.Contains(trap.Text, "wasm stack trace") {
					t.Errorf("no stack trace in %q", trap.Text)
				}
				if !strings.HasPrefix(trap.Text, c.reason) || strings.Contains(trap.Text, "__") || strings.Contains(trap.Text, "wazero") {
					t.Errorf("it says %q", trap.Text)
				}
			})
		}
		if s := e.Stats(); s.Failed != 11 || s.Live != 0 {
			t.Errorf("after 11 traps: %+v", s)
		}
		if st, err := once(t, b, &fakeHost{}, order{op: 5, a: 1, b: 40}); err != nil || st != 42 {
			t.Errorf("an indirect call: %d, %v", st, err)
		}
	})
}

func TestInfiniteLoopIsStopped(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{RunTime: time.Minute}), "alice")
		wanted := errors.New("time to go")
		for _, op := range []order{{op: 3}, {op: 14}, {op: 13, a: 1 << 16, b: 8 << 20}} {
			deadline := time.Now().Add(5 * time.Millisecond)
			h := &fakeHost{stop: func() error {
				if time.Now().After(deadline) {
					return wanted
				}
				return nil
			}}
			within(t, "stopping", patience, func() {
				_, err := once(t, b, h, op)
				var stopped *StoppedError
				if !errors.As(err, &stopped) || !errors.Is(err, wanted) {
					t.Errorf("op %d: %v", op.op, err)
				}
			})
		}
	})
}

func TestRunTime(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{RunTime: 10 * time.Millisecond}), "alice")
		within(t, "a run of at most 10 ms", patience, func() {
			_, err := once(t, b, &fakeHost{}, order{op: 3})
			var limit *LimitError
			if !errors.As(err, &limit) || limit.Limit != "run_time_ns" || limit.Max != 10e6 {
				t.Errorf("error %v", err)
			}
		})
	})
}

// TestShortRuns: runs that are far shorter than a slice leave their host alone, however many came before them.
func TestShortRuns(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		in := acquire(t, bind(t, compile(t, e, "lab", abi.Limits{}), "alice"))
		defer in.Release()
		h := &fakeHost{}
		for range 20_000 {
			if st, err := in.Run(&Run{Payload: order{op: 4, a: 8}.payload(), Host: h}); st != 0 || err != nil {
				t.Fatal(st, err)
			}
		}
		if n := h.ticks.Load(); n != 0 {
			t.Errorf("%d of 20,000 short runs ended a slice", n)
		}
	})
}

// The collector must not wait for a function: its pauses are bounded by a slice.
func TestCollectorIsNotStalled(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice")
	stop := make(chan struct{})
	h := &fakeHost{stop: func() error {
		select {
		case <-stop:
			return context.Canceled
		default:
			return nil
		}
	}}
	var done sync.WaitGroup
	done.Go(func() {
		if _, err := once(t, b, h, order{op: 3}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for h.ticks.Load() == 0 {
		runtime.Gosched()
	}
	within(t, "three collections", patience, func() {
		for range 3 {
			runtime.GC()
		}
	})
	close(stop)
	done.Wait()
}

func TestHeapLimit(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		p := compile(t, e, "lab", abi.Limits{HeapBytes: 1 << 20})
		b := bind(t, p, "alice", newSegment(t, 1<<20).window(true))
		if got := value(t, b, order{op: 8}); got != 2 {
			t.Errorf("memory.size is %d pages at first, want the module's 2", got)
		}
		in := acquire(t, b)
		defer in.Release()
		ask := func(o order) uint32 {
			h := &fakeHost{}
			if st, err := in.Run(&Run{Payload: o.payload(), Host: h}); st != 0 || err != nil {
				t.Fatal(st, err)
			}
			return uint32(binary.LittleEndian.Uint64(h.reply))
		}
		if got := ask(order{op: 9, a: 3}); got != 2 {
			t.Errorf("memory.grow(3) = %d, want 2", got)
		}
		if got := ask(order{op: 9, a: 0xffffffff}); got != 0xffffffff {
			t.Errorf("memory.grow(2^32-1) = %#x, want -1", got)
		}
		if got := ask(order{op: 7}); got != 11 {
			t.Errorf("memory grew %d times by a page, want 11, to 16", got)
		}
		if got := ask(order{op: 8}); got != 16 {
			t.Errorf("memory.size is %d pages, want 16", got)
		}
	})
	e := newEngine(t, Config{})
	b := code(t, "lab")
	var limit *LimitError
	if _, err := e.Compile(context.Background(), ID{}, 1, b, abi.Limits{HeapBytes: 1 << 16}); !errors.As(err, &limit) || limit.Limit != "heap_bytes" {
		t.Errorf("a module of two pages with a limit of one: %v", err)
	}
}

func TestInitialize(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice")
		for range 3 {
			if got := value(t, b, order{op: 12}); got != 1 {
				t.Errorf("_initialize ran %d times on one instance", got)
			}
		}
	})
}

func TestPayloadLimit(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "echo", abi.Limits{PayloadBytes: 100}), "alice")
	in := acquire(t, b)
	defer in.Release()
	var limit *LimitError
	if _, err := in.Run(&Run{Payload: make([]byte, 101), Host: &fakeHost{}}); !errors.As(err, &limit) {
		t.Errorf("101 bytes where 100 are allowed: %v", err)
	}
	if _, err := in.Run(&Run{Payload: make([]byte, 100), Limits: abi.Limits{PayloadBytes: 200}, Host: &fakeHost{}}); err != nil {
		t.Error(err)
	}
	if _, err := in.Run(&Run{Payload: make([]byte, 100), Limits: abi.Limits{PayloadBytes: 99}, Host: &fakeHost{}}); !errors.As(err, &limit) || limit.Max != 99 {
		t.Errorf("a run's own limit: %v", err)
	}
	if in.Broken() {
		t.Error("a payload that was refused broke the instance")
	}
}

func TestScratchIsZero(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{ScratchBytes: 200 << 10}), "alice")
		const n = 150 << 10
		first := acquire(t, b)
		sum := func(in *Instance, fill uint32) uint64 {
			h := &fakeHost{}
			if st, err := in.Run(&Run{Payload: order{op: 62, a: fill, x: n}.payload(), Host: h}); st != 0 || err != nil {
				t.Fatal(st, err)
			}
			return binary.LittleEndian.Uint64(h.reply)
		}
		if got := sum(first, 3); got != 0 {
			t.Errorf("scratch holds %d at first", got)
		}
		if got := sum(first, 5); got != 3*n {
			t.Errorf("scratch holds %d in the invocation's second run, want %d", got, 3*n)
		}
		first.Release()
		second := acquire(t, b)
		defer second.Release()
		if first != second {
			t.Fatal("the instance was not reused")
		}
		h := &fakeHost{} // a function may look there without asking for any
		if st, err := second.Run(&Run{Payload: order{op: 33, a: uint32(b.layout.scratch) + 8}.payload(), Host: h}); st != 0 || err != nil || binary.LittleEndian.Uint64(h.reply) != 0 {
			t.Errorf("scratch that was given back holds %x: %v, %v", h.reply, st, err)
		}
		if got := sum(second, 1); got != 0 {
			t.Errorf("scratch holds %d in the next invocation", got)
		}
		h = &fakeHost{refuse: abi.ErrLimit}
		second.Run(&Run{Payload: order{op: 46, x: 200 << 10}.payload(), Host: h})
		if got := binary.LittleEndian.Uint64(h.reply); got != 0 || h.scratch != 200<<10 {
			t.Errorf("scratch that the host refuses is at %#x", got)
		}
		h = &fakeHost{}
		second.Run(&Run{Payload: order{op: 46, x: 201 << 10}.payload(), Host: h})
		if got := binary.LittleEndian.Uint64(h.reply); got != 0 || h.scratch != 0 {
			t.Errorf("scratch beyond the limit is at %#x; the host was asked for %d", got, h.scratch)
		}
	})
}

// hostCallCase is an order and what comes of it; a reply of 0 is not looked at.
type hostCallCase struct {
	name  string
	o     order
	want  abi.Status
	reply uint64
}

func TestHostCalls(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		seg := newSegment(t, 1<<16)
		ro := newSegment(t, 1<<16)
		p := compile(t, e, "lab", abi.Limits{PayloadBytes: 1 << 16, ReplyBytes: 64, Forks: 3, LogBytes: 10, ScratchBytes: 1 << 16, HeapBytes: 1 << 18})
		b := bind(t, p, "alice", ro.window(false), seg.window(true))
		for _, c := range hostCallCases(b.layout) {
			h := &fakeHost{}
			st, err := once(t, b, h, c.o)
			if err != nil || st != c.want {
				t.Errorf("%s: status %d, %v; want %d", c.name, st, err, c.want)
				continue
			}
			if c.reply != 0 && (len(h.reply) < 8 || binary.LittleEndian.Uint64(h.reply) != c.reply) {
				t.Errorf("%s: reply %x, want %#x", c.name, h.reply, c.reply)
			}
		}
	})
}

func hostCallCases(l layout) []hostCallCase {
	const local = 70000 // an address in the heap
	end, roAt := uint32(l.end), uint32(l.windows[0].addr)
	return []hostCallCase{
		{"self", order{op: 40}, 0, 3},
		{"elements", order{op: 41}, 0, 5},
		{"owner", order{op: 42, x: 250}, 0, 2*1000000 + 50},
		{"owner of no row", order{op: 42, x: 500}, abi.ErrArgument, 0},
		{"owner, pointer out", order{op: 56, a: end - 7}, abi.ErrMemory, 0},
		{"owner, pointer read-only", order{op: 56, a: roAt}, abi.ErrRights, 0},
		{"rows", order{op: 43, a: 2}, 0, 200*1000000 + 100},
		{"rows of nobody", order{op: 43, a: 9}, abi.ErrArgument, 0},
		{"row", order{op: 64, a: 4, x: 99}, 0, 499},
		{"row beyond the element's", order{op: 64, a: 4, x: 100}, abi.ErrArgument, 0},
		{"row of nobody", order{op: 64, a: 5}, abi.ErrArgument, 0},
		{"rows, pointer out", order{op: 57, a: end - 15}, abi.ErrMemory, 0},
		{"window, pointer out", order{op: 58, a: 0xffffffff}, abi.ErrMemory, 0},
		{"no window", order{op: 44, a: 2}, abi.ErrNoWindow, 0},
		{"writable window", order{op: 44, a: 1}, 0, l.windows[1].addr | 1<<32},
		{"read-only window", order{op: 44, a: 0}, 0, l.windows[0].addr},
		{"payload", order{op: 45}, 0, l.inbox | 32<<32},
		{"payload, pointer out", order{op: 59, a: end}, abi.ErrMemory, 0},
		{"scratch", order{op: 46, x: 5}, 0, l.scratch},
		{"scratch of nothing", order{op: 46}, 0, 0},
		{"scratch of too much", order{op: 46, x: 1 << 40}, 0, 0},
		{"reply, pointer out", order{op: 61, a: end - 4, b: 5}, abi.ErrMemory, 0},
		{"reply of nothing at the end", order{op: 61, a: end, b: 0}, 0, 0},
		{"reply too long", order{op: 61, a: 0, b: 65}, abi.ErrLimit, 0},
		{"part, pointer out", order{op: 47, a: 1, b: 0xffffffff}, abi.ErrMemory, 0},
		{"part", order{op: 47, a: roAt, b: 1}, 0, 0},
		{"forward", order{op: 48, a: roAt, b: 1}, 0, 0},
		{"forward, pointer out", order{op: 48, a: end, b: 1}, abi.ErrMemory, 0},
		{"forward too long", order{op: 48, b: 1<<16 + 1}, abi.ErrLimit, 0},
		{"fork", order{op: 49, b: 1, c: 3}, 0, 0},
		{"fork too often", order{op: 49, b: 1, c: 4}, abi.ErrLimit, 0},
		{"get", order{op: 50, a: local, b: 8}, 0, 0},
		{"get beyond the window", order{op: 50, a: local, b: 8, x: 60}, abi.ErrArgument, 0},
		{"get into a read-only window", order{op: 50, a: roAt, b: 8}, abi.ErrRights, 0},
		{"get out", order{op: 50, a: end - 1, b: 8}, abi.ErrMemory, 0},
		{"put", order{op: 51, a: roAt, b: 8}, 0, 0},
		{"put out", order{op: 51, a: end, b: 8}, abi.ErrMemory, 0},
		{"atomic", order{op: 52, a: 1, b: 8, x: 8, y: 5}, 0, 0},
		{"atomic of no kind", order{op: 52, a: 7, b: 8, x: 8}, abi.ErrArgument, 0},
		{"atomic of no width", order{op: 52, a: 1, b: 2, x: 8}, abi.ErrArgument, 0},
		{"atomic across", order{op: 52, a: 1, b: 8, x: 4}, abi.ErrArgument, 0},
		{"atomic, pointer out", order{op: 60, a: end - 4}, abi.ErrMemory, 0},
		{"log", order{op: 53, a: local, b: 100}, 0, 0},
		{"log out", order{op: 53, a: end, b: 100}, 0, 0},
		{"now", order{op: 54}, 0, 1234567890},
		{"remaining", order{op: 55}, 0, 42},
		{"notify nobody", order{op: 11, a: 64}, 0, 0},
	}
}

func TestHostCallData(t *testing.T) {
	e := newEngine(t, Config{})
	p := compile(t, e, "lab", abi.Limits{LogBytes: 4})
	b := bind(t, p, "alice", newSegment(t, 1<<16).window(true))
	in := acquire(t, b)
	defer in.Release()
	h := &fakeHost{}
	for i := range h.remote {
		h.remote[i] = byte(i)
	}
	at := uint32(b.layout.windows[0].addr)
	run := func(o order) {
		t.Helper()
		if st, err := in.Run(&Run{Payload: o.payload(), Host: h}); err != nil || st != 0 {
			t.Fatal(st, err)
		}
	}
	run(order{op: 50, a: at + 100, b: 16, x: 10})
	if want := h.remote[10:26]; !bytes.Equal(in.mem[at+100:at+116], want) {
		t.Errorf("get brought %x, want %x", in.mem[at+100:at+116], want)
	}
	run(order{op: 51, a: at + 100, b: 4, x: 0})
	if want := []byte{10, 11, 12, 13, 4}; !bytes.Equal(h.remote[:5], want) {
		t.Errorf("after put: %x, want %x", h.remote[:5], want)
	}
	run(order{op: 53, a: at + 100, b: 16})
	if want := []byte{10, 11, 12, 13}; !bytes.Equal(h.log, want) {
		t.Errorf("the log has %x, want %x", h.log, want)
	}
	run(order{op: 47, a: at + 101, b: 2})
	run(order{op: 48, a: at + 102, b: 2})
	if string(h.parts[0]) != "\x0b\x0c" || h.forwards[0] != "\x0c\x0d" {
		t.Errorf("part %q, forward %q", h.parts, h.forwards)
	}
}

// A stack that grew deep without a trap must not stay with the idle instance.
func TestDeepRecursion(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{RunTime: time.Minute}), "alice")
	in := acquire(t, b)
	defer in.Release()
	before := in.entry
	h := &fakeHost{}
	for _, depth := range []uint32{10, 300_000} {
		if st, err := in.Run(&Run{Payload: order{op: 4, a: depth}.payload(), Host: h}); err != nil || st != 0 {
			t.Fatal(st, err)
		}
		if grown := in.entry != before; grown != (depth > 10) {
			t.Errorf("after a recursion %d deep, a new call stack: %t", depth, grown)
		}
	}
}

// Short replies go through the mailbox. Their order among other calls, their
// bytes, and what the host says of them must be as if they did not.
func TestReplyOrder(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		b := bind(t, compile(t, e, "lab", abi.Limits{ReplyBytes: 100}), "alice")
		const x, y = 0x1122334455667788, 0x99aabbccddeeff00
		for _, c := range []struct {
			name string
			o    order
			want string
			st   abi.Status
			trap bool
		}{
			{"log between", order{op: 63, a: 8, b: 2}, "[reply 8877665544332211 log 00ff reply 00ffeeddccbbaa99]", abi.ErrDone, false},
			{"nothing between", order{op: 63, a: 8}, "[reply 8877665544332211 reply 00ffeeddccbbaa99]", abi.ErrDone, false},
			{"empty", order{op: 63, a: 0}, "[reply  reply ]", abi.ErrDone, false},
			{"beyond the limit", order{op: 63, a: 60}, "[reply 8877665544332211" + strings.Repeat("00", 52) + "]", abi.ErrLimit, false},
			{"a trap later", order{op: 63, a: 8, c: 1}, "[reply 8877665544332211 reply 00ffeeddccbbaa99]", 0, true},
		} {
			h := &fakeHost{done: true}
			c.o.x, c.o.y = x, y
			st, err := once(t, b, h, c.o)
			if (err != nil) != c.trap || st != c.st {
				t.Errorf("%s: status %d, %v; want %d", c.name, st, err, c.st)
			}
			if got := fmt.Sprint(h.events); got != c.want {
				t.Errorf("%s: the host saw %s, want %s", c.name, got, c.want)
			}
		}
	})
}

// A function that writes nonsense into its mailbox only hurts its own reply.
func TestForgedMailbox(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice")
	for _, v := range []uint64{1, 65, 66, 1 << 40, 1<<64 - 1} {
		h := &fakeHost{done: true}
		if _, err := once(t, b, h, order{op: 23, a: uint32(b.layout.mailbox), x: v}); err != nil {
			t.Errorf("%#x: %v", v, err)
		}
		if len(h.reply) > 64 {
			t.Errorf("%#x: a reply of %d bytes", v, len(h.reply))
		}
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice", newSegment(t, 1<<16).window(true), newSegment(t, 1<<16).window(false))
	ctx := context.Background()
	h := &quietHost{}
	for _, o := range []order{{op: 8}, {op: 44, a: 1}, {op: 46, x: 1}, {op: 47, a: 8, b: 8}, {op: 50, a: 70000, b: 8}, {op: 34, b: 64 << 10}} {
		run := &Run{Payload: o.payload(), Host: h}
		if n := testing.AllocsPerRun(200, func() {
			in, err := b.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Run(run); err != nil {
				t.Fatal(err)
			}
			in.Release()
			h.parts = h.parts[:0]
		}); n > 1 || n > 0 && o.op != 47 { // the fake host copies a part
			t.Errorf("op %d: %v allocations a run", o.op, n)
		}
	}
}

// Compiled C gives the same results in the engine, in both variants, as in wazero by itself.
func TestSameAsPlain(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		p := compile(t, e, "spin", abi.Limits{RunTime: time.Minute})
		for _, b := range []*Binding{bind(t, p, "alice"), bind(t, p, "alice", newSegment(t, 1<<16).window(false))} {
			in := acquire(t, b)
			native := plain(t, code(t, "spin")) // it has state, so both run in step
			for kind := range uint32(3) {
				for _, rounds := range []uint32{0, 1, 2, 1000, 100_000} {
					payload := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, kind), rounds)
					h := &fakeHost{}
					if st, err := in.Run(&Run{Payload: payload, Host: h}); st != 0 || err != nil {
						t.Fatal(st, err)
					}
					if got, want := uint64(binary.LittleEndian.Uint32(h.reply)), native(payload); got != want {
						t.Errorf("kind %d, %d rounds: %d, want %d", kind, rounds, got, want)
					}
				}
			}
			in.Release()
		}
	})
}
