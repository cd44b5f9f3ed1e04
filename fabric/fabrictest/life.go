package fabrictest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
)

func lifeChecks() []check {
	return []check{
		{"heard of once", lifeOnce},
		{"closed from a callback", lifeCallback},
		{"closed with everything in flight", lifeInFlight},
		{"peer closed with everything in flight", lifePeerInFlight},
		{"endpoint closed with everything in flight", lifeEndpointInFlight},
		{"closed during hello", lifeHello},
		{"closed while dialled", lifeDialled},
		{"closed, and the peer answers", lifeAnswered},
		{"closed, and nobody has heard", lifeUnheard},
		{"after the end", lifeAfter},
		{"silence is kept alive", lifeSilence},
	}
}

func lifeOnce(r *rig) {
	var mu sync.Mutex
	up, down := map[*fabric.Endpoint]int{}, map[*fabric.Endpoint]int{}
	count := func(c *fabric.Config) {
		c.OnPeer = func(ep *fabric.Endpoint) {
			mu.Lock()
			up[ep]++
			mu.Unlock()
		}
		c.OnLost = func(ep *fabric.Endpoint, err error) {
			mu.Lock()
			defer mu.Unlock()
			down[ep]++
			if err == nil || ep.Err() == nil {
				r.Errorf("lost without a reason: %v, %v", err, ep.Err())
			}
			if up[ep] != 1 {
				r.Errorf("lost before it was there")
			}
		}
	}
	a, b := r.node(count), r.node(count)
	for i := range 12 {
		ab, ba := r.connect(a, b)
		var wg sync.WaitGroup
		for j := range 6 {
			ep := ab
			if i%3 == 0 || i%3 == 1 && j%2 == 0 {
				ep = ba
			}
			wg.Go(func() { ep.Close() })
		}
		wg.Wait()
		r.Eventually("both sides hear of it", func() bool { return len(a.Endpoints())+len(b.Endpoints()) == 0 })
		if ab.Err() == nil || ba.Err() == nil {
			r.Error("no error after the end")
		}
	}
	r.connect(a, b)
	r.Must(a.Close())
	r.Must(b.Close())
	mu.Lock()
	defer mu.Unlock()
	if len(up) != 26 || len(down) != 26 {
		r.Errorf("%d endpoints came and %d went, of 26", len(up), len(down))
	}
	for ep := range up {
		if up[ep] != 1 || down[ep] != 1 {
			r.Errorf("%v came %d times and went %d times", ep, up[ep], down[ep])
		}
	}
}

func lifeCallback(r *rig) {
	lost := make(chan struct{}, 8)
	a := r.node(func(c *fabric.Config) {
		c.OnLost = func(ep *fabric.Endpoint, _ error) {
			ep.Close()
			ep.Post(idData, nil, nil)
			lost <- struct{}{}
		}
	})
	b := r.node()
	var after atomic.Int64
	b.Handle(idData, func(m fabric.Message) {
		if after.Add(1) == 1 {
			m.From.Close()
		}
	})
	ab, _ := r.connect(a, b)
	for range 50 {
		ab.Post(idData, nil, make([]byte, 100))
	}
	r.Within(patience/2, "OnLost", func() error { <-lost; return nil })
	if n := after.Load(); n != 1 {
		r.Errorf("%d messages were handled of an endpoint that the first one closed", n)
	}
	refuse := r.node(func(c *fabric.Config) { c.OnPeer = func(ep *fabric.Endpoint) { ep.Close() } })
	if ep, err := a.Dial(r.Ctx, refuse.addr); err == nil {
		r.Eventually("an endpoint closed in OnPeer ends", func() bool { return ep.Err() != nil })
	}
}

// traffic keeps every kind of call in flight on ep until each has failed, and
// reports what is wrong with the failures.
type traffic struct {
	wg    sync.WaitGroup
	calls atomic.Int64
}

func (r *rig) traffic(ep *fabric.Endpoint, seg *fabric.Segment) *traffic {
	r.Helper()
	t := &traffic{}
	ctx := context.Background()
	buf := make([]byte, 3<<20)
	var calls []func() error
	for _, rem := range r.routes(ep, seg) {
		rem := rem.Remote
		calls = append(calls,
			func() error { return rem.Put(ctx, buf[:8], 0) },
			func() error { return rem.Put(ctx, buf, 0) },
			func() error { return rem.Get(ctx, make([]byte, 3000), 0) },
			func() error { return rem.Get(ctx, make([]byte, 2<<20), 0) },
			func() error { _, err := rem.Atomic(ctx, fabric.FetchAdd(1), 8, 0); return err },
			func() error {
				op := rem.StartGet(make([]byte, 100_000), 0)
				<-op.Done()
				if err := op.Wait(ctx); !errors.Is(err, fabric.ErrBackpressure) {
					return err
				}
				return nil // behind a fence, with the outbox full
			},
			func() error { _, err := ep.Import(ctx, rem.Key()); return err },
			func() error {
				_, err := ep.Narrow(ctx, rem.Key(), 0, 8, fabric.RightRead)
				if errors.Is(err, fabric.ErrTooMany) {
					return nil
				}
				return err
			})
	}
	calls = append(calls,
		func() error { return ep.Send(ctx, idKeep, nil, buf[:2000]) },
		func() error { return ep.Send(ctx, idData, nil, buf[:200]) },
		func() error {
			if err := ep.Post(idData, nil, buf[:100]); !errors.Is(err, fabric.ErrBackpressure) {
				return err
			}
			return ep.WaitRoom(ctx)
		},
		func() error { ep.Fence(); return ep.Flush(ctx) },
		func() error {
			var never atomic.Bool
			if err := ep.Element().WaitFor(ctx, func() bool { return never.Load() || ep.Err() != nil }); err != nil {
				return err
			}
			return ep.Err()
		})
	for i, call := range calls {
		t.wg.Go(func() {
			for {
				t.calls.Add(1)
				err := call()
				if err == nil {
					// Copies to mapped memory never wait: they would leave the processors to nobody else.
					time.Sleep(20 * time.Microsecond)
					continue
				}
				if !errors.Is(err, fabric.ErrPeerLost) && !errors.Is(err, fabric.ErrClosed) {
					r.Errorf("call %d ended with %v", i, err)
				}
				return
			}
		})
	}
	return t
}

// otherTime is less than what ends a call in the end where nothing else does: Limits.PeerTime, and Limits.OpTime.
const otherTime = 12 * time.Second

// ends expects all calls to fail because of what was done, and not when their time or their peer's is over.
func (t *traffic) ends(r *rig) {
	r.Helper()
	r.Within(otherTime, "calls in flight", func() error { t.wg.Wait(); return nil })
	if t.calls.Load() == 0 {
		r.Error("no call was made")
	}
}

func (r *rig) busyPair() (a, b *node, ab, ba *fabric.Endpoint, t [2]*traffic) {
	r.Helper()
	a, b, ab, ba = r.pair(smallWindow, func(c *fabric.Config) {
		c.OnLost = func(ep *fabric.Endpoint, err error) {
			if errors.Is(err, fabric.ErrProtocol) {
				r.Errorf("lost because %v", err)
			}
		}
	})
	for i, n := range []*node{a, b} {
		n.Handle(idData, func(m fabric.Message) { m.From.Post(idReply, nil, m.Body) })
		n.Handle(idReply, func(fabric.Message) {})
		n.HandleRetaining(idKeep, func(fabric.Message) {}) // never released: senders wait
		t[i] = r.traffic([]*fabric.Endpoint{ba, ab}[i], r.segment(n, 4<<20))
	}
	time.Sleep(30 * time.Millisecond)
	return a, b, ab, ba, t
}

func lifeInFlight(r *rig) {
	a, _, _, _, t := r.busyPair()
	r.Within(otherTime, "Close", a.Close)
	t[0].ends(r)
	t[1].ends(r)
}

func lifePeerInFlight(r *rig) {
	_, b, _, _, t := r.busyPair()
	r.Within(otherTime, "Close", b.Close)
	t[1].ends(r)
	t[0].ends(r)
}

func lifeEndpointInFlight(r *rig) {
	a, b, ab, _, t := r.busyPair()
	r.Within(otherTime, "Close", ab.Close)
	t[0].ends(r)
	t[1].ends(r)
	r.connect(a, b)
}

func lifeHello(r *rig) {
	slow := func(c *fabric.Config) { c.Limits.HelloTime = time.Minute }
	n := r.node(slow)
	p := r.rawDial(n)
	p.Write([]byte{1})
	done := make(chan error, 1)
	addr := r.acceptor(func(p fabric.Pending) { io.ReadAll(p) })
	ctx, cancel := context.WithCancel(r.Ctx)
	go func() {
		_, err := n.Dial(ctx, addr)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	r.Within(otherTime, "Close during HELLO", n.Close)
	cancel()
	if err := <-done; err == nil {
		r.Error("a closed element has dialled")
	}
}

func lifeDialled(r *rig) {
	for range 5 {
		a, b := r.node(), r.node()
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 20 {
					ctx, cancel := context.WithTimeout(r.Ctx, 2*time.Second)
					ep, err := a.Dial(ctx, b.addr)
					cancel()
					if err != nil {
						return
					}
					ep.Post(idData, nil, nil)
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		r.Within(otherTime, "Close while dialled", b.Close)
		r.Within(patience, "dialling a closed element", func() error { wg.Wait(); return nil })
		r.Eventually("nothing is left", func() bool { return len(a.Endpoints()) == 0 })
	}
}

// lifeAnswered has whoever leads find the peer's answer to a goodbye while Close is under way: what
// was closed here was not lost.
func lifeAnswered(r *rig) {
	for range 6 {
		told := make(chan error, 1)
		a := r.node(func(c *fabric.Config) { c.OnLost = func(_ *fabric.Endpoint, err error) { told <- err } })
		b := r.node()
		ab, _ := r.connect(a, b)
		var leads, closing atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			a.WaitFor(r.Ctx, func() bool {
				leads.Store(true)
				for closing.Load() && len(b.Endpoints()) > 0 && r.Ctx.Err() == nil {
					time.Sleep(100 * time.Microsecond) // Close waits for us, and we for the peer
				}
				return false
			})
		})
		r.Eventually("somebody leads", leads.Load)
		closing.Store(true)
		r.Within(otherTime, "Close", a.Close)
		wg.Wait()
		if err := ab.Err(); !errors.Is(err, fabric.ErrClosed) {
			r.Errorf("an endpoint of a closed element: %v", err)
		}
		if err := <-told; !errors.Is(err, fabric.ErrClosed) {
			r.Errorf("OnLost of a closed element's endpoint heard %v", err)
		}
	}
}

// lifeUnheard closes an element while the leader at its peer does something else. A caller with its
// memory mapped learns that the peer is lost, and not only that the key was revoked.
func lifeUnheard(r *rig) {
	a, b, ab, _ := r.pair()
	remotes := r.routes(ab, r.segment(b, 1<<20))
	closed := false
	r.Must(a.WaitFor(r.Ctx, func() bool {
		if closed {
			return true
		}
		closed = true
		r.Within(otherTime, "Close", b.Close)
		for _, rem := range remotes {
			if !rem.Mapped() {
				continue
			}
			var word [8]byte
			_, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 0)
			for i, err := range []error{err, rem.Get(r.Ctx, word[:], 0), rem.Put(r.Ctx, make([]byte, 3000), 0)} {
				if !errors.Is(err, fabric.ErrPeerLost) {
					r.Errorf("%s, call %d: %v", rem.name, i, err)
				}
			}
		}
		return true
	}))
}

func lifeAfter(r *rig) {
	a, b, ab, _ := r.pair()
	routes := r.routes(ab, r.segment(b, 1<<20))
	seg := r.segment(a, 4096)
	k, err := seg.Key(fabric.RightsAll)
	r.Must(err)
	r.Must(a.Close())
	r.Must(a.Close())
	ctx, cancel := context.WithTimeout(r.Ctx, 5*time.Second)
	defer cancel()
	if _, err := a.Dial(ctx, b.addr); err == nil {
		r.Error("a closed element dials")
	}
	if _, err := a.NewSegment(1, fabric.Writable); err == nil {
		r.Error("a closed element makes segments")
	}
	if _, err := seg.Key(fabric.RightRead); err == nil {
		r.Error("a closed element makes keys")
	}
	if err := a.Revoke(k); err == nil {
		r.Error("a closed element revokes keys")
	}
	if a.Holds(k) {
		r.Error("a closed element's keys hold")
	}
	for _, rem := range routes {
		r.allFail(rem.name+" of a closed element", rem.Remote, fabric.ErrClosed)
	}
	for what, err := range map[string]error{
		"Send": ab.Send(ctx, idData, nil, nil), "Post": ab.Post(idReply, nil, nil), "Flush": ab.Flush(ctx),
		"WaitFor": a.WaitFor(ctx, func() bool { return false }), "Err": ab.Err(),
	} {
		if !errors.Is(err, fabric.ErrClosed) {
			r.Errorf("%s on a closed element: %v", what, err)
		}
	}
	ab.Fence()
	a.Wake()
	a.Layer(layer.Pass{}).TickSoon()
	a.Progress()
	if len(a.Endpoints()) != 0 || a.LentBytes() != 0 {
		r.Errorf("a closed element has %d endpoints and lends %d bytes", len(a.Endpoints()), a.LentBytes())
	}
}

// lifeSilence: peers that have nothing to say are not lost.
func lifeSilence(r *rig) {
	const silent = time.Second
	_, b, ab, ba := r.pair(func(c *fabric.Config) { c.Limits.PeerTime = silent })
	time.Sleep(silent * 3 / 2)
	if ab.Err() != nil || ba.Err() != nil {
		r.Errorf("a silent peer was lost: %v, %v", ab.Err(), ba.Err())
	}
	// An element that stood still does not blame its peers.
	free := r.block(b, ab)
	time.Sleep(200 * time.Millisecond)
	free()
	r.Must(ab.Flush(r.Ctx))
}
