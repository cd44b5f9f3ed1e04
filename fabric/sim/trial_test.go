package sim_test

import (
	"context"
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

var trials = seeds.Flags("./fabric/sim")

// few are fewer seeds for short tests (the race detector's).
func few(n int) int {
	if testing.Short() {
		return (n + 7) / 8
	}
	return n
}

// trialKind is one sort of trial.
type trialKind struct {
	faults  sim.WireFaults
	limits  fabric.Limits
	hosts   int
	wires   int           // at once between two hosts
	spread  time.Duration // over which things happen
	actions int
	mix     []weighted
	hold    time.Duration // for which handlers keep messages
	handOff float64       // of handlers
	bodies  int           // the largest message
	crashes int
	stops   int
	cuts    int
	silent  int // partitions
	closes  int // endpoints closed by one side
	// reliable promises that no connection is lost.
	reliable bool
}

// weighted is an action and how often it is chosen.
type weighted struct {
	weight int
	act    func(*side)
}

// trial is one run, with the model of what must come of it.
type trial struct {
	k     *trialKind
	w     *sim.World
	net   *sim.Network
	fail  func(format string, args ...any)
	lives []*life
	sides map[*fabric.Endpoint]*side
	conns []*conn
	ops   []*op // under way
	ended int   // operations
	good  int   // of them
	bufs  []*quietBuffer
	over  bool // nothing new is started
	trace hash.Hash64
}

// life is one life of a host.
type life struct {
	t     *trial
	h     *sim.Host
	el    *fabric.Element
	dead  bool
	calls int // that have not ended
	sides []*side
	memory
}

// conn is a connection, and side what one life has of it.
type conn struct {
	id   int
	side [2]*side
}

type side struct {
	t      *trial
	l      *life
	c      *conn
	i      int
	ep     *fabric.Endpoint
	lost   error
	doomed bool // an operation ended because the connection had

	sending bool   // a Send waits, with the next number
	sent    uint64 // numbered messages
	got     uint64
	asked   []uint64 // numbers whose answer is due
	held    []heldMessage
	cost    uint64 // of those held

	lane   int // of the peer's memory
	frozen uint32
	cells  []*cell
	mem    *fabric.Remote
	static *fabric.Remote
	words  *fabric.Remote
	guests []*guest
}

func (s *side) peer() *side { return s.c.side[1-s.i] }

// live reports whether the side can be used.
func (s *side) live() bool { return !s.l.dead && s.lost == nil }

func (s *side) String() string {
	return fmt.Sprintf("connection %d from %s.%d", s.c.id, s.l.h.Name, s.l.h.Life())
}

func newTrial(k *trialKind, seed uint64, fail seeds.Fail) *trial {
	t := &trial{k: k, sides: map[*fabric.Endpoint]*side{}, w: sim.New(seed, sim.Faults{}), trace: fnv.New64a()}
	t.fail = func(format string, args ...any) {
		fail("%v: %s", t.w, fmt.Sprintf(format, args...))
	}
	t.net = sim.NewNetwork(t.w, k.faults)
	t.net.Observe = t.observe
	n := 0
	t.w.Check = func(int64) {
		if n++; n%8 == 0 {
			t.sweep()
		}
	}
	for i := range k.hosts {
		if _, err := t.net.Add(fmt.Sprint("h", i), sim.Program{Configure: t.configure, Start: t.start}); err != nil {
			t.fail("%v", err)
		}
	}
	return t
}

func (t *trial) note(words ...uint64) {
	var b [8]byte
	for _, w := range words {
		for i := range b {
			b[i] = byte(w >> (8 * i))
		}
		t.trace.Write(b[:])
	}
}

func (t *trial) observe(e sim.Event) {
	t.note(uint64(e.At), uint64(e.Kind)|uint64(e.Host)<<8|uint64(e.Peer)<<16|uint64(e.ID)<<32, uint64(e.Wire), uint64(e.Bytes))
}

func (t *trial) configure(h *sim.Host, c *fabric.Config) {
	c.Limits = t.k.limits
	c.OnLost = t.onLost
}

// start begins a host's life.
func (t *trial) start(h *sim.Host) error {
	l := &life{t: t, h: h, el: h.Element()}
	t.lives = append(t.lives, l)
	if err := l.lend(); err != nil {
		return err
	}
	return errors.Join(
		l.el.HandleRetaining(idHeld, func(m fabric.Message) { t.message(m, true) }),
		l.el.Handle(idPlain, func(m fabric.Message) { t.message(m, false) }),
		l.el.Handle(idAnswer, t.answer))
}

// current is the model of a host's present life.
func (t *trial) current(h *sim.Host) *life {
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

func (t *trial) onLost(ep *fabric.Endpoint, err error) {
	s, ok := t.sides[ep]
	if !ok {
		return // Connect failed
	}
	if s.lost != nil {
		t.fail("%v was lost twice: %v, then %v", s, s.lost, err)
	}
	s.lost = err
	s.disown()
	if errors.Is(err, fabric.ErrProtocol) || !errors.Is(err, fabric.ErrPeerLost) && !errors.Is(err, fabric.ErrClosed) {
		t.fail("%v ended with %v", s, err)
	}
	if t.k.reliable && !t.over {
		t.fail("%v was lost without a fault: %v", s, err)
	}
	s.freeze()
}

// connect lays a wire between two hosts and lets both sides import what the other lends.
func (t *trial) connect(a, b *sim.Host) {
	la, lb := t.current(a), t.current(b)
	if la == nil || lb == nil || la.lanes == maxLanes || lb.lanes == maxLanes {
		return
	}
	atA, atB, err := t.net.Connect(a, b)
	if err != nil {
		if !errors.Is(err, sim.ErrUnreachable) {
			t.fail("connect: %v", err)
		}
		return
	}
	c := &conn{id: len(t.conns)}
	t.conns = append(t.conns, c)
	c.side[0] = &side{t: t, l: la, c: c, i: 0, ep: atA}
	c.side[1] = &side{t: t, l: lb, c: c, i: 1, ep: atB}
	for _, s := range c.side {
		t.sides[s.ep] = s
		s.l.sides = append(s.l.sides, s)
		if s.ep.Incarnation() != s.peer().l.el.Incarnation() {
			t.fail("%v leads to another incarnation", s)
		}
	}
	for _, s := range c.side {
		s.open()
	}
}

// call runs something that waits, on the side's life.
func (s *side) call(fn func(ctx context.Context)) {
	l := s.l
	l.calls++
	l.h.Go(func(ctx context.Context) {
		fn(ctx)
		l.calls--
	})
}
