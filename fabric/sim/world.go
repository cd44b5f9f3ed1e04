package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// Handler is one life of an element under test. The world makes all calls.
type Handler interface {
	// Up says that there is a link to another node's current life.
	Up(now int64, peer int, other *Node)
	// Lost says that a link is gone; its number is not used again.
	Lost(now int64, peer int, why error)
	// Recv delivers a message; body may be kept.
	Recv(now int64, peer int, kind uint16, body []byte)
	// Writable says that a link that was full has room.
	Writable(now int64, peer int)
	// Wake is called when the time that Next named has come.
	Wake(now int64)
	// Next is asked after every call: when does time matter next?
	Next(now int64) (at int64, ok bool)
}

// Faults say what links do to messages.
type Faults struct {
	Loss      float64 // of each message
	Duplicate float64
	Reorder   bool // each message has a delay of its own
	// MinDelay and MaxDelay bound a message's time on the link.
	MinDelay, MaxDelay time.Duration
	// Detect bounds the time until the end of a link is noticed, and until a
	// broken one is made again.
	Detect time.Duration
	// Room is how many messages of the normal class may be under way in one
	// direction; RoomReserved how many in all. 0 means 1 << 20.
	Room, RoomReserved int
	// Links is how many links two nodes have, each with its own order and its own end. 0 means 1.
	Links int
	// WakeJitter bounds how late a Wake is.
	WakeJitter time.Duration
}

// World is a set of nodes on one clock. It is used by one goroutine.
type World struct {
	Rand   *rand.Rand
	Faults Faults
	Events uint64 // that have happened
	// Check, if set, is called after every event.
	Check func(now int64)

	seed   uint64
	now    int64
	seq    uint64
	events eventHeap
	nodes  []*Node
	parts  map[[2]int]bool // partitioned pairs; looked up only
}

// New makes an empty world. The same seed gives the same history.
func New(seed uint64, f Faults) *World {
	if f.MaxDelay < f.MinDelay {
		f.MaxDelay = f.MinDelay
	}
	if f.Room == 0 {
		f.Room = 1 << 20
	}
	f.RoomReserved, f.Links = max(f.RoomReserved, f.Room), max(f.Links, 1)
	return &World{Rand: rand.New(rand.NewPCG(seed, 0x7765727279)), Faults: f, seed: seed, parts: make(map[[2]int]bool)}
}

// Now is the virtual time in nanoseconds.
func (w *World) Now() int64 { return w.now }

// String names the world by its seed.
func (w *World) String() string { return fmt.Sprintf("seed %d at %v", w.seed, time.Duration(w.now)) }

// Nodes are all nodes in the order they were added.
func (w *World) Nodes() []*Node { return w.nodes }

type event struct {
	at  int64
	seq uint64
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// After does something d from now, whatever has become of any node by then.
func (w *World) After(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + int64(max(d, 0)), w.seq, do})
}

// Run lets things happen for d.
func (w *World) Run(d time.Duration) {
	end := w.now + int64(d)
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.Events++
		e.do()
		if w.Check != nil {
			w.Check(w.now)
		}
	}
	w.now = end
}

// Between is a random duration in [lo, hi].
func (w *World) Between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(w.Rand.Int64N(int64(hi-lo)+1))
}

// Add makes a node and boots it: boot makes the handler of each of its lives.
func (w *World) Add(name string, boot func(*Node) Handler) *Node {
	n := &Node{Name: name, Index: len(w.nodes), w: w, boot: boot}
	w.nodes = append(w.nodes, n)
	w.Restart(n)
	return n
}

// Crash ends a node's life.
func (w *World) Crash(n *Node) {
	if !n.Alive() {
		return
	}
	n.h = nil
	n.life++
	for _, l := range n.links {
		for i := range l.end {
			if l.end[i].node == n {
				l.end[i].up = false // also of a link that broke before
			}
		}
		l.breakUp(fmt.Errorf("%s crashed", n.Name))
	}
	n.links = nil
}

// Restart begins a node's next life, under a new incarnation.
func (w *World) Restart(n *Node) {
	if n.Alive() {
		return
	}
	n.life++
	n.Incarnation = w.Rand.Uint64() | 1
	n.h = n.boot(n)
	for _, m := range w.nodes {
		if m != n && m.Alive() {
			w.connectAll(n, m)
		}
	}
	n.settle()
}

// Partition keeps two nodes apart, or lets them meet again.
func (w *World) Partition(a, b *Node, apart bool) {
	key := pair(a, b)
	if w.parts[key] == apart {
		return
	}
	w.parts[key] = apart
	if apart {
		for w.Cut(a, b) {
		}
	} else {
		w.connectAll(a, b)
	}
}

// Cut breaks a link between two nodes, if there is one. It is made again, unless they are kept apart.
func (w *World) Cut(a, b *Node) bool {
	var whole []*link
	for _, l := range a.links {
		if l.other(a) == b && !l.broken {
			whole = append(whole, l)
		}
	}
	if len(whole) == 0 {
		return false
	}
	at := 0
	if len(whole) > 1 {
		at = w.Rand.IntN(len(whole))
	}
	whole[at].breakUp(fmt.Errorf("the link between %s and %s broke", a.Name, b.Name))
	return true
}

// CutOne breaks the link that a node has under a number.
func (w *World) CutOne(n *Node, peer int) {
	for _, l := range n.links {
		for i := range l.end {
			if l.end[i].node == n && l.end[i].peer == peer {
				l.breakUp(fmt.Errorf("%s gave the link up", n.Name))
				return
			}
		}
	}
}

func pair(a, b *Node) [2]int { return [2]int{min(a.Index, b.Index), max(a.Index, b.Index)} }

func (w *World) connectAll(a, b *Node) {
	for range w.Faults.Links {
		w.connectLater(a, b)
	}
}

func (w *World) connectLater(a, b *Node) {
	la, lb := a.life, b.life
	w.After(w.Between(1, w.Faults.Detect), func() {
		if a.life != la || b.life != lb || !a.Alive() || !b.Alive() || w.parts[pair(a, b)] {
			return
		}
		if a.linked(b) == w.Faults.Links || b.linked(a) == w.Faults.Links { // one of them has not noticed that an old link is gone
			w.connectLater(a, b)
			return
		}
		l := &link{w: w}
		l.end[0] = end{node: a, peer: a.nextPeer()}
		l.end[1] = end{node: b, peer: b.nextPeer()}
		a.links = append(a.links, l)
		b.links = append(b.links, l)
		for i := range l.end {
			e, o := &l.end[i], l.end[1-i].node
			e.up = true
			e.node.h.Up(w.now, e.peer, o)
		}
		a.settle()
		b.settle()
	})
}
