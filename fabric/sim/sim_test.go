package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"time"
)

// talker is a handler that sends numbered messages to whom it knows, and
// writes down what happens.
type talker struct {
	n     *Node
	log   *[]string
	peers []int
	next  int64
	sent  uint32
	got   map[int][]uint32 // by link
	full  int
	wrote int
}

func (t *talker) note(now int64, format string, args ...any) {
	*t.log = append(*t.log, fmt.Sprintf("%d %s ", now, t.n.Name)+fmt.Sprintf(format, args...))
}

func (t *talker) Up(now int64, peer int, other *Node) {
	t.note(now, "up %d %s %x", peer, other.Name, other.Incarnation)
	t.peers = append(t.peers, peer)
	t.next = now + int64(time.Millisecond)
}

func (t *talker) Lost(now int64, peer int, why error) {
	t.note(now, "lost %d %v", peer, why)
	for i, p := range t.peers {
		if p == peer {
			t.peers = append(t.peers[:i:i], t.peers[i+1:]...)
		}
	}
}

func (t *talker) Recv(now int64, peer int, kind uint16, body []byte) {
	v := binary.LittleEndian.Uint32(body)
	t.note(now, "recv %d %d %d", peer, kind, v)
	t.got[peer] = append(t.got[peer], v)
}

func (t *talker) Writable(now int64, peer int) { t.wrote++ }

func (t *talker) Wake(now int64) {
	for _, p := range t.peers {
		t.sent++
		b := binary.LittleEndian.AppendUint32(nil, t.sent)
		if err := t.n.Send(p, 7, false, b[:1], b[1:]); errors.Is(err, ErrFull) {
			t.full++
		} else if err != nil {
			t.note(now, "send %d: %v", p, err)
		}
	}
	t.next = now + int64(100*time.Microsecond)
}

func (t *talker) Next(int64) (int64, bool) { return t.next, len(t.peers) > 0 }

func world(seed uint64, f Faults, nodes int) (*World, *[]string) {
	log := new([]string)
	w := New(seed, f)
	for i := range nodes {
		w.Add(fmt.Sprint("n", i), func(n *Node) Handler { return &talker{n: n, log: log, got: map[int][]uint32{}} })
	}
	return w, log
}

var rough = Faults{Loss: 0.1, Duplicate: 0.1, Reorder: true, MinDelay: time.Microsecond, MaxDelay: time.Millisecond, Detect: 5 * time.Millisecond, Room: 8, RoomReserved: 12, WakeJitter: 50 * time.Microsecond}

func history(seed uint64) uint64 {
	w, log := world(seed, rough, 4)
	w.Run(10 * time.Millisecond)
	n := w.Nodes()
	w.Crash(n[1])
	w.Cut(n[0], n[2])
	w.Run(time.Millisecond)
	w.Crash(n[0])
	w.Partition(n[2], n[3], true)
	w.Run(10 * time.Millisecond)
	w.Restart(n[1])
	w.Restart(n[0])
	w.Partition(n[2], n[3], false)
	w.Run(20 * time.Millisecond)
	h := fnv.New64a()
	for _, l := range *log {
		fmt.Fprintln(h, l)
	}
	return h.Sum64()
}

// TestRepeats: a seed gives one history, and another seed another one.
func TestRepeats(t *testing.T) {
	if history(1) != history(1) {
		t.Error("the same seed gave two histories")
	}
	if history(1) == history(2) {
		t.Error("two seeds gave the same history")
	}
}

// TestOrdered: without faults every message arrives once and in order.
func TestOrdered(t *testing.T) {
	w, _ := world(3, Faults{MinDelay: time.Microsecond, MaxDelay: 3 * time.Millisecond, Detect: time.Millisecond}, 3)
	w.Run(50 * time.Millisecond)
	for _, n := range w.Nodes() {
		h := n.Handler().(*talker)
		if len(h.got) != 2 {
			t.Fatalf("%s heard of %d peers", n.Name, len(h.got))
		}
		for p, l := range h.got {
			for i := 1; i < len(l); i++ {
				if l[i] <= l[i-1] {
					t.Fatalf("%s got %d after %d from %d", n.Name, l[i], l[i-1], p)
				}
			}
			if len(l) < 300 {
				t.Errorf("%s got only %d messages from %d", n.Name, len(l), p)
			}
		}
	}
}

// TestFull: a full link says so, and says when it has room.
func TestFull(t *testing.T) {
	f := Faults{MinDelay: 5 * time.Millisecond, MaxDelay: 5 * time.Millisecond, Detect: time.Millisecond, Room: 3}
	w, _ := world(4, f, 2)
	w.Run(30 * time.Millisecond)
	h := w.Nodes()[0].Handler().(*talker)
	if h.full == 0 || h.wrote == 0 {
		t.Errorf("full %d times, writable %d times", h.full, h.wrote)
	}
	if err := w.Nodes()[0].Send(99, 0, true, nil, nil); !errors.Is(err, ErrGone) {
		t.Errorf("sending to nobody gives %v", err)
	}
}

// TestCrash: a life that ended hears nothing more, its successor has another
// incarnation, and all meet again.
func TestCrash(t *testing.T) {
	w, _ := world(5, Faults{MaxDelay: time.Millisecond, Detect: 2 * time.Millisecond}, 3)
	w.Run(10 * time.Millisecond)
	n := w.Nodes()[1]
	old, inc := n.Handler().(*talker), n.Incarnation
	w.Crash(n)
	w.Crash(n)
	got := len(*old.log)
	w.Run(10 * time.Millisecond)
	for _, l := range (*old.log)[got:] {
		var at int64
		var name string
		if _, err := fmt.Sscan(l, &at, &name); err != nil || name == n.Name {
			t.Fatalf("after its end: %s", l)
		}
	}
	w.Restart(n)
	w.Run(20 * time.Millisecond)
	if n.Incarnation == inc || !n.Alive() || len(n.Handler().(*talker).peers) != 2 {
		t.Errorf("incarnation %x, was %x; %d peers", n.Incarnation, inc, len(n.Handler().(*talker).peers))
	}
}
