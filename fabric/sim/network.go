package sim

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// WireFaults say what a network does to the packets of its wires, and how
// leisurely its hosts are.
type WireFaults struct {
	// MinDelay and MaxDelay bound each packet's time under way; each has its own.
	MinDelay, MaxDelay time.Duration
	// Loss and Duplicate are the chances of each packet. A lost one is sent
	// again after Retry, then twice that, and so on; with one that was lost
	// Tries times the wire breaks. 0 Tries: never.
	Loss, Duplicate float64
	Retry           time.Duration // 0: 1 ms
	Tries           int
	// Detect bounds the time until an end of a wire hears that it broke.
	Detect time.Duration
	// Silent is the chance that an end of a wire whose other host crashed hears
	// nothing at all; Limits.PeerTime has to find out.
	Silent float64
	// Room is how many frames of the normal class may wait in one direction of
	// a wire; RoomReserved how many in all. 0: 64, and twice Room.
	Room, RoomReserved int
	// Lag bounds the time until a host with something to do does a round of
	// it; Burst how many frames a round delivers. 0: 32 frames.
	Lag   time.Duration
	Burst int
	// Pieces is the chance that a frame with bulk data is placed over several
	// rounds; of the others half are placed at once, half delivered whole.
	Pieces float64
	// Descriptors are handed over, as between processes of one machine: segments are mapped.
	Descriptors bool
}

const (
	defaultRoom  = 64
	defaultBurst = 32
	defaultRetry = time.Millisecond
	// restTime is how long a host with nothing to do waits for its duties.
	restTime = 2 * time.Millisecond
	// maxRetry bounds the time between two tries with one packet.
	maxRetry = 50 * time.Millisecond
)

func (f *WireFaults) defaults() {
	f.MaxDelay = max(f.MaxDelay, f.MinDelay)
	if f.Room <= 0 {
		f.Room = defaultRoom
	}
	if f.RoomReserved <= f.Room {
		f.RoomReserved = 2 * f.Room
	}
	if f.Burst <= 0 {
		f.Burst = defaultBurst
	}
	if f.Retry <= 0 {
		f.Retry = defaultRetry
	}
}

// EventKind is what an Event tells of.
type EventKind uint8

const (
	EventBoot    EventKind = 1 + iota // a host's life began
	EventCrash                        // it ended, by Crash or Stop
	EventWire                         // a wire was laid from Host to Peer
	EventSend                         // a frame was given to a wire
	EventDeliver                      // an element was given it, or the last of it
	EventLost                         // an element was told that a wire is gone
)

// Event is something that happened on a network: what Network.Observe hears.
type Event struct {
	At         int64
	Kind       EventKind
	Host, Peer int // indices
	Wire       int
	ID         fabric.FrameID
	Bytes      int
}

// Network is a set of hosts whose elements are the fabric's own, and the wires
// between them, all in one world. It is used by the world's goroutine.
type Network struct {
	W      *World
	Faults WireFaults // may be changed at any time between two events
	// Observe, if set, hears of everything that happens. The same seed gives the same
	// events; what is in frames is not among them, because keys' secrets are random.
	Observe func(Event)

	hosts []*Host
	wires int // so far
	live  []*wire
	cut   map[[2]int]bool // by from and to; looked up only
	cur   *proc           // whose goroutine runs, nil: the world's own
	// poison is what a frame's body becomes once it has been delivered.
	poison []byte
}

// ErrUnreachable says that there is no way to a host, or nobody there.
var ErrUnreachable = errors.New("sim: host unreachable")

// NewNetwork makes an empty network in a world.
func NewNetwork(w *World, f WireFaults) *Network {
	f.defaults()
	return &Network{W: w, Faults: f, cut: map[[2]int]bool{}, poison: bytes.Repeat([]byte{0xdb}, fabric.MaxFrameBytes)}
}

func (n *Network) observe(e Event) {
	if n.Observe != nil {
		e.At = n.W.now
		n.Observe(e)
	}
}

// Hosts are all hosts in the order they were added.
func (n *Network) Hosts() []*Host { return n.hosts }

// Program is what runs on a host: it makes each of its lives.
type Program struct {
	// Configure may change what the network proposes for a life's element:
	// Limits, Auth, OnPeer, OnLost, Log. nil changes nothing.
	Configure func(h *Host, c *fabric.Config)
	// Start is called with the new element in place, to register handlers and lend segments.
	Start func(h *Host) error
}

// Add makes a host and boots it.
func (n *Network) Add(name string, p Program) (*Host, error) {
	h := &Host{Name: name, Index: len(n.hosts), net: n, program: p}
	n.hosts = append(n.hosts, h)
	return h, h.Boot()
}

// Connect lays a wire between two living hosts and attaches both elements to it,
// without HELLO. What one of them sends before the other was attached waits for it.
func (n *Network) Connect(a, b *Host) (atA, atB *fabric.Endpoint, err error) {
	if err := n.reachable(a, b); err != nil {
		return nil, nil, err
	}
	w := n.lay(a, b)
	if atA, err = w.end[0].attach(b); err == nil {
		if atB, err = w.end[1].attach(a); err == nil {
			return atA, atB, nil
		}
	}
	w.breakUp(err)
	return nil, nil, err
}

func (n *Network) reachable(a, b *Host) error {
	switch {
	case a == b || !a.Alive() || !b.Alive():
		return fmt.Errorf("%w: %s from %s", ErrUnreachable, b.Name, a.Name)
	case n.apart(a, b):
		return fmt.Errorf("%w: %s and %s are apart", ErrUnreachable, a.Name, b.Name)
	}
	return nil
}

// Partition loses every packet from one host to another, or lets them pass
// again. Nobody is told. What was lost is sent again and arrives late, if the
// wire still has both its ends by then.
func (n *Network) Partition(from, to *Host, apart bool) { n.cut[[2]int{from.Index, to.Index}] = apart }

// apart reports whether packets between two hosts are lost, one way or both.
func (n *Network) apart(a, b *Host) bool {
	return n.cut[[2]int{a.Index, b.Index}] || n.cut[[2]int{b.Index, a.Index}]
}

// Cut breaks the wires between two hosts: both ends hear of it.
func (n *Network) Cut(a, b *Host) {
	for _, w := range slices.Clone(n.live) {
		if w.end[0].host == a && w.end[1].host == b || w.end[0].host == b && w.end[1].host == a {
			w.breakUp(fmt.Errorf("the wire between %s and %s broke", a.Name, b.Name))
		}
	}
}

// Calm ends all faults and partitions: from now on every packet arrives, and
// queues have plenty of room.
func (n *Network) Calm() {
	n.cut = map[[2]int]bool{}
	f := WireFaults{MinDelay: n.Faults.MinDelay, MaxDelay: n.Faults.MaxDelay, Detect: n.Faults.Detect, Lag: n.Faults.Lag,
		Descriptors: n.Faults.Descriptors, Room: max(n.Faults.Room, 1<<12)}
	f.defaults()
	n.Faults = f
}

// Close crashes every host: nothing is left of the network.
func (n *Network) Close() {
	for _, h := range n.hosts {
		h.Crash()
	}
}
