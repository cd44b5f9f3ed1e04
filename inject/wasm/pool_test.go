package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/invariants"
)

func TestPoolIsBounded(t *testing.T) {
	e := newEngine(t, Config{MaxInstances: 3})
	p := compile(t, e, "echo", abi.Limits{})
	a, b := bind(t, p, "alice"), bind(t, p, "bob")
	one, two, three := acquire(t, a), acquire(t, a), acquire(t, b)
	if _, err := b.Acquire(t.Context()); !errors.Is(err, ErrBusy) {
		t.Fatalf("a fourth of three instances: %v", err)
	}
	two.Release()
	one.Release()
	if got := acquire(t, a); got != one {
		t.Error("the instance used last is not used first")
	}
	four := acquire(t, b) // evicts two
	if s := e.Stats(); s.Evicted != 1 || s.Live != 3 || s.Created != 4 {
		t.Errorf("stats %+v", s)
	}
	one.Release()
	three.Release()
	four.Release()
	if s := e.Stats(); s.Live != 3 {
		t.Errorf("stats %+v", s)
	}
	b.Close()
	if s := e.Stats(); s.Live != 1 {
		t.Errorf("after closing a binding: %+v", s)
	}
	if _, err := b.Acquire(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("acquiring from a closed binding: %v", err)
	}
	p.Close()
	if s := e.Stats(); s.Live != 0 {
		t.Errorf("after closing the program: %+v", s)
	}
	if _, err := p.Bind("alice", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("binding a closed program: %v", err)
	}
}

func TestPrincipalsAreSeparate(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		p := compile(t, e, "lab", abi.Limits{RunTime: time.Minute})
		alice, bob := bind(t, p, "alice"), bind(t, p, "bob")
		const at, secret = 80_000, 0xdeadbeefcafef00d
		for _, where := range []uint64{at, alice.layout.inbox + 4096, alice.layout.scratch + 8} {
			in := acquire(t, alice)
			for _, o := range []order{{op: 46, x: 100}, {op: 23, a: uint32(where), x: secret}} {
				if _, err := in.Run(&Run{Payload: o.payload(), Host: &fakeHost{}}); err != nil {
					t.Fatal(err)
				}
			}
			in.Release()
		}
		if got := value(t, alice, order{op: 33, a: at}); got != secret {
			t.Errorf("alice finds %#x where she left a word", got)
		}
		for _, where := range []uint64{at, alice.layout.inbox + 4096, alice.layout.scratch + 8} {
			if got := value(t, bob, order{op: 33, a: uint32(where)}); got != 0 {
				t.Errorf("bob finds %#x at %#x", got, where)
			}
		}
		if got := value(t, bob, order{op: 34, a: uint32(bob.layout.inbox) + 64, b: uint32(bob.layout.end-bob.layout.inbox) - 64}); got != 0 {
			t.Errorf("bob's payload area and scratch are not zero: %#x", got)
		}
	})
}

func TestFailedInstanceIsDiscarded(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice")
	in := acquire(t, b)
	if _, err := in.Run(&Run{Payload: order{op: 0}.payload(), Host: &fakeHost{}}); err == nil {
		t.Fatal("no trap")
	}
	if _, err := in.Run(&Run{Payload: order{op: 8}.payload(), Host: &fakeHost{}}); !errors.Is(err, ErrClosed) {
		t.Errorf("an instance that trapped runs again: %v", err)
	}
	in.Release()
	if again := acquire(t, b); again == in {
		t.Error("an instance that trapped is used again")
	} else {
		again.Release()
	}
}

// Programs, bindings and the engine may be closed while instances run.
func TestCloseWhileRunning(t *testing.T) {
	e := newEngine(t, Config{})
	p := compile(t, e, "lab", abi.Limits{})
	b := bind(t, p, "alice")
	in := acquire(t, b)
	b.Close()
	p.Close()
	if st, err := in.Run(&Run{Payload: order{op: 8}.payload(), Host: &fakeHost{}}); err != nil || st != 0 {
		t.Errorf("a run after Close: %d, %v", st, err)
	}
	in.Release()
	if s := e.Stats(); s.Live != 0 {
		t.Errorf("stats %+v", s)
	}

	late, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	in = acquire(t, bind(t, compile(t, late, "lab", abi.Limits{}), "alice"))
	if err := late.Close(); err == nil {
		t.Error("Close says nothing of a running instance")
	}
	if st, err := in.Run(&Run{Payload: order{op: 8}.payload(), Host: &fakeHost{}}); err != nil || st != 0 {
		t.Errorf("a run after the engine's Close: %d, %v", st, err)
	}
	in.Release()
	if _, err := late.Compile(t.Context(), ID{}, 1, code(t, "echo"), abi.Limits{}); !errors.Is(err, ErrClosed) {
		t.Errorf("compiling with a closed engine: %v", err)
	}
}

func TestConcurrentRuns(t *testing.T) {
	e := newEngine(t, Config{MaxInstances: 6, CacheDir: t.TempDir()})
	shared := newSegment(t, 1<<16)
	lab, echo := compile(t, e, "lab", abi.Limits{}), compile(t, e, "echo", abi.Limits{})
	var bindings []*Binding
	for i := range 4 {
		bindings = append(bindings,
			bind(t, lab, fmt.Sprint("p", i), shared.window(true), newSegment(t, 1<<16).window(i%2 == 0)),
			bind(t, echo, fmt.Sprint("p", i)))
	}
	const workers, rounds = 8, 100
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds {
				b := bindings[(w+i)%len(bindings)]
				in, err := b.Acquire(context.Background())
				if errors.Is(err, ErrBusy) {
					time.Sleep(time.Millisecond)
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				h := &fakeHost{}
				addr, _, _ := in.Window(0)
				o := order{op: 27, a: addr, x: 1}
				if i%10 == 9 {
					o.op = 0 // a trap, now and then
				}
				_, err = in.Run(&Run{Payload: o.payload(), Host: h})
				var trap *TrapError
				if b.program == lab && (o.op == 0) != errors.As(err, &trap) || b.program == echo && err != nil {
					t.Errorf("op %d: %v", o.op, err)
				}
				in.Release()
			}
		})
	}
	all.Wait()
	if binary.LittleEndian.Uint32(shared.mem) == 0 {
		t.Error("no run added to the shared window")
	}
	if s := e.Stats(); s.Live > 6 {
		t.Errorf("stats %+v", s)
	}
}

func TestStartIsBounded(t *testing.T) {
	e := newEngine(t, Config{})
	wasm := code(t, "start")
	p, err := e.Compile(t.Context(), ID{}, 1, wasm, abi.Limits{RunTime: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b := bind(t, p, "alice")
	var limit *LimitError
	if _, err := b.Acquire(t.Context()); !errors.As(err, &limit) {
		t.Errorf("an endless _initialize: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an endless _initialize, cancelled: %v", err)
	}
	if s := e.Stats(); s.Live != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	limits := abi.Limits{HeapBytes: 1 << 20, PayloadBytes: 1 << 16, ScratchBytes: 1 << 16}
	c := Config{Ceilings: limits, MemoryBytes: 3 * (ownBytes(limits) + stackBytes)}
	e := newEngine(t, c)
	p := compile(t, e, "lab", limits)
	a, b := bind(t, p, "alice"), bind(t, p, "bob")
	first, second, third := acquire(t, a), acquire(t, a), acquire(t, b)
	if _, err := b.Acquire(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("a fourth instance in memory for three: %v", err)
	}
	first.Release()
	fourth := acquire(t, b)
	if s := e.Stats(); s.Live != 3 || s.Evicted != 1 {
		t.Errorf("stats %+v", s)
	}
	for _, in := range []*Instance{second, third, fourth} {
		in.Release()
	}
	c.MemoryBytes = ownBytes(limits)
	c.Ceilings.HeapBytes *= 4
	if err := c.Validate(); err == nil {
		t.Error("memory for less than one instance is accepted")
	}
}

// TestShare: a principal gets three quarters of the room, so another one always finds some; alone in an engine it gets one instance, however large.
func TestShare(t *testing.T) {
	limits := abi.Limits{HeapBytes: 1 << 20, PayloadBytes: 1 << 16, ScratchBytes: 1 << 16}
	one := ownBytes(limits) + stackBytes
	for name, c := range map[string]Config{
		"instances": {MaxInstances: 8},
		"memory":    {Ceilings: limits, MemoryBytes: 8 * one},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, c)
			p := compile(t, e, "lab", limits)
			a, other, b := bind(t, p, "alice"), bind(t, p, "alice"), bind(t, p, "bob")
			var all []*Instance
			for range 6 {
				all = append(all, acquire(t, a))
			}
			if _, err := a.Reserve(0); err != abi.ErrShareBusy {
				t.Errorf("a seventh of eight: %v", err)
			}
			if _, err := a.Acquire(t.Context()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "alice") {
				t.Errorf("a seventh of eight: %v", err)
			}
			all = append(all, acquire(t, b), acquire(t, b))
			if _, err := b.Reserve(0); err != abi.ErrEngineBusy {
				t.Errorf("a ninth of eight: %v", err)
			}
			all[0].Release() // the room of idle ones counts as free, of the same principal too
			place, err := other.Reserve(0)
			if err != nil {
				t.Fatal(err)
			}
			place.Release()
			if s := e.Stats(); s.Evicted != 1 || s.Live != 7 {
				t.Errorf("stats %+v", s)
			}
			for _, in := range all[1:] {
				in.Release()
			}
		})
	}
	e := newEngine(t, Config{Ceilings: limits, MemoryBytes: ownBytes(limits)})
	in := acquire(t, bind(t, compile(t, e, "lab", limits), "alice"))
	in.Release()
}

// panics calls f and reports whether it panicked.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestReleaseTwice(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "echo", abi.Limits{}), "alice")
	in := acquire(t, b)
	in.Release()
	if panics(in.Release) != invariants.Enabled {
		t.Error("a second Release: want a panic exactly with invariants")
	}
	first, second := acquire(t, b), acquire(t, b)
	if first == second {
		t.Error("one instance was handed out twice")
	}
	first.Release()
	second.Release()
}

type panickingHost struct{ fakeHost }

func (*panickingHost) Self() uint32 { panic("a bug") }

func TestHostPanic(t *testing.T) {
	e := newEngine(t, Config{})
	b := bind(t, compile(t, e, "lab", abi.Limits{}), "alice")
	in := acquire(t, b)
	var err error
	if panics(func() { _, err = in.Run(&Run{Payload: order{op: 40}.payload(), Host: &panickingHost{}}) }) {
		in.running = false
		if !invariants.Enabled {
			t.Error("a host call's panic ends the process")
		}
	} else if err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("a host call panicked: %v", err)
	}
	in.Release()
}
