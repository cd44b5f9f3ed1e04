package fabrictest

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

func processChecks(local bool) []check {
	list := []check{
		{"killed", processKilled},
		{"stopped", processStopped},
		{"eight senders", processSenders},
		{"started again", processAgain},
	}
	if local { // what is left is counted per process
		return list
	}
	return append(list, check{"more elements than cores", processRing}, check{"no allocations", processAllocations})
}

// peer is a child that serves echo and a segment.
type peer struct {
	suite.Child
	addr  string
	whole fabric.Key
	part  fabric.Key
}

func (r *rig) peer() *peer {
	r.Helper()
	p := &peer{Child: r.child("serve")}
	l := suite.Heard[lent](r.Rig, p.Child)
	p.addr = l.Addr
	for i, k := range []*fabric.Key{&p.whole, &p.part} {
		var err error
		*k, err = fabric.DecodeKey(l.Keys[i])
		r.Must(err)
	}
	return p
}

func (r *rig) importBoth(ep *fabric.Endpoint, p *peer) (list []remote) {
	r.Helper()
	for i, k := range []fabric.Key{p.whole, p.part} {
		rem, err := ep.Import(r.Ctx, k)
		r.Must(err)
		list = append(list, remote{Remote: rem, name: []string{"whole", "part"}[i]})
	}
	return list
}

// processTraffic keeps calls in flight to a child until all have failed.
func (r *rig) processTraffic(ep *fabric.Endpoint, p *peer) *traffic {
	r.Helper()
	t := &traffic{}
	buf := make([]byte, 1<<20)
	var calls []func() error
	for _, rem := range r.importBoth(ep, p) {
		calls = append(calls,
			func() error { return rem.Put(r.Ctx, buf, 0) },
			func() error { return rem.Put(r.Ctx, buf[:64], 0) },
			func() error { return rem.Get(r.Ctx, make([]byte, 1<<20), 0) },
			func() error { return rem.Get(r.Ctx, make([]byte, 8), 0) },
			func() error { _, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 0); return err })
	}
	calls = append(calls,
		func() error { return ep.Send(r.Ctx, idEcho, nil, buf[:500]) },
		func() error { return ep.Flush(r.Ctx) })
	for i, call := range calls {
		t.wg.Go(func() {
			for {
				t.calls.Add(1)
				time.Sleep(20 * time.Microsecond)
				if err := call(); err != nil {
					if !errors.Is(err, fabric.ErrPeerLost) {
						r.Errorf("call %d ended with %v, want ErrPeerLost", i, err)
					}
					return
				}
			}
		})
	}
	return t
}

func processKilled(r *rig) {
	for range 3 {
		lost := make(chan error, 2)
		a := r.node(func(c *fabric.Config) { c.OnLost = func(_ *fabric.Endpoint, err error) { lost <- err } })
		a.Handle(idReply, func(fabric.Message) {})
		p := r.peer()
		ep, err := a.Dial(r.Ctx, p.addr)
		r.Must(err)
		t := r.processTraffic(ep, p)
		time.Sleep(40 * time.Millisecond)
		p.Kill()
		t.ends(r)
		if err := <-lost; !errors.Is(err, fabric.ErrPeerLost) {
			r.Errorf("lost because of %v", err)
		}
		if len(lost) > 0 || len(a.Endpoints()) != 0 {
			r.Error("the dead peer is still there, or was lost twice")
		}
	}
}

func processStopped(r *rig) {
	const silent = time.Second
	a := r.node(func(c *fabric.Config) { c.Limits.PeerTime = silent })
	a.Handle(idReply, func(fabric.Message) {})
	p := r.peer()
	ep, err := a.Dial(r.Ctx, p.addr)
	r.Must(err)
	t := r.processTraffic(ep, p)
	time.Sleep(20 * time.Millisecond)
	start := time.Now() // before: this process may stand still between the two
	r.Must(p.Stop(true))
	r.Within(otherTime, "calls to a stopped peer", func() error { t.wg.Wait(); return nil }) // the peer's own PeerTime is longer
	if d := time.Since(start); d < silent/4 {
		r.Errorf("a stopped peer was lost after %v, PeerTime is %v", d, silent)
	}
	r.Must(p.Stop(false))
	again, err := a.Dial(r.Ctx, p.addr) // it was only slow
	r.Must(err)
	r.Must(again.Flush(r.Ctx))
}

func processSenders(r *rig) {
	const senders, each = 8, 1500
	b := r.node(smallWindow)
	var got [senders]counted
	b.Handle(idData, func(m fabric.Message) { got[m.Body[8]].take(m.Body) })
	var children []suite.Child
	for i := range senders {
		children = append(children, r.child("send", b.addr, strconv.Itoa(i), strconv.Itoa(each)))
	}
	for i, c := range children {
		if word := suite.Heard[string](r.Rig, c); word != "sent" {
			r.Errorf("sender %d: %q", i, word)
		}
	}
	for i := range got {
		r.wantCount(fmt.Sprint("sender ", i), &got[i], each)
	}
}

func processAgain(r *rig) {
	a := r.node()
	first := r.peer()
	ep, err := a.Dial(r.Ctx, first.addr)
	r.Must(err)
	r.importBoth(ep, first)
	first.Kill()
	r.Eventually("the dead peer is lost", func() bool { return ep.Err() != nil })
	second := r.peer()
	again, err := a.Dial(r.Ctx, second.addr)
	r.Must(err)
	for _, k := range []fabric.Key{first.whole, first.part} {
		if _, err := again.Import(r.Ctx, k); !errors.Is(err, fabric.ErrIncarnation) {
			r.Errorf("a key of before the restart: %v", err)
		}
		k.Owner = again.Incarnation() // however it is dressed up
		if _, err := again.Import(r.Ctx, k); !errors.Is(err, fabric.ErrKey) && !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("a key of before the restart, forged: %v", err)
		}
	}
	r.importBoth(again, second)
}

// processAllocations: small operations allocate nothing, at either end, or what
// the transport's traits allow. One allocation in ten operations is let pass: what is
// counted is the process's, and asking for the number, the runtime and the background goroutine take some.
func processAllocations(r *rig) {
	const runs = 2000
	allowed := uint64(runs/10 + runs*r.traits.Allocs)
	a := r.node(func(c *fabric.Config) { c.Policy = fabric.Latency })
	var replies atomic.Int64
	a.Handle(idReply, func(fabric.Message) { replies.Add(1) })
	p := r.peer()
	ep, err := a.Dial(r.Ctx, p.addr)
	r.Must(err)
	sent := int64(0)
	answered := func() bool { return replies.Load() >= sent }
	buf := make([]byte, 4096)
	calls := map[string]func() error{
		"send 8 B": func() error {
			sent++
			return errors.Join(ep.Send(r.Ctx, idEcho, nil, buf[:8]), a.WaitFor(r.Ctx, answered))
		},
		"send 4 KiB": func() error {
			sent++
			return errors.Join(ep.Send(r.Ctx, idEcho, buf[:40], buf[40:]), a.WaitFor(r.Ctx, answered))
		},
	}
	for _, rem := range r.importBoth(ep, p) {
		for _, n := range []int{8, 4096} {
			calls[fmt.Sprintf("put %d B, %s", n, rem.name)] = func() error { return rem.Put(r.Ctx, buf[:n], 64) }
			calls[fmt.Sprintf("get %d B, %s", n, rem.name)] = func() error { return rem.Get(r.Ctx, buf[:n], 64) }
		}
		calls["atomic, "+rem.name] = func() error {
			_, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 64)
			return err
		}
	}
	for name, call := range calls {
		for range 200 {
			r.Must(call())
		}
		suite.Steady(r, func() string { // the slower the machine, the more of what the background does falls into it
			h, t := mallocs(), p.mallocs(r)
			for range runs {
				r.Must(call())
			}
			here, there := mallocs()-h, p.mallocs(r)-t
			if here > allowed || there > allowed {
				return fmt.Sprintf("%s: %.2f allocations here and %.2f at the peer", name, float64(here)/runs, float64(there)/runs)
			}
			return ""
		})
	}
}

// mallocs asks the child how much it has allocated so far.
func (p *peer) mallocs(r *rig) uint64 {
	r.Helper()
	r.Must(p.Tell("mallocs"))
	return suite.Heard[uint64](r.Rig, p.Child)
}
