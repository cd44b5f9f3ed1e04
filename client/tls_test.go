package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/node"
)

// tlsBench is a bench whose nodes know everybody by certificate, and nobody by token.
type tlsBench struct {
	bench
	authority *ca.Authority
}

func newTLSBench(t *testing.T, names ...string) *tlsBench {
	t.Helper()
	b := &tlsBench{bench: bench{dir: t.TempDir(), scheme: "tcp", nodes: map[string]*node.Node{}}}
	var err error
	if b.authority, err = ca.Init(filepath.Join(b.dir, "ca"), "test", ca.DefaultLife); err != nil {
		t.Fatal(err)
	}
	b.peers = newPeers(t, &b.bench, names...)
	for _, m := range b.peers {
		own := b.issue(t, ca.Request{Principal: cluster.Principal{Name: m.Name, Caps: cluster.CapMember | cluster.CapInject | cluster.CapRead}, Node: true, Hosts: []string{"127.0.0.1"}})
		b.start(t, m, func(c *node.Config) { c.TLS, c.Tokens = own, nil })
	}
	return b
}

func (b *tlsBench) issue(t *testing.T, r ca.Request) ca.Settings {
	t.Helper()
	_, cert, key, err := b.authority.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(b.dir, r.Principal.Name)
	s := ca.Settings{Cert: at + ".crt", Key: at + ".key", CA: b.authority.File(ca.CertFile), CRL: b.authority.File(ca.ListFile)}
	if err := errors.Join(os.WriteFile(s.Cert, cert, 0o644), os.WriteFile(s.Key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *tlsBench) person(t *testing.T, name string, caps cluster.Caps) ca.Settings {
	return b.issue(t, ca.Request{Principal: cluster.Principal{Name: name, Caps: caps}})
}

func (b *tlsBench) dial(t *testing.T, name string, own ca.Settings) (*Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := Connect(ctx, Config{Name: name, Nodes: []cluster.Member{{Addrs: b.peers[0].Addrs}}, TLS: own})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// actions are what each capability is for; of a dataset that everybody was granted.
func actions(t *testing.T) map[string]func(c *Client) error {
	t.Helper()
	echo, err := xrdma.Lookup("echo")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(c *Client) error{
		"load": func(c *Client) error {
			_, err := c.Load(t.Context(), LoadSpec{Name: "of-" + c.Principal().Name, Blank: &Blank{Sizes: []uint64{1}}}, nil)
			return err
		},
		"read": func(c *Client) error {
			_, err := c.Table(t.Context(), "shared", "r")
			return err
		},
		"write": func(c *Client) error {
			_, err := c.Table(t.Context(), "shared", "w")
			return err
		},
		"inject": func(c *Client) error {
			ep, err := c.Endpoint(t.Context(), "n1")
			if err != nil {
				return err
			}
			_, err = invoke.Run(t.Context(), c.Runtime(), invoke.Request{Image: echo, To: ep, Payload: []byte("x")})
			return err
		},
		"remove somebody's": func(c *Client) error { return c.Grant(t.Context(), "shared", c.Principal().Name, "rw") },
	}
}

// TestCapabilitiesByCertificateOrToken: each capability allows the same, whether
// a certificate says it or a token, and nothing else does.
func TestCapabilitiesByCertificateOrToken(t *testing.T) {
	secured := newTLSBench(t, "n1")
	var list []cluster.Token
	people := map[string]cluster.Caps{"none": 0, "injects": cluster.CapInject, "reads": cluster.CapRead, "writes": cluster.CapWrite, "administers": cluster.CapAdmin,
		"reads-and-injects": cluster.CapRead | cluster.CapInject, "owner": cluster.CapWrite | cluster.CapRead}
	for name, caps := range people {
		tok, err := cluster.NewToken(name, caps)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tok)
	}
	member, err := cluster.NewToken(tokenNode, cluster.CapMember)
	if err != nil {
		t.Fatal(err)
	}
	plain := &bench{dir: t.TempDir(), scheme: "tcp", nodes: map[string]*node.Node{}}
	if plain.tokens, err = cluster.NewTokens(append(list, member)); err != nil {
		t.Fatal(err)
	}
	plain.peers = newPeers(t, plain, "n1")
	plain.start(t, plain.peers[0], nil)
	connect := func(name string) [2]*Client {
		byCert, err := secured.dial(t, name, secured.person(t, name, people[name]))
		if err != nil {
			t.Fatal(err)
		}
		return [2]*Client{byCert, plain.connect(t, name)}
	}
	for _, owner := range connect("owner") {
		_, err := owner.Load(t.Context(), LoadSpec{Name: "shared", Writable: true, Blank: &Blank{Sizes: []uint64{4096}}}, nil)
		if err := errors.Join(err, owner.Grant(t.Context(), "shared", cluster.Everyone, "rw")); err != nil {
			t.Fatal(err)
		}
	}
	allowed := map[string]cluster.Caps{"load": cluster.CapWrite, "read": cluster.CapRead, "write": cluster.CapWrite, "inject": cluster.CapInject, "remove somebody's": cluster.CapAdmin}
	for name, caps := range people {
		if name == "owner" {
			continue
		}
		clients := connect(name)
		for what, act := range actions(t) {
			for i, c := range clients {
				err := act(c)
				if want := caps.Has(allowed[what]); (err == nil) != want {
					t.Errorf("%s with %v, by %s: %s: %v", name, caps, [2]string{"certificate", "token"}[i], what, err)
				}
				if err != nil && !errors.Is(err, cluster.ErrForbidden) && !errors.Is(err, travel.ErrRefused) {
					t.Errorf("%s: %s: %v is no refusal", name, what, err)
				}
			}
		}
	}
}

// TestRevokedIsDropped: a certificate that is revoked is refused within moments, on
// connections that are open and on new ones; others go on.
func TestRevokedIsDropped(t *testing.T) {
	t.Parallel() // it waits for nodes that are silent
	b := newTLSBench(t, "n1", "n2")
	good, err := b.dial(t, "good", b.person(t, "good", cluster.CapRead))
	if err != nil {
		t.Fatal(err)
	}
	badOwn := b.person(t, "bad", cluster.CapAdmin)
	bad, err := b.dial(t, "bad", badOwn)
	if err != nil {
		t.Fatal(err)
	}
	n1 := b.nodes["n1"].Element()
	connected := func(name string) bool {
		for _, ep := range n1.Endpoints() {
			if ep.Principal().Name == name {
				return true
			}
		}
		return false
	}
	waitFor(t, "both are connected", func() bool { return connected("bad") && connected("good") })
	if _, err := b.authority.Revoke("bad"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the revoked client is dropped", func() bool { return !connected("bad") })
	waitFor(t, "the revoked client is answered by no node", func() bool { // each looks at the list once a second
		_, err := bad.List(t.Context())
		return err != nil
	})
	badOwn.CRL = "" // it may not want to know
	if _, err := b.dial(t, "bad", badOwn); !errors.Is(err, fabric.ErrRefused) {
		t.Errorf("dialled again: %v", err)
	}
	if _, err := good.List(t.Context()); err != nil || !connected("good") {
		t.Errorf("the other client: %v", err)
	}
	// A node too: nobody stays connected to it.
	if _, err := b.authority.Revoke("n2"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the revoked node is dropped by node and client", func() bool {
		up := false
		for _, s := range good.Nodes() {
			up = up || s.Member.Name == "n2" && s.Endpoint != nil
		}
		return !up && b.nodes["n1"].Peer("n2") == nil
	})
}

// TestRenewed: a renewed certificate is used without a restart.
func TestRenewed(t *testing.T) {
	b := newTLSBench(t, "n1")
	own := b.person(t, "ann", cluster.CapRead)
	before, err := b.authority.List()
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := b.authority.Renew("n1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Replace(filepath.Join(b.dir, "n1.crt"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range before { // the one before is no good any more
		if c.Principal.Name == "n1" {
			if _, err := b.authority.Revoke(c.Serial); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c, err := b.dial(t, "ann", own); err != nil {
		t.Errorf("to a node with a renewed certificate: %v", err)
	} else if _, err := c.List(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTwoNames: a certificate and a token that say different things are noticed before anybody is dialled.
func TestTwoNames(t *testing.T) {
	b := newTLSBench(t, "n1")
	tokens := newTokens(t)
	for name, own := range map[string]ca.Settings{"eve": b.person(t, "eve", 0), "ann": b.person(t, "ann", cluster.CapRead)} {
		c, err := Connect(t.Context(), Config{Nodes: b.peers, TLS: own, Tokens: tokens, Token: tokenOwner})
		if err == nil {
			defer c.Close()
		}
		if (err == nil) != (name == tokenOwner) || err != nil && !strings.Contains(err.Error(), "two names") {
			t.Errorf("%s's certificate and ann's token: %v", name, err)
		}
	}
}
