// Package enginetest is the conformance suite of engines. An engine, also one from outside this tree, passes if Run does with
// the engine's code for a function that replies with its payload:
//
//	func TestEngine(t *testing.T) {
//		enginetest.Run(t, engine, abi.Code{Form: "wasm32", ABI: 1, Imports: []string{"reply"}, Bytes: echo})
//	}
//
// What a form promises besides, such as what it refuses or how soon it stops, is left to the engine's own tests.
package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// patience bounds every wait of the suite.
const patience = time.Minute

// Run checks an engine. echo is code that the engine offers to run, for a function that replies with its payload.
func Run(t *testing.T, engine abi.Engine, echo abi.Code) {
	if echo.Principal == "" {
		echo.Principal = "somebody"
	}
	for _, c := range []struct {
		name string
		run  func(*testing.T, abi.Engine, abi.Code)
	}{
		{"offers", offers},
		{"refuses", refuses},
		{"runs", runs},
		{"runs after each other", again},
		{"runs at once", atOnce},
		{"room comes back", room},
		{"reply over the limit", overLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			c.run(t, engine, echo)
			if err := goleak.Find(before); err != nil {
				t.Errorf("goroutines are left: %v", err)
			}
		})
	}
}

// offers: what an engine offers does not change, and it runs the form that it is tested with.
func offers(t *testing.T, engine abi.Engine, echo abi.Code) {
	first := engine.Offers()
	if !slices.ContainsFunc(first, func(o abi.Offer) bool { return o.Form == echo.Form && o.Triple == echo.Triple && o.Why == "" }) {
		t.Errorf("%s %s is not among what it can run: %v", echo.Form, echo.Triple, first)
	}
	if again := engine.Offers(); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("it offers %v, and later %v", first, again)
	}
}

// refuses: code that is none gives an error, and so does a Load that may take no time, unless it is done already.
func refuses(t *testing.T, engine abi.Engine, echo abi.Code) {
	for what, code := range map[string][]byte{"no bytes": nil, "noise": []byte("this is no code of any form"), "cut": echo.Bytes[:len(echo.Bytes)/2]} {
		bad := echo
		bad.ID[31]++
		bad.Bytes = code
		if p, err := engine.Load(t.Context(), bad); err == nil {
			p.Close()
			t.Errorf("%s: it was loaded", what)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := engine.Load(ctx, echo); err == nil {
		p.Close()
	}
}

// bind loads the function and binds it to no windows; both are closed with the test.
func bind(t *testing.T, engine abi.Engine, echo abi.Code) (bound abi.Bound, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := engine.Load(ctx, echo)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	b, err := p.Bind(t.Context(), echo.Principal, []abi.Window{{FD: -1}})
	if err != nil {
		p.Close()
		t.Fatalf("bind: %v", err)
	}
	return b, func() { b.Close(); p.Close() }
}

// acquire takes room and puts an instance there.
func acquire(ctx context.Context, b abi.Bound) (abi.Instance, error) {
	place, err := b.Reserve(0)
	if err != nil {
		return nil, err
	}
	return place.Acquire(ctx)
}

// call runs the function once with an instance.
func call(i abi.Instance, payload []byte) error {
	h := &host{}
	st, err := i.Run(payload, nil, h)
	if err != nil || st != abi.OK {
		return fmt.Errorf("%d bytes: status %v, %v", len(payload), st, err)
	}
	if len(h.replies) != 1 || !bytes.Equal(h.replies[0], payload) {
		return fmt.Errorf("%d bytes: the replies are %.40x", len(payload), h.replies)
	}
	return nil
}

// runs: payloads of several lengths come back.
func runs(t *testing.T, engine abi.Engine, echo abi.Code) {
	b, end := bind(t, engine, echo)
	defer end()
	i, err := acquire(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Release()
	for _, n := range []int{0, 1, 7, 8, 4096, 60000} {
		if err := call(i, bytes.Repeat([]byte{byte(n) + 1}, n)); err != nil {
			t.Error(err)
		}
	}
}

// again: an instance that was released serves the next branch, which sees nothing of the one before.
func again(t *testing.T, engine abi.Engine, echo abi.Code) {
	b, end := bind(t, engine, echo)
	defer end()
	for n := range 20 {
		i, err := acquire(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if err := call(i, bytes.Repeat([]byte{byte(n)}, 200-10*n)); err != nil {
			t.Error(err)
		}
		i.Release()
	}
}

// atOnce: instances of one Bound run on several goroutines.
func atOnce(t *testing.T, engine abi.Engine, echo abi.Code) {
	b, end := bind(t, engine, echo)
	defer end()
	var all sync.WaitGroup
	defer all.Wait()
	for g := range 4 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			i, err := acquire(ctx, b)
			if err != nil {
				t.Error(err)
				return
			}
			defer i.Release()
			for n := range 50 {
				if err := call(i, fmt.Appendf(nil, "%d of %d", n, g)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// room: what is reserved and not used can be reserved again, any number of times, and needs no less with more scratch.
func room(t *testing.T, engine abi.Engine, echo abi.Code) {
	b, end := bind(t, engine, echo)
	defer end()
	if less, more := b.Need(0), b.Need(1<<20); more < less {
		t.Errorf("an instance needs %d bytes, and with scratch %d", less, more)
	}
	for range 10_000 {
		place, err := b.Reserve(0)
		if err != nil {
			t.Fatal(err)
		}
		place.Release()
	}
}

// overLimit: a reply of more than a run's ReplyBytes never reaches the host.
func overLimit(t *testing.T, engine abi.Engine, echo abi.Code) {
	b, end := bind(t, engine, echo)
	defer end()
	i, err := acquire(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Release()
	limits := echo.Limits
	limits.ReplyBytes = 16
	for n, want := range map[int]int{16: 1, 17: 0} {
		h := &host{}
		st, err := i.Run(make([]byte, n), &limits, h)
		if len(h.replies) != want || (err == nil && st == abi.OK) != (want == 1) {
			t.Errorf("a reply of %d bytes, of at most 16: status %v, %v, %d replies", n, st, err, len(h.replies))
		}
	}
}

// host takes replies. Of the other host calls a function that echoes makes none.
type host struct {
	abi.Host
	replies [][]byte
}

func (h *host) Tick() error         { return nil }
func (h *host) Self() uint32        { return 0 }
func (h *host) Elements() uint32    { return 1 }
func (h *host) NowNs() uint64       { return uint64(time.Now().UnixNano()) }
func (h *host) RemainingNs() uint64 { return uint64(patience) }
func (h *host) Constants() []byte   { return nil }
func (h *host) Log([]byte)          {}

func (h *host) Reply(data []byte) abi.Status {
	h.replies = append(h.replies, bytes.Clone(data))
	return abi.OK
}
