package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

// TestStolenIncarnation: somebody who is no node connects to one under another one's name and incarnation, before that has come. They
// are sent away when it comes, and refused from then on, whoever tells who they are: a certificate or a token.
func TestStolenIncarnation(t *testing.T) {
	const caps = cluster.CapInject | cluster.CapRead
	for name, begin := range map[string]func(t *testing.T) (n1, n2 *Node, tr fabric.Transport, auth fabric.Auth){
		"certificates": func(t *testing.T) (*Node, *Node, fabric.Transport, fabric.Auth) {
			n1, n2, a, _ := strangers(t)
			id, err := certificate(t, a, ca.Request{Principal: cluster.Principal{Name: "bob", Caps: caps}}).Load(nil)
			if err != nil {
				t.Fatal(err)
			}
			who, _ := id.Principal()
			tr, err := tcp.New(tcp.Config{TLS: id})
			if err != nil {
				t.Fatal(err)
			}
			return n1, n2, tr, control.CertAuth(who)
		},
		"tokens": func(t *testing.T) (*Node, *Node, fabric.Transport, fabric.Auth) {
			ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember, "bob": caps})
			var nodes [2]*Node
			for i, name := range []string{"n1", "n2"} {
				nodes[i], _ = run(t, Config{Name: name, Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, Token: "node"})
			}
			auth, err := control.NewAuth(ts, "bob")
			if err != nil {
				t.Fatal(err)
			}
			tr, err := tcp.New(tcp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return nodes[0], nodes[1], tr, auth
		},
	} {
		t.Run(name, func(t *testing.T) {
			n1, n2, tr, auth := begin(t)
			el, err := fabric.New(fabric.Config{Name: "n2", Transports: []fabric.Transport{tr}, Auth: auth, Incarnation: n2.el.Incarnation()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { el.Close() })
			bob, err := el.Dial(t.Context(), n1.Addrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			n2.links.Add(memberOf(n1)) // it comes
			waitFor(t, "bob is sent away", func() bool { return bob.Err() != nil })
			n1.links.Add(memberOf(n2))
			waitFor(t, "the nodes are connected", func() bool { return connected(n1, n2) })
			refused := func() {
				t.Helper()
				if _, err := el.Dial(t.Context(), n1.Addrs()[0]); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), "a member's") {
					t.Errorf("bob comes again: %v", err)
				}
			}
			refused()
			n1.Peer("n2").Close()
			refused() // whether it is back or not
			waitFor(t, "the nodes are connected again", func() bool { return connected(n1, n2) })
		})
	}
}
