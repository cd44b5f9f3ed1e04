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

// tokens are an Auth that shows one of four: cluster's and node's are members', ann's and bob's are not.
type tokens struct{ self string }

func (t tokens) Self() (string, []byte) { return t.self, []byte("the secret of " + t.self) }

func (tokens) Lookup(name string) ([]byte, fabric.Principal, bool) {
	caps := cluster.CapInject | cluster.CapRead | cluster.CapWrite
	if name == "cluster" || name == "node" {
		caps |= cluster.CapMember
	}
	return []byte("the secret of " + name), fabric.Principal{Name: name, Caps: uint32(caps)}, caps.Has(cluster.CapMember) || name == "ann" || name == "bob"
}

func (tokens) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

// inTurn is an Auth that shows another token at each connection, as a node does that has a certificate and a token.
type inTurn struct {
	tokens
	next *atomic.Int32
	all  []string
}

func (a inTurn) Self() (string, []byte) {
	self := a.all[int(a.next.Add(1)-1)%len(a.all)]
	return self, []byte("the secret of " + self)
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

// twice is two elements of which the second connects to the first twice, and shows two tokens.
type twice struct {
	t      *testing.T
	to, by *member
	eps    [2]*fabric.Endpoint // at by
	does   *inject.Function
}

func newTwice(t *testing.T, names ...string) *twice {
	w := &twice{t: t, to: newMemberAs(t, fabric.Config{Name: "to", Auth: tokens{"cluster"}}, true)}
	w.by = newMemberAs(t, fabric.Config{Name: "by", Auth: inTurn{next: new(atomic.Int32), all: names}}, true)
	var err error
	if w.does, err = w.by.rt.Prepare(stepsImage(t, "errand", nil), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.does.Close)
	for i := range w.eps {
		if w.eps[i], err = w.by.el.Dial(within(t, patience), w.to.addr); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() string {
		if n := len(w.to.el.Endpoints()); n != len(w.eps) {
			return fmt.Sprintf("%d connections", n)
		}
		return ""
	})
	return w
}

// travels has a function go over one connection, to the other element.
func (w *twice) travels(over *fabric.Endpoint) error {
	before := over.Stats().NormalFrames
	_, err := w.does.Do(within(w.t, patience), inject.Root{To: over, Payload: payload(0, one(opReply, 0, 0))}, nil)
	if err == nil && over.Stats().NormalFrames == before {
		return fmt.Errorf("nothing went over %v", over)
	}
	return err
}

// TestTwoNames: a node that shows two names, both of them members', sends functions over each connection, and over
// the second when the first is lost.
func TestTwoNames(t *testing.T) {
	w := newTwice(t, "cluster", "node")
	for i, ep := range w.eps {
		if err := w.travels(ep); err != nil {
			t.Errorf("over connection %d: %v", i, err)
		}
	}
	w.eps[0].Close()
	if err := w.travels(w.eps[1]); err != nil {
		t.Errorf("over the second when the first is gone: %v", err)
	}
}

// certified is the Auth of a client to which every second peer shows a node's certificate, and the others that they know its token.
type certified struct {
	tokens
	dialled *atomic.Int32
}

func (a certified) Lookup(name string) ([]byte, fabric.Principal, bool) {
	secret, who, ok := a.tokens.Lookup(name)
	if a.dialled.Add(1)%2 == 0 {
		who = fabric.Principal{Name: "to", Caps: fabric.CapMember}
	}
	return secret, who, ok
}

// TestTurnedAway: a connection that a client made, and by which a node has not shown that it is one, takes functions while no
// other leads there, and only then.
func TestTurnedAway(t *testing.T) {
	to := newMemberAs(t, fabric.Config{Name: "to", Auth: tokens{"cluster"}}, true)
	client := newMemberAs(t, fabric.Config{Name: "client", Auth: certified{tokens{"ann"}, new(atomic.Int32)}, Several: true}, false)
	does, err := client.rt.Prepare(stepsImage(t, "errand", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(does.Close)
	dial := func() *fabric.Endpoint {
		t.Helper()
		ep, err := client.el.Dial(within(t, patience), to.addr)
		if err != nil {
			t.Fatal(err)
		}
		return ep
	}
	goes := func(to, over *fabric.Endpoint) {
		t.Helper()
		before := over.Stats().NormalFrames
		if _, err := does.Do(within(t, patience), inject.Root{To: to, Payload: payload(0, one(opReply, 0, 0))}, nil); err != nil {
			t.Fatal(err)
		}
		if over.Stats().NormalFrames == before {
			t.Errorf("nothing went over %v, of principal %q", over, over.Principal().Name)
		}
	}
	plain := dial()
	goes(plain, plain)
	node := dial()
	goes(node, node)
	goes(plain, node)
	again := dial()
	goes(again, node)
	node.Close()
	goes(plain, plain)
	goes(again, again)
	plain.Close()
	goes(again, again)
}
