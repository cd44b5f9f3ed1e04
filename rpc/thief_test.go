package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
)

// tokenOf is an Auth that shows a token; those whose names begin with "node" are members'.
type tokenOf string

func (n tokenOf) Self() (string, []byte) { return string(n), []byte("the secret of " + n) }

func (tokenOf) Lookup(name string) ([]byte, fabric.Principal, bool) {
	p := fabric.Principal{Name: name}
	if strings.HasPrefix(name, "node") {
		p.Caps = fabric.CapMember
	}
	return []byte("the secret of " + name), p, true
}

func (tokenOf) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

// pullAll answers with the bytes of the Bulk that it is given.
func pullAll(ctx context.Context, c *Call) ([]byte, error) {
	b, _, err := DecodeBulk(c.Req)
	if err != nil {
		return nil, err
	}
	got := make([]byte, b.Size())
	_, err = c.Pull(ctx, b, 0, Memory{got})
	return got, err
}

// bulkOf is a Bulk of a side, as it travels.
func bulkOf(t *testing.T, s *side, text string) []byte {
	t.Helper()
	seg, err := s.el.NewSegment(1<<12, fabric.Writable)
	if err != nil {
		t.Fatal(err)
	}
	copy(seg.Bytes(), text)
	b, err := s.p.Expose(fabric.RightsAll, BulkOptions{}, Span{Segment: seg, Size: uint64(len(text))})
	if err != nil {
		t.Fatal(err)
	}
	wire, err := b.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// inTurn is an Auth that shows another token at each connection.
type inTurn struct {
	tokenOf
	next *atomic.Int32
	all  []tokenOf
}

func (a inTurn) Self() (string, []byte) { return a.all[int(a.next.Add(1)-1)%len(a.all)].Self() }

// TestBulkOfTwoNames: of a node that has two connections, and shows another member's name on each, a Bulk is moved over
// either; when one is lost, over the other.
func TestBulkOfTwoNames(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		node, ann := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{}), newSideOf(t, fabric.Config{Name: "ann", Auth: tokenOf("ann")}, Limits{})
		owner := newSideOf(t, fabric.Config{Name: "n1", Auth: inTurn{next: new(atomic.Int32), all: []tokenOf{"node1", "node2"}}}, Limits{})
		node.p.cfg.Members = true // nobody is connected yet
		node.serve(t, "pull", pullAll)
		ep := connect(t, ann, node, addr)
		wire := bulkOf(t, owner, "the owner's")
		var eps [2]*fabric.Endpoint
		for i := range eps {
			var err error
			if eps[i], err = owner.el.Dial(t.Context(), node.el.Addrs()[0]); err != nil {
				t.Fatal(err)
			}
		}
		there := func(n int) {
			t.Helper()
			waitFor(t, fmt.Sprintf("a pull over %d connections", n), func() bool {
				got, err := ann.p.Call(t.Context(), ep, "pull", wire)
				return len(node.el.Endpoints()) == n+1 && err == nil && string(got) == "the owner's"
			})
		}
		there(2)
		eps[0].Close()
		there(1)
	})
}

// TestBulkOfStolenIncarnation: a node moves a Bulk that came from a third party over its owner's endpoint, not over that of
// somebody who shows the owner's incarnation: the key would go with it, and made-up bytes come back. A Bulk that its owner hands over
// needs no member.
func TestBulkOfStolenIncarnation(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		node, owner, ann := newSideOf(t, fabric.Config{Name: "n0", Auth: tokenOf("node")}, Limits{}),
			newSideOf(t, fabric.Config{Name: "n1", Auth: tokenOf("node")}, Limits{}), newSideOf(t, fabric.Config{Name: "ann", Auth: tokenOf("ann")}, Limits{})
		node.p.cfg.Members = true // nobody is connected yet
		thief := newSideOf(t, fabric.Config{Name: "n1", Auth: tokenOf("bob"), Incarnation: owner.el.Incarnation()}, Limits{})
		node.serve(t, "pull", pullAll)
		ep := connect(t, ann, node, addr)
		bob, err := thief.el.Dial(t.Context(), node.el.Addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		var at *fabric.Endpoint
		waitFor(t, "bob is connected", func() bool {
			for _, at = range node.el.Endpoints() {
				if at.Incarnation() == owner.el.Incarnation() {
					return true
				}
			}
			return false
		})
		before := at.Stats().SentFrames
		wire := bulkOf(t, owner, "the owner's")
		if got, err := ann.p.Call(t.Context(), ep, "pull", wire); err == nil {
			t.Errorf("with bob in the owner's place: %q", got)
		}
		if n := at.Stats().SentFrames - before; n != 0 {
			t.Errorf("bob was sent %d frames", n)
		}
		if _, err := owner.el.Dial(t.Context(), node.el.Addrs()[0]); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "bob is sent away", func() bool { return bob.Err() != nil })
		waitFor(t, "the owner is there", func() bool { // layers hear of a member after the end of who had its incarnation
			node.p.mu.RLock()
			defer node.p.mu.RUnlock()
			return node.p.owners[owner.el.Incarnation()] != nil
		})
		if !errors.Is(bob.Err(), fabric.ErrPeerLost) {
			t.Error(bob.Err())
		}
		for want, wire := range map[string][]byte{"the owner's": wire, "ann's own": bulkOf(t, ann, "ann's own")} {
			if got, err := ann.p.Call(t.Context(), ep, "pull", wire); err != nil || string(got) != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
	})
}
