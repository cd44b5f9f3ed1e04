package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// couple starts two nodes with certificates, n1 and n2, that know each other's addresses, and waits until they have one connection.
func couple(t *testing.T) (n1, n2 *Node, a *ca.Authority, certs [2]ca.Settings) {
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
	n1, n2 = nodes[0], nodes[1]
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

// TestSpareCalls: a call that is under way on the connection that is not needed comes to its end, whoever has made it.
func TestSpareCalls(t *testing.T) {
	n1, n2, _, _ := couple(t)
	go1 := make(chan struct{})
	for _, n := range []*Node{n1, n2} {
		if err := n.RPC().Register("wait", func(ctx context.Context, _ *rpc.Call) ([]byte, error) {
			select {
			case <-go1:
			case <-ctx.Done():
			}
			return []byte("done"), context.Cause(ctx)
		}, rpc.Options{Blocking: true}); err != nil {
			t.Fatal(err)
		}
	}
	used := n1.Peer("n2")
	if !used.Dialled() {
		n1.el.Dial(t.Context(), n2.Addrs()[0])
		waitFor(t, "the other direction", func() bool { return connected(n1, n2) && n1.Peer("n2").Dialled() })
	}
	byN2, err := n2.el.Dial(t.Context(), n1.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	var byN1 *fabric.Endpoint // the same connection, at n1
	waitFor(t, "two connections", func() bool {
		for _, ep := range n1.el.Endpoints() {
			if !ep.Dialled() {
				byN1 = ep
			}
		}
		return byN1 != nil
	})
	for name, from := range map[string]struct {
		n  *Node
		ep *fabric.Endpoint
	}{"from n1": {n1, byN1}, "from n2": {n2, byN2}} {
		answer := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			b, err := from.n.RPC().Call(ctx, from.ep, "wait", nil)
			if err == nil && string(b) != "done" {
				err = errors.New(string(b))
			}
			answer <- err
		}()
		select {
		case err := <-answer:
			t.Fatalf("%s: a call on a connection that is not needed: %v", name, err)
		case <-time.After(2 * time.Second):
		}
		go1 <- struct{}{}
		if err := <-answer; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	waitFor(t, "one connection", func() bool { return connected(n1, n2) })
	if byN2.Err() == nil || !n1.Peer("n2").Dialled() {
		t.Error("the wrong one was closed")
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
	}, rpc.Options{Blocking: true}); err != nil {
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
			if !p.Spare(eps[1]) || p.Spare(eps[0]) {
				t.Error("who calls is busy on the other one")
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
