package inject_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// tokens are an Auth that shows one of three: cluster's is a member's, ann's and bob's are not.
type tokens struct{ self string }

func (t tokens) Self() (string, []byte) { return t.self, []byte("the secret of " + t.self) }

func (tokens) Lookup(name string) ([]byte, fabric.Principal, bool) {
	caps := cluster.CapInject | cluster.CapRead | cluster.CapWrite
	if name == "cluster" {
		caps |= cluster.CapMember
	}
	return []byte("the secret of " + name), fabric.Principal{Name: name, Caps: uint32(caps)}, name == "cluster" || name == "ann" || name == "bob"
}

func (tokens) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

// robbed is two nodes, of which the second is to be impersonated at the first, and ann, who is connected with both.
type robbed struct {
	t      *testing.T
	nodes  [2]*member
	ann    *member
	memory *fabric.Segment // the second's
	f      *inject.Function
	got    atomic.Int64 // messages of functions that came to bob
}

func newRobbed(t *testing.T) *robbed {
	r := &robbed{t: t}
	table := &cluster.Table{Name: "words", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 2, Rows: 2 * words}}
	for i := range r.nodes {
		n := newMemberAs(t, fabric.Config{Name: fmt.Sprintf("n%d", i), Auth: tokens{"cluster"}}, true)
		r.nodes[i] = n
		seg, err := n.el.NewSegment(words*8, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		key, err := seg.Key(fabric.RightRead | fabric.RightWrite | fabric.RightAtomic)
		if err != nil {
			t.Fatal(err)
		}
		r.memory = seg
		table.Shards = append(table.Shards, cluster.Shard{Element: n.el.Name(), Incarnation: n.el.Incarnation(), Addrs: n.el.Addrs(),
			Windows: []cluster.Window{{Key: key, Size: words * 8, Writable: true}}})
	}
	table.FillRows()
	r.ann = newMemberAs(t, fabric.Config{Name: "ann", Auth: tokens{"ann"}}, false)
	for _, n := range r.nodes {
		r.dial(r.ann, n)
	}
	f, err := r.ann.rt.Prepare(stepsImage(t, "errand", nil), table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	r.f = f
	return r
}

func (r *robbed) dial(from, to *member) *fabric.Endpoint {
	r.t.Helper()
	ep, err := from.el.Dial(within(r.t, patience), to.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return ep
}

// thief has bob connect to the first node under the second one's incarnation and name.
func (r *robbed) thief() (*fabric.Endpoint, error) {
	r.t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "n1", Transports: []fabric.Transport{tr}, Auth: tokens{"bob"}, Incarnation: r.nodes[1].el.Incarnation()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { el.Close() })
	for k := travel.Kind(0); k < travel.Kinds; k++ {
		id := fabric.FirstMessageID + fabric.FrameID(k)
		if k.Reserved() {
			id = fabric.FirstReservedID + fabric.FrameID(k)
		}
		if err := el.Handle(id, func(fabric.Message) { r.got.Add(1) }); err != nil {
			r.t.Fatal(err)
		}
	}
	return el.Dial(within(r.t, patience), r.nodes[0].addr)
}

// errand has ann's function do steps at the first node.
func (r *robbed) errand(steps ...[]step) error {
	_, err := r.f.Do(within(r.t, patience), inject.Root{Payload: payload(1, steps...)}, nil)
	return err
}

// works reports what of going on to the second node, and using its window from the first, does not.
func (r *robbed) works() string {
	word := r.memory.Bytes()[8:16]
	clear(word)
	if err := r.errand(on(1)); err != nil {
		return fmt.Sprintf("going on: %v", err)
	}
	if err := r.errand(one(opPut, 1, 1)); err != nil || word[0] == 0 {
		return fmt.Sprintf("a put: %v, the word is %x", err, word)
	}
	return ""
}

// at is the first node's endpoint to the second's incarnation, nil if it has none.
func (r *robbed) at() *fabric.Endpoint {
	for _, ep := range r.nodes[0].el.Endpoints() {
		if ep.Incarnation() == r.nodes[1].el.Incarnation() {
			return ep
		}
	}
	return nil
}

// TestStolenInPause: while a node is away, nobody else is taken for it.
func TestStolenInPause(t *testing.T) {
	r := newRobbed(t)
	ep := r.dial(r.nodes[1], r.nodes[0])
	eventually(t, r.works)
	ep.Close()
	eventually(t, func() string {
		if r.at() != nil {
			return "the first node has not noticed"
		}
		return ""
	})
	if _, err := r.thief(); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), "a member's") {
		t.Errorf("bob connects as n1: %v", err)
	}
	if err := r.errand(on(1)); !errors.Is(err, travel.ErrPeerLost) {
		t.Errorf("while n1 is away: %v", err)
	}
	r.dial(r.nodes[1], r.nodes[0])
	eventually(t, r.works)
	if n := r.got.Load(); n != 0 {
		t.Errorf("bob got %d messages", n)
	}
}

// TestStolenBefore: at a node that was just started somebody else comes first. They get nothing of what is meant for the
// one whose incarnation they show, and are sent away when that comes.
func TestStolenBefore(t *testing.T) {
	r := newRobbed(t)
	bob, err := r.thief()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if r.at() == nil {
			return "the first node does not list bob"
		}
		return ""
	})
	before := r.at().Stats().SentFrames
	if err := r.errand(on(1)); !errors.Is(err, travel.ErrPeerLost) {
		t.Errorf("going on to n1: %v", err)
	}
	if err := r.errand(fork(1)); !errors.Is(err, travel.ErrPeerLost) && err != nil {
		t.Errorf("a fork to n1: %v", err)
	}
	for _, op := range []uint8{opGet, opPut, opAdd} {
		if err := r.errand(one(op, 1, 1)); err != nil {
			t.Fatal(err) // it notes what the call says
		}
	}
	if sent := r.at().Stats().SentFrames - before; sent != 0 || r.got.Load() != 0 {
		t.Errorf("bob was sent %d frames, of them %d functions'", sent, r.got.Load())
	}
	r.dial(r.nodes[1], r.nodes[0])
	eventually(t, func() string {
		if bob.Err() == nil {
			return "bob is still connected"
		}
		return ""
	})
	eventually(t, r.works)
	if n := r.got.Load(); n != 0 {
		t.Errorf("bob got %d messages", n)
	}
	if _, err := r.thief(); !errors.Is(err, fabric.ErrRefused) {
		t.Errorf("bob comes back as n1: %v", err)
	}
}

// TestStolenOrigin: nor is anybody taken for somebody else who sends functions.
func TestStolenOrigin(t *testing.T) {
	r := newRobbed(t)
	as := fabric.Config{Name: "ann", Auth: tokens{"bob"}, Incarnation: r.ann.el.Incarnation()}
	thief := newMemberAs(t, as, false)
	if _, err := thief.el.Dial(within(t, patience), r.nodes[0].addr); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), `principal "bob"`) {
		t.Errorf("bob connects as ann: %v", err)
	}
	r.dial(r.nodes[1], r.nodes[0])
	eventually(t, r.works)
}
