package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
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
			waitFor(t, "one connection", func() bool { return connected(n1, n2) })
		})
	}
}
