package sim

import (
	"errors"
	"time"
)

var (
	// ErrFull says that a link's queue has no room for the class.
	ErrFull = errors.New("sim: link full")
	// ErrGone says that there is no such link any more.
	ErrGone = errors.New("sim: link gone")
)

// Node is one element of a world.
type Node struct {
	Name        string
	Index       int
	Incarnation uint64 // of its current life

	w     *World
	boot  func(*Node) Handler
	h     Handler
	life  int
	peers int // numbers given to links so far, in all lives
	links []*link
	keep  func() func()
	wakes uint64 // the latest wake-up that was planned
	wake  int64
}

// Alive reports whether the node runs.
func (n *Node) Alive() bool { return n.h != nil }

// Handler is the node's current life, nil if it has none.
func (n *Node) Handler() Handler { return n.h }

// World is where the node lives.
func (n *Node) World() *World { return n.w }

func (n *Node) nextPeer() int {
	n.peers++
	return n.peers
}

// linked counts the links to another node that n has not heard the end of.
func (n *Node) linked(m *Node) (links int) {
	for _, l := range n.links {
		if l.other(n) == m {
			links++
		}
	}
	return links
}

// Do runs something in a node's current life d from now; if that life has
// ended by then, nothing happens.
func (n *Node) Do(d time.Duration, do func()) {
	life := n.life
	n.w.After(d, func() {
		if n.life == life && n.Alive() {
			do()
			n.settle()
		}
	})
}

// settle asks the handler when time matters next. Every event at a node ends with it.
func (n *Node) settle() {
	if n.h == nil {
		return
	}
	at, ok := n.h.Next(n.w.now)
	if !ok {
		n.wakes++
		n.wake = 0
		return
	}
	if n.wake == at {
		return
	}
	n.wake = at
	n.wakes++
	mine, life := n.wakes, n.life
	late := n.w.Between(0, n.w.Faults.WakeJitter)
	n.w.After(time.Duration(max(at-n.w.now, 0))+late, func() {
		if n.wakes == mine && n.life == life {
			n.wake = 0
			n.h.Wake(n.w.now)
			n.settle()
		}
	})
}

// Send sends a message on one of the node's links. It keeps neither slice.
func (n *Node) Send(peer int, kind uint16, reserved bool, head, body []byte) error {
	for _, l := range n.links {
		for i := range l.end {
			if e := &l.end[i]; e.node == n && e.peer == peer && e.up {
				return l.send(i, kind, reserved, head, body)
			}
		}
	}
	return ErrGone
}

// link joins two lives.
type link struct {
	w      *World
	end    [2]end
	broken bool
}

// end is one side of a link, and what is under way from it.
type end struct {
	node   *Node
	peer   int  // the node's number for it
	up     bool // the node has not heard that it is gone
	flight int
	last   int64 // when the latest message arrives, if they stay in order
	cut    int64 // what arrives later was lost when the link broke
	full   bool  // somebody waits for room
}

func (l *link) other(n *Node) *Node {
	if l.end[0].node == n {
		return l.end[1].node
	}
	return l.end[0].node
}

func (l *link) send(from int, kind uint16, reserved bool, head, body []byte) error {
	e, w := &l.end[from], l.w
	room := w.Faults.Room
	if reserved {
		room = w.Faults.RoomReserved
	}
	if e.flight >= room {
		e.full = true
		return ErrFull
	}
	if l.broken {
		return nil // nobody has noticed yet
	}
	b := append(append(make([]byte, 0, len(head)+len(body)), head...), body...)
	copies := 1
	if w.Rand.Float64() < w.Faults.Loss {
		copies = 0
	} else if w.Rand.Float64() < w.Faults.Duplicate {
		copies = 2
	}
	for range copies {
		at := w.now + int64(w.Between(w.Faults.MinDelay, w.Faults.MaxDelay))
		if !w.Faults.Reorder {
			at = max(at, e.last)
			e.last = at
		}
		e.flight++
		w.After(time.Duration(at-w.now), func() { l.deliver(from, at, kind, b) })
	}
	return nil
}

func (l *link) deliver(from int, at int64, kind uint16, b []byte) {
	e, to := &l.end[from], &l.end[1-from]
	kept := false
	if to.up && (!l.broken || at <= e.cut) {
		to.node.keep = func() func() { kept = true; return func() { l.leave(from) } }
		to.node.h.Recv(l.w.now, to.peer, kind, b)
		to.node.keep = nil
		to.node.settle()
	}
	if !kept {
		l.leave(from)
	}
}

// leave frees a message's place on the link.
func (l *link) leave(from int) {
	e := &l.end[from]
	e.flight--
	if !e.full || !e.up || l.broken {
		return
	}
	e.full = false
	life := e.node.life
	l.w.After(0, func() {
		if e.up && e.node.life == life {
			e.node.h.Writable(l.w.now, e.peer)
			e.node.settle()
		}
	})
}

// Keep has the message that the node's handler is receiving just now go on taking its place on the link, as
// one does whose credit is withheld, until the function that it returns is called.
func (n *Node) Keep() (release func()) { return n.keep() }

// breakUp ends a link: each living side hears of it after a while, and gets
// what was under way up to some random point. Then the link is made again.
func (l *link) breakUp(why error) {
	if l.broken {
		return
	}
	l.broken = true
	w := l.w
	heard := 0
	lives := [2]int{l.end[0].node.life, l.end[1].node.life}
	for i := range l.end {
		e := &l.end[i]
		if e.cut = w.now; w.Rand.IntN(2) == 0 { // else all that was under way is lost
			e.cut += int64(w.Between(0, w.Faults.MaxDelay))
		}
		if !e.node.Alive() {
			e.up = false
			continue
		}
		w.After(w.Between(0, w.Faults.Detect), func() {
			if e.node.life != lives[i] {
				return
			}
			e.up = false
			e.node.drop(l)
			e.node.h.Lost(w.now, e.peer, why)
			e.node.settle()
			if heard++; heard == 2 {
				w.connectLater(e.node, l.other(e.node))
			}
		})
	}
}

func (n *Node) drop(l *link) {
	for i, m := range n.links {
		if m == l {
			n.links = append(n.links[:i:i], n.links[i+1:]...)
			return
		}
	}
}
