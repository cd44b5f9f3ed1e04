package native

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// inside is an engine without workers, where there can be one.
func inside(t testing.TB, c Config) *Engine {
	t.Helper()
	c.InProcess = true
	if !stackswitch.Resumes() {
		e, err := New(c)
		if err != nil || len(e.Offers()) == 0 || !strings.Contains(e.Offers()[0].Why, "native: worker") {
			t.Fatalf("%v, %v", e.Offers(), err)
		}
		t.Skip("it says so: ", e.Offers()[0].Why)
	}
	return newEngine(t, c)
}

// movingHost has the goroutine's stack grow and the collector run in the middle of a host call.
type movingHost struct{ fakeHost }

func grow(n int) byte {
	var b [1 << 10]byte
	b[n] = 1
	if n > 0 {
		return grow(n-1) + b[n]
	}
	return b[0]
}

func (h *movingHost) Reply(data []byte) abi.Status {
	grow(500)
	runtime.GC()
	return h.fakeHost.Reply(data)
}

// TestInside: many instances run at once in this process, each with statics and a stack of its own, whatever Go does to the stacks of
// the goroutines that wait in their host calls.
func TestInside(t *testing.T) {
	p := load(t, inside(t, Config{}), abi.Limits{})
	rw := segment(t, 1<<16)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			b := bind(t, p, "alice", abi.Window{FD: rw.FD(), Size: 1 << 16, Writable: true})
			in := acquire(t, b)
			defer in.Release()
			for range 20 {
				h := &movingHost{}
				if _, err := in.Run(order{op: 2}.payload(), nil, h); err != nil || numbers(h.reply)[0] != 42*10000+100+1 {
					t.Errorf("%v, %v", numbers(h.reply), err)
				}
				h = &movingHost{}
				if _, err := in.Run(order{op: 42, a: 30000}.payload(), nil, h); err != nil || string(h.reply) != strings.Repeat("\x09", 30000) {
					t.Errorf("%d bytes, %v", len(h.reply), err)
				}
			}
		})
	}
	all.Wait()
}

// TestInsideTier: each tier says that it runs in this process.
func TestInsideTier(t *testing.T) {
	object, err := lab()
	if err != nil {
		t.Fatal(err)
	}
	e := inside(t, Config{Compiler: &fakeCompiler{object: object}})
	code := abi.Code{Form: "llvm-bitcode", Triple: triple(), ABI: abi.Version, Bytes: []byte("BC"), Imports: allCalls(), Principal: "alice"}
	for _, code.Best = range []bool{false, true} {
		p, err := e.Load(t.Context(), code)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if name, _ := p.(abi.Tiered).Tier(); !strings.Contains(name, ", in the node's own process") {
			t.Errorf("best %v: %q", code.Best, name)
		}
	}
}

// TestInsideStops: a function in this process hears at its host calls that it is to stop, and leaves nothing.
func TestInsideStops(t *testing.T) {
	e := inside(t, Config{})
	b := bind(t, load(t, e, abi.Limits{}), "alice")
	enough := errors.New("enough")
	in := acquire(t, b)
	_, err := in.Run(order{op: 49}.payload(), nil, &fakeHost{stop: func() error { return enough }})
	var stopped *StoppedError
	if !errors.Is(err, enough) || !errors.As(err, &stopped) {
		t.Errorf("%v", err)
	}
	in.Release()
	if s := e.Stats(); s.Failed != 1 || s.Live != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	in = acquire(t, b)
	defer in.Release()
	_, err = in.Run(order{op: 49}.payload(), &abi.Limits{RunTime: 10 * time.Millisecond}, &fakeHost{})
	if !errors.Is(err, abi.ErrOverLimit) || !strings.Contains(err.Error(), "run_time_ns") {
		t.Errorf("a run with a limit of its own: %v", err)
	}
}
