package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/rpc"
)

const (
	// crowdHeap bounds what a connection takes of the heap, at both its ends
	// together: less than one receive buffer, which holds two frames of 64 KiB.
	crowdHeap = 96 << 10
	// crowdGoroutines bounds what thousands of connections add in goroutines.
	crowdGoroutines = 24
	// crowdLeft bounds what stays when a crowd has gone: tables that grew with it,
	// and receive buffers kept for reuse, sixteen of 128 KiB.
	crowdLeft = 4 << 20
	// crowdLost bounds what a crowd that has gone may add to that: noise.
	crowdLost = 64 << 10
	// crowdTries are the crowds one of which must leave no more than the one before it.
	crowdTries = 4
	// spareFDs are for all that is no connection of the crowd's.
	spareFDs = 200
)

// usage is what this process holds.
type usage struct{ goroutines, heap, fds int }

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d KiB of heap, %d descriptors", u.goroutines, u.heap>>10, u.fds)
}

func measure(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	runtime.GC() // what pools kept goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return usage{runtime.NumGoroutine(), int(m.HeapAlloc), len(fds)}
}

// patrons are elements in this process with many endpoints each.
type patrons struct {
	els  []*fabric.Element
	rpcs []*rpc.Peer
	rts  []*inject.Runtime
	fns  []*inject.Function
	eps  [][]*fabric.Endpoint
}

func newPatrons(t *testing.T, ts *cluster.Tokens, scheme string, n int) *patrons {
	t.Helper()
	p := &patrons{eps: make([][]*fabric.Endpoint, n)}
	t.Cleanup(p.leave)
	img, err := xrdma.Lookup("echo")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		tr, err := transportOver(scheme)
		if err != nil {
			t.Fatal(err)
		}
		auth, err := control.NewAuth(ts, "ann")
		if err != nil {
			t.Fatal(err)
		}
		el, err := fabric.New(fabric.Config{Name: fmt.Sprint("patron-", i), Transports: []fabric.Transport{tr}, Auth: auth, Several: true})
		if err != nil {
			t.Fatal(err)
		}
		p.els = append(p.els, el)
		r, err := rpc.New(el, rpc.Config{})
		if err != nil {
			t.Fatal(err)
		}
		rt, err := inject.NewRuntime(el, inject.Config{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := rt.Prepare(img, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.rpcs, p.rts, p.fns = append(p.rpcs, r), append(p.rts, rt), append(p.fns, f)
	}
	return p
}

// come makes each patron dial so many times.
func (p *patrons) come(t *testing.T, addr string, each int) {
	t.Helper()
	var wg sync.WaitGroup
	for i, el := range p.els {
		wg.Go(func() {
			for range each {
				ep, err := el.Dial(t.Context(), addr)
				if err != nil {
					t.Errorf("after %d endpoints: %v", len(p.eps[i]), err)
					return
				}
				p.eps[i] = append(p.eps[i], ep)
			}
		})
	}
	if wg.Wait(); t.Failed() {
		t.FailNow() // nobody waits for those who did not come
	}
}

// ask makes a call and runs a function over each endpoint, several at once.
func (p *patrons) ask(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range p.els {
		for lane := range 4 {
			wg.Go(func() {
				for k := lane; k < len(p.eps[i]); k += 4 {
					ep, payload := p.eps[i][k], fmt.Append(nil, "endpoint ", k)
					if _, err := control.Do[control.Info](ctx, p.rpcs[i], ep, control.CallInfo, control.InfoRequest{}); err != nil {
						t.Errorf("a call on endpoint %d: %v", k, err)
						return
					}
					if got, err := p.fns[i].Do(ctx, inject.Root{To: ep, Payload: payload}, nil); err != nil || !bytes.Equal(got, payload) {
						t.Errorf("a function on endpoint %d: %q, %v", k, got, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// leave ends all, and holds on to nothing.
func (p *patrons) leave() {
	for i := range p.fns {
		p.fns[i].Close()
		p.rts[i].Close()
		p.rpcs[i].Close()
	}
	for _, el := range p.els {
		el.Close()
	}
	*p = patrons{}
}

// TestCrowd covers many to one: thousands of connections to one node take no
// goroutines, and no receive buffers, of their own; each works; and when they
// go nothing of them stays. The race detector, in -short, has a few hundred: it looks for something else.
func TestCrowd(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 400
	}
	// The descriptors of a connection, both ends together: sockets, and over shm their doorbells.
	for scheme, fds := range map[string]int{"tcp": 2, "shm": 4} {
		t.Run(scheme, func(t *testing.T) { crowd(t, scheme, fewer(t, n, fds), fds) })
	}
}

// fewer is n, or as many connections as this process may have descriptors for.
func fewer(t *testing.T, n, fds int) int {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	most := (int(min(limit.Cur, 1<<20)) - spareFDs) / fds
	if most < n {
		n = max(most&^3, 4)
		t.Logf("%d connections only: this process may have %d descriptors (ulimit -n)", n, limit.Cur)
	}
	return n
}

func crowd(t *testing.T, scheme string, n, fds int) {
	ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember, "ann": cluster.CapInject | cluster.CapRead})
	addr := map[string]string{"tcp": "tcp://127.0.0.1:0", "shm": "shm://" + filepath.Join(t.TempDir(), "n.sock")}[scheme]
	host, _ := run(t, Config{Name: "n1", Listen: []string{addr}, Tokens: ts, Memory: 1 << 20})
	const elements = 4
	first := newPatrons(t, ts, scheme, elements) // so that all that is made once is there
	first.come(t, host.Addrs()[0], 1)
	first.ask(t)
	base := measure(t)

	p := newPatrons(t, ts, scheme, elements)
	p.come(t, host.Addrs()[0], n/elements)
	settle(t, "all have arrived", func() bool { return len(host.Element().Endpoints()) == n+elements })
	check := func(when string) {
		t.Helper()
		settle(t, when+": goroutines grow with endpoints", func() bool { return runtime.NumGoroutine() <= base.goroutines+crowdGoroutines })
		now := measure(t)
		t.Logf("%s: %v; at first %v", when, now, base)
		if per := (now.heap - base.heap) / n; per > crowdHeap {
			t.Errorf("%s: %d bytes of heap per endpoint, at most %d are right", when, per, crowdHeap)
		}
		if per := (now.fds - base.fds) / n; per > fds {
			t.Errorf("%s: %d descriptors per endpoint, at most %d are right", when, per, fds)
		}
	}
	check("connected")
	for range 2 {
		p.ask(t)
	}
	check("after calls")

	gone := func(p *patrons) usage {
		p.leave()
		settle(t, "all have gone", func() bool { return len(host.Element().Endpoints()) == elements })
		settle(t, "goroutines stay", func() bool { return runtime.NumGoroutine() <= base.goroutines+4 })
		settle(t, "descriptors stay", func() bool { return measure(t).fds <= base.fds+8 })
		return measure(t)
	}
	left := gone(p)
	t.Logf("gone: %v", left)
	if left.heap > base.heap+crowdLeft {
		t.Errorf("when all have gone: %v; at first %v", left, base)
	}
	// What is kept for reuse fills up once, and not always with the first crowd;
	// what is lost grows with each.
	for again := 1; ; again++ {
		p = newPatrons(t, ts, scheme, elements)
		p.come(t, host.Addrs()[0], n/elements)
		p.ask(t)
		before := left
		left = gone(p)
		t.Logf("gone again: %v", left)
		if left.heap <= before.heap+crowdLost {
			break
		}
		if again == crowdTries {
			t.Errorf("each of %d crowds left more behind than the one before it: %v at last, %v before, %v at first", again, left, before, base)
			break
		}
	}
	first.ask(t)
	if rt := host.Runtime().Stats().Sizes; rt.Running != 0 || rt.Records != 0 || rt.OutboxBytes != 0 {
		t.Errorf("the node still holds %+v", rt)
	}
	first.leave()
}

// settle waits until something holds that other goroutines bring about.
func settle(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for tries, deadline := 0, time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if tries++; tries > 500 && time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}
