package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

// Calls between simulated elements, under seeds: the code is the one that programs run, with its
// goroutines, and what happens is compared with a model. -seed=n repeats one trial exactly.

var trials = seeds.Flags("./rpc")

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// simKind is one sort of trial.
type simKind struct {
	name    string
	faults  sim.WireFaults
	limits  Limits
	hosts   int
	wires   int           // at once between two hosts
	spread  time.Duration // over which calls begin
	actions int
	crashes int
	cuts    int
	silent  int // partitions
	closes  int // endpoints closed by one side
	// reliable promises that no connection is lost.
	reliable bool
}

// few bounds so much that every one of them is met.
var fewRPC = Limits{EagerBytes: 300, MaxBytes: 300_000, Calls: 12, CallsPerPeer: 6, Outgoing: 24, BulkBytes: 1 << 20, PoolBytes: 200_000, HeldBytes: 1_100_000,
	CallTime: 5 * time.Second, LingerTime: time.Second, NoteEvery: ms}

var simFabric = fabric.Limits{WindowBytes: 2 * fabric.MaxFrameBytes, OpsPerEndpoint: 80, OutboxBytes: 80_000, PeerTime: 120 * ms, OpTime: 10 * time.Second}

var simKinds = []simKind{
	{name: "calm", faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 60 * us, Detect: ms, Lag: 5 * us, Room: 400},
		limits: Limits{CallTime: 5 * time.Second}, hosts: 2, wires: 1, spread: 20 * ms, actions: 60, reliable: true},
	{name: "lossy", faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 500 * us, Loss: 0.05, Duplicate: 0.1, Detect: ms, Lag: 50 * us, Room: 40, Burst: 4, Pieces: 0.3},
		limits: fewRPC, hosts: 3, wires: 2, spread: 40 * ms, actions: 80, reliable: true},
	{name: "full", faults: sim.WireFaults{MinDelay: 20 * us, MaxDelay: 200 * us, Detect: ms, Lag: 20 * us, Room: 3, RoomReserved: 5, Burst: 3, Pieces: 0.2},
		limits: fewRPC, hosts: 2, wires: 1, spread: 30 * ms, actions: 60, reliable: true},
	{name: "crash", faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 300 * us, Loss: 0.02, Duplicate: 0.05, Detect: 2 * ms, Silent: 0.3, Lag: 20 * us, Room: 60, Burst: 8, Pieces: 0.3},
		limits: fewRPC, hosts: 3, wires: 1, spread: 60 * ms, actions: 100, crashes: 5},
	{name: "cuts", faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 300 * us, Loss: 0.02, Tries: 4, Detect: 2 * ms, Lag: 20 * us, Room: 30, Burst: 8, Pieces: 0.3},
		limits: fewRPC, hosts: 3, wires: 2, spread: 60 * ms, actions: 100, cuts: 4, closes: 3, silent: 1},
	{name: "mapped", faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 100 * us, Detect: ms, Lag: 10 * us, Room: 60, Burst: 8, Descriptors: true},
		limits: fewRPC, hosts: 3, wires: 1, spread: 30 * ms, actions: 80, crashes: 1, cuts: 1},
}

// TestSimCalls: whatever happens to packets, hosts and callers, each call ends once, with its own answer or
// with an error that fits, and has run once at most; nothing is left of it; and then calls succeed again.
func TestSimCalls(t *testing.T) {
	for i := range simKinds {
		k := &simKinds[i]
		t.Run(k.name, func(t *testing.T) {
			var ended, good int
			n := 8
			if testing.Short() {
				n = 2
			}
			trials.Each(t, n, func(seed uint64, fail seeds.Fail) {
				tr := newSimTrial(k, seed, fail)
				tr.run()
				ended += len(tr.calls) - tr.refused
				good += tr.good
			})
			if !trials.One() && good*4 < ended {
				t.Errorf("of %d calls only %d succeeded: the trials test little", ended, good)
			}
		})
	}
}

// TestSimCallsRepeat: a seed gives one history.
func TestSimCallsRepeat(t *testing.T) {
	for i := range simKinds {
		k := &simKinds[i]
		t.Run(k.name, func(t *testing.T) {
			trials.Each(t, 1, func(seed uint64, fail seeds.Fail) {
				var sums [2]uint64
				for j := range sums {
					tr := newSimTrial(k, seed, fail)
					tr.run()
					sums[j] = tr.trace.Sum64()
				}
				if sums[0] != sums[1] {
					fail("seed %d gave two histories", seed)
				}
			})
		})
	}
}

// simTrial is one run, with the model of what must come of it.
type simTrial struct {
	k             *simKind
	w             *sim.World
	net           *sim.Network
	fail          func(format string, args ...any)
	lives         []*simLife
	calls         []*simCall
	good, refused int
	over          bool // nothing new is started
	trace         hash.Hash64
}

// simLife is one life of a host.
type simLife struct {
	t       *simTrial
	h       *sim.Host
	p       *Peer
	dead    bool
	runs    map[uint64]int // of each call, here
	odd     int            // handlers of "odd" that run
	oddGone bool
	changes bool // "odd" is being taken away or put back
}

func newSimTrial(k *simKind, seed uint64, fail seeds.Fail) *simTrial {
	t := &simTrial{k: k, w: sim.New(seed, sim.Faults{}), trace: fnv.New64a()}
	t.fail = func(format string, args ...any) { fail("%v: %s", t.w, fmt.Sprintf(format, args...)) }
	t.net = sim.NewNetwork(t.w, k.faults)
	t.net.Observe = func(e sim.Event) {
		for _, v := range []uint64{uint64(e.At), uint64(e.Kind)<<32 | uint64(e.Host)<<16 | uint64(e.Peer), uint64(e.Wire)<<32 | uint64(e.ID), uint64(e.Bytes)} {
			t.trace.Write(binary.LittleEndian.AppendUint64(nil, v))
		}
	}
	for i := range k.hosts {
		if _, err := t.net.Add(fmt.Sprint("h", i), sim.Program{
			Configure: func(_ *sim.Host, c *fabric.Config) { c.Limits = simFabric },
			Start:     t.start,
		}); err != nil {
			t.fail("%v", err)
		}
	}
	return t
}

func (t *simTrial) start(h *sim.Host) (err error) {
	l := &simLife{t: t, h: h, runs: map[uint64]int{}}
	if l.p, err = New(h.Element(), Config{Limits: t.k.limits}); err != nil {
		return err
	}
	t.lives = append(t.lives, l)
	return l.serve()
}

// current is the model of a host's present life, nil if it has none.
func (t *simTrial) current(h *sim.Host) *simLife {
	for i := len(t.lives) - 1; i >= 0; i-- {
		if l := t.lives[i]; l.h == h {
			if l.dead || !h.Alive() {
				return nil
			}
			return l
		}
	}
	return nil
}

// lifeOf is the life that an endpoint leads to.
func (t *simTrial) lifeOf(in fabric.Incarnation) *simLife {
	for _, l := range t.lives {
		if l.p.el.Incarnation() == in {
			return l
		}
	}
	return nil
}

// run is one whole trial: calls and faults, then calm, until everything has ended; then calls
// that must succeed.
func (t *simTrial) run() {
	t.populate()
	t.w.Run(t.k.spread)
	t.over = true
	t.net.Calm()
	for _, h := range t.net.Hosts() {
		if err := h.Boot(); err != nil {
			t.fail("%v", err)
		}
	}
	t.mesh()
	t.w.Run(2 * time.Second)
	t.settled()
	t.again()
	t.w.Run(time.Second)
	t.settled()
	t.check()
	for _, l := range t.lives {
		l.dead = true
	}
	t.net.Close()
	for _, l := range t.lives {
		l.p.Close()
	}
}

// settled sees that every call has ended.
func (t *simTrial) settled() {
	for _, c := range t.calls {
		if !c.ended && !c.from.dead {
			t.fail("%v never ended; its endpoint: %v", c, c.ep.Err())
		}
		if c.blamed && c.ep.Err() == nil {
			t.fail("%v ended as if its connection had, which lives", c)
		}
	}
}

// again calls over each connection that lives: after all that happened there is nothing in the way.
func (t *simTrial) again() {
	for _, h := range t.net.Hosts() {
		l := t.current(h)
		for _, ep := range h.Element().Endpoints() {
			for _, size := range []int{callHead, 2000, 90_000} {
				c := t.newCall(l, ep, "work", size)
				c.answer, c.must = size, true
				h.Fork(c.wait)
			}
		}
	}
}

// check sees that nothing is left of any call.
func (t *simTrial) check() {
	for _, h := range t.net.Hosts() {
		l := t.current(h)
		p := l.p
		if s := p.Stats(); s.Active != 0 || s.Parked != 0 || s.BulkBytes != s.PoolBytes || s.Malformed != 0 {
			t.fail("%s is left with %+v", h.Name, s)
		}
		inLine := 0
		for i := range p.lent {
			inLine += p.lent[i].line.Len()
		}
		if inLine != 0 || p.held.Load() != 0 || p.kept.inUse() != 0 {
			t.fail("%s is left with %d endpoints that wait for room, %d bytes of %d answers held", h.Name, inLine, p.kept.inUse(), p.held.Load())
		}
		if len(p.order) != len(p.conns) || len(p.order) != len(h.Element().Endpoints()) {
			t.fail("%s has %d connections, %d in order, and %d endpoints", h.Name, len(p.conns), len(p.order), len(h.Element().Endpoints()))
		}
		spare := int64(0) // which those that live keep for their next calls
		for _, c := range p.order {
			spare += c.ahead.inUse()
		}
		if n := p.ahead.inUse(); n != spare {
			t.fail("%s is left with room taken for answers to %d bytes of calls over connections that are lost", h.Name, n-spare)
		}
		for _, c := range p.order {
			lent := int64(0)
			for i := range c.lent {
				lent += c.lent[i].inUse()
			}
			if c.caller.Live() != 0 || c.callee.Running() != 0 || c.lending.Len() != 0 || c.waiting != 0 || c.held.Load() != 0 || c.kept.inUse()+lent+c.expected != 0 {
				t.fail("%s is left with %d calls to %s, %d of it, %d payloads, %d who wait for a slot, %d held answers, %d bytes held, %d lent, %d expected",
					h.Name, c.caller.Live(), c.ep.Name(), c.callee.Running(), c.lending.Len(), c.waiting, c.held.Load(), c.kept.inUse(), lent, c.expected)
			}
		}
	}
	for _, c := range t.calls {
		if c.sent && c.limit == 0 && c.name != "odd" && c.ep.Err() == nil && t.ran(c.id) == 0 {
			t.fail("%v was sent one way over a connection that lives, and never ran", c)
		}
	}
	for _, l := range t.lives {
		for id, n := range l.runs {
			if n != 1 {
				t.fail("call %d ran %d times at %s", id, n, l.h.Name)
			}
		}
	}
}

// ran counts the runs of a call anywhere.
func (t *simTrial) ran(id uint64) (n int) {
	for _, l := range t.lives {
		n += l.runs[id]
	}
	return n
}

// populate plans everything that is going to happen.
func (t *simTrial) populate() {
	r, hosts := t.w.Rand, t.net.Hosts()
	at := func(n int, do func()) {
		for range n {
			t.w.After(t.w.Between(0, t.k.spread), do)
		}
	}
	t.mesh()
	at(t.k.actions, func() {
		h := hosts[r.IntN(len(hosts))]
		if l := t.current(h); l != nil {
			if eps := h.Element().Endpoints(); len(eps) > 0 {
				ep := eps[r.IntN(len(eps))]
				h.Do(0, func() { l.act(ep) })
			}
		}
	})
	at(t.k.crashes, func() { t.crash(hosts[r.IntN(len(hosts))]) })
	two := func() (a, b *sim.Host) {
		i := r.IntN(len(hosts))
		return hosts[i], hosts[(i+1+r.IntN(len(hosts)-1))%len(hosts)]
	}
	at(t.k.cuts, func() { t.net.Cut(two()) })
	at(t.k.silent, func() {
		a, b := two()
		t.net.Partition(a, b, true)
		t.w.After(t.w.Between(0, 300*ms), func() { t.net.Partition(a, b, false) })
	})
	at(t.k.closes, func() {
		h := hosts[r.IntN(len(hosts))]
		if t.current(h) != nil {
			if eps := h.Element().Endpoints(); len(eps) > 0 {
				h.Do(0, func() { eps[r.IntN(len(eps))].Close() })
			}
		}
	})
}

// mesh keeps all hosts connected.
func (t *simTrial) mesh() {
	hosts := t.net.Hosts()
	for i, a := range hosts {
		for _, b := range hosts[:i] {
			la, lb := t.current(a), t.current(b)
			if la == nil || lb == nil {
				continue
			}
			for range t.k.wires - max(linked(la, lb), linked(lb, la)) {
				if _, _, err := t.net.Connect(a, b); err != nil && !errors.Is(err, sim.ErrUnreachable) {
					t.fail("connect: %v", err)
				}
			}
		}
	}
	if t.w.Now() < int64(t.k.spread+time.Second) {
		t.w.After(ms, t.mesh)
	}
}

func linked(a, b *simLife) (n int) {
	for _, ep := range a.p.el.Endpoints() {
		if ep.Incarnation() == b.p.el.Incarnation() {
			n++
		}
	}
	return n
}

// crash ends a host's life and gives it another one later.
func (t *simTrial) crash(h *sim.Host) {
	l := t.current(h)
	if l == nil {
		return
	}
	l.dead = true
	h.Crash()
	t.w.After(t.w.Between(0, 20*ms), func() {
		if err := h.Boot(); err != nil {
			t.fail("%v", err)
		}
	})
}

// never is what nobody waits for in vain but until their context ends.
func never() bool { return false }

// until waits for the end of a context.
func (l *simLife) until(ctx context.Context) error {
	if err := l.p.el.WaitFor(ctx, never); err == nil {
		l.t.fail("a wait for ever ended")
	}
	return context.Cause(ctx)
}
