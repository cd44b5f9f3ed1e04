package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// strangers starts two nodes with certificates, n1 and n2, that do not know of each other.
func strangers(t *testing.T) (n1, n2 *Node, a *ca.Authority, certs [2]ca.Settings) {
	t.Helper()
	a, err := ca.Init(filepath.Join(t.TempDir(), "ca"), "test", ca.DefaultLife)
	if err != nil {
		t.Fatal(err)
	}
	var nodes [2]*Node
	for i, name := range []string{"n1", "n2"} {
		certs[i] = certificate(t, a, ca.Request{Principal: cluster.Principal{Name: name, Caps: cluster.CapMember}, Node: true, Hosts: []string{"127.0.0.1"}})
		nodes[i], _ = run(t, Config{Name: name, Listen: []string{"tcp://127.0.0.1:0"}, TLS: certs[i]})
	}
	return nodes[0], nodes[1], a, certs
}

// couple is strangers that are acquainted, and have one connection.
func couple(t *testing.T) (n1, n2 *Node, a *ca.Authority, certs [2]ca.Settings) {
	t.Helper()
	n1, n2, a, certs = strangers(t)
	n1.links.Add(memberOf(n2))
	n2.links.Add(memberOf(n1))
	waitFor(t, "one connection", func() bool { return connected(n1, n2) })
	return n1, n2, a, certs
}

// connected reports whether two nodes have one connection, and use it.
func connected(n1, n2 *Node) bool {
	for _, pair := range [][2]*Node{{n1, n2}, {n2, n1}} {
		n, to := pair[0], pair[1]
		if eps := n.el.Endpoints(); len(eps) != 1 || eps[0].Name() != to.Name() || n.Peer(to.Name()) != eps[0] {
			return false
		}
	}
	return true
}

// TestRenewAndRevoke: a node's certificate is renewed in place and the former one revoked; both nodes dial at once. One connection is left.
func TestRenewAndRevoke(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			n1, n2, a, certs := couple(t)
			former, second := n1.Peer("n2"), n2.Peer("n1")
			issued, err := a.List()
			if err != nil || len(issued) != 2 || issued[0].Principal.Name != "n1" {
				t.Fatalf("%v, %v", issued, err)
			}
			_, text, err := a.Renew("n1", 0)
			if err := errors.Join(err, os.WriteFile(certs[0].Cert, text, 0o644)); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Revoke(issued[0].Serial); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the former connection's end", func() bool { return former.Err() != nil && second.Err() != nil })
			if _, err := n2.links.Dial(t.Context(), memberOf(n1)); err != nil { // as it may while n1 does
				t.Fatal(err)
			}
			waitFor(t, "one connection", func() bool {
				return connected(n1, n2) && n1.Peer("n2").Dialled() && !n2.Peer("n1").Dialled()
			})
		})
	}
}

// serveSpares has two nodes serve calls that wait, and calls that say which of the two dialled the connection that they came over.
func serveSpares(t *testing.T, n1, n2 *Node, begun chan<- bool, end <-chan bool) {
	t.Helper()
	for _, n := range []*Node{n1, n2} {
		err := errors.Join(n.RPC().Register("wait", func(ctx context.Context, _ *rpc.Call) ([]byte, error) {
			begun <- true
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil, context.Cause(ctx)
		}, rpc.Options{}), n.RPC().Register("by", func(_ context.Context, c *rpc.Call) ([]byte, error) {
			if c.From.Dialled() == (n == n1) {
				return []byte("n1"), nil
			}
			return []byte("n2"), nil
		}, rpc.Options{Inline: true}))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSpareCalls: a call that is under way on the connection that is not needed comes to its end, whoever has made it. Further ones
// that are made over it go over the other one.
func TestSpareCalls(t *testing.T) {
	n1, n2, _, _ := strangers(t)
	begun, end := make(chan bool, 2), make(chan bool)
	serveSpares(t, n1, n2, begun, end)
	byN2, err := n2.el.Dial(t.Context(), n1.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the connection", func() bool { return len(n1.el.Endpoints()) == 1 })
	ends := map[*Node]*fabric.Endpoint{n1: n1.el.Endpoints()[0], n2: byN2}
	if _, err := n1.el.Dial(t.Context(), n2.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	made := map[*Node]chan error{}
	for n, ep := range ends {
		answer := make(chan error, 1)
		made[n] = answer
		go func() {
			_, err := n.RPC().Call(ctx, ep, "wait", nil)
			answer <- err
		}()
		<-begun
	}
	n1.links.Add(memberOf(n2)) // now they see that they have two connections
	n2.links.Add(memberOf(n1))
	for n, ep := range ends {
		waitFor(t, "further calls go over the other one", func() bool {
			by, err := n.RPC().Call(ctx, ep, "by", nil)
			if err != nil {
				t.Fatal(err)
			}
			return string(by) == "n1"
		})
	}
	for n := range ends {
		time.Sleep(time.Second)
		if byN2.Err() != nil {
			t.Fatalf("with a call under way: %v", byN2.Err())
		}
		select {
		case err := <-made[n]:
			t.Fatalf("a call ended early: %v", err)
		default:
		}
	}
	close(end)
	for n := range ends {
		if err := <-made[n]; err != nil {
			t.Errorf("a call that %s has made: %v", n.Name(), err)
		}
	}
	waitFor(t, "one connection", func() bool { return connected(n1, n2) })
	if byN2.Err() == nil || !n1.Peer("n2").Dialled() {
		t.Error("the wrong one was closed")
	}
}

// TestSpareAnswers: a node looks at home again when the peer has answered, and tells a peer that refuses from one that has not answered.
func TestSpareAnswers(t *testing.T) {
	ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember})
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts})
	el, p := guest(t, ts, "node")
	begun, end := make(chan bool), make(chan bool)
	if err := n.RPC().Register("wait", func(context.Context, *rpc.Call) ([]byte, error) {
		begun <- true
		<-end
		return nil, nil
	}, rpc.Options{}); err != nil {
		t.Fatal(err)
	}
	var theirs, ours [2]*fabric.Endpoint
	for i := range theirs {
		var err error
		if theirs[i], err = el.Dial(t.Context(), n.Addrs()[0]); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the connection", func() bool {
			for _, ep := range n.el.Endpoints() {
				if i == 0 || ep != ours[0] {
					ours[i] = ep
				}
			}
			return ours[i] != nil
		})
	}
	if _, err := n.spare(t.Context(), ours[0], ours[1]); !errors.Is(err, rpc.ErrNoSuchCall) {
		t.Errorf("a peer that does not know the question: %v", err)
	}
	answers := make(chan func() (*control.SpareReply, error), 1)
	if err := control.Serve(p, control.CallSpare, func(context.Context, *rpc.Call, *control.Nothing) (*control.SpareReply, error) { return (<-answers)() }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		answer  func() (*control.SpareReply, error)
		busy    bool
		refused error
	}{
		{"nothing is under way", func() (*control.SpareReply, error) { return &control.SpareReply{}, nil }, false, nil},
		{"something is", func() (*control.SpareReply, error) { return &control.SpareReply{Busy: true}, nil }, true, nil},
		{"it may not be asked", func() (*control.SpareReply, error) { return nil, &cluster.ForbiddenError{} }, false, cluster.ErrForbidden},
		{"it cannot answer now", func() (*control.SpareReply, error) { return nil, errors.New("no") }, true, nil},
		{"it begins something first", func() (*control.SpareReply, error) {
			go p.Call(t.Context(), theirs[0], "wait", nil)
			<-begun
			return &control.SpareReply{}, nil
		}, true, nil},
	} {
		answers <- c.answer
		busy, err := n.spare(t.Context(), ours[0], ours[1])
		if busy != c.busy || c.refused == nil && err != nil || !errors.Is(err, c.refused) {
			t.Errorf("%s: busy %v, %v", c.what, busy, err)
		}
	}
	close(end)
}

// twoNamed is a guest with two tokens, which shows one of them, and then the other.
type twoNamed struct {
	fabric.Auth
	other fabric.Auth
	shown atomic.Int64
}

func (a *twoNamed) Self() (name string, secret []byte) {
	if a.shown.Add(1) > 1 {
		return a.other.Self()
	}
	return a.Auth.Self()
}

// TestSpareOfAnother: nothing is said of a connection of the same incarnation that is another principal's.
func TestSpareOfAnother(t *testing.T) {
	ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember, "other": cluster.CapMember})
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, Token: "node"})
	own, err := control.NewAuth(ts, "node")
	if err != nil {
		t.Fatal(err)
	}
	other, err := control.NewAuth(ts, "other")
	if err != nil {
		t.Fatal(err)
	}
	el, p := guestOf(t, "tcp", &twoNamed{Auth: own, other: other})
	var eps [2]*fabric.Endpoint
	for i := range eps {
		if eps[i], err = el.Dial(t.Context(), n.Addrs()[0]); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := control.Do[control.SpareReply](t.Context(), p, eps[1], control.CallSpare, control.Nothing{}); !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("%+v, %v", reply, err)
	}
}

// TestSpareRequests: only nodes ask, and what is used is not given up.
func TestSpareRequests(t *testing.T) {
	ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember, "ann": cluster.CapRead})
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts})
	called, done := make(chan struct{}), make(chan struct{})
	if err := n.RPC().Register("wait", func(context.Context, *rpc.Call) ([]byte, error) {
		called <- struct{}{}
		<-done
		return nil, nil
	}, rpc.Options{}); err != nil {
		t.Fatal(err)
	}
	ask := func(name string, calls bool) (bool, error) {
		el, p := guest(t, ts, name)
		var eps [2]*fabric.Endpoint
		for i := range eps {
			var err error
			if eps[i], err = el.Dial(t.Context(), n.Addrs()[0]); err != nil {
				t.Fatal(err)
			}
		}
		if calls {
			go p.Call(t.Context(), eps[1], "wait", nil)
			<-called
			if !p.Spare(eps[1], eps[0]) {
				t.Error("who calls has nothing under way")
			}
			defer close(done)
		}
		reply, err := control.Do[control.SpareReply](t.Context(), p, eps[0], control.CallSpare, control.Nothing{})
		return err == nil && reply.Busy, err
	}
	if busy, err := ask("node", false); busy || err != nil {
		t.Errorf("of a connection that nothing uses: %v, %v", busy, err)
	}
	if busy, err := ask("node", true); !busy || err != nil {
		t.Errorf("of a connection with a call: %v, %v", busy, err)
	}
	if _, err := ask("ann", false); !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("a client asks: %v", err)
	}
}
