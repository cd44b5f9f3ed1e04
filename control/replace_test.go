package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// authOf is an Auth of tokens as they stand in a file, that shows one of them.
func authOf(t *testing.T, self string, lines ...string) *Auth {
	t.Helper()
	ts, err := cluster.ReadTokens(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAuth(ts, self)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestReplace: what goes by tokens that are gone, or have other capabilities or another secret, ends; nothing else does.
func TestReplace(t *testing.T) {
	secret := func(i byte) string { return strings.Repeat(string([]byte{'0', '0' + i}), 16) }
	node, ann, bob, eve := "node:member:"+secret(1), "ann:read:"+secret(2), "bob:read:"+secret(3), "eve:read:"+secret(4)
	auth := authOf(t, "node", node, ann, bob, eve)
	a := newElementOf(t, "a", true, auth)
	addr, err := a.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func(self string) *element {
		e := newElementOf(t, self, false, authOf(t, self, node, ann, bob, eve))
		if _, err := e.el.Dial(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, self := range []string{"ann", "bob", "eve"} {
		dial(self)
	}
	until(t, "all are there", func() bool { return len(a.el.Endpoints()) == 3 })
	if ended, who := a.el.Readmit(); ended != 0 {
		t.Errorf("nothing has changed, and %d connections end: %v", ended, who)
	}
	withdrawn := auth.Replace(authOf(t, "node", node, "ann:read,write:"+secret(2), bob))
	slices.Sort(withdrawn)
	if !slices.Equal(withdrawn, []string{"ann", "eve"}) {
		t.Errorf("withdrawn: %v", withdrawn)
	}
	ended, who := a.el.Readmit()
	slices.Sort(who)
	if ended != 2 || !slices.Equal(who, []string{"ann", "eve"}) {
		t.Errorf("%d connections have ended, of %v", ended, who)
	}
	if eps := a.el.Endpoints(); len(eps) != 1 || eps[0].Principal().Name != "bob" {
		t.Errorf("there are still %v", eps)
	}
	auth.Replace(authOf(t, "node", node, "bob:read:"+secret(5)))
	if ended, who := a.el.Readmit(); ended != 1 || who[0] != "bob" {
		t.Errorf("another secret: %d connections have ended, of %v", ended, who)
	}
}

// TestReplaceOwn: a connection that was dialled ends if the token that was shown is another's now.
func TestReplaceOwn(t *testing.T) {
	one, two := "one:member:"+strings.Repeat("01", 16), "two:member:"+strings.Repeat("02", 16)
	b := newElementOf(t, "b", true, authOf(t, "one", one, two))
	addr, err := b.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	auth := authOf(t, "one", one, two)
	a := newElementOf(t, "a", true, auth)
	ep, err := a.el.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	if auth.Replace(authOf(t, "one", one)); ep.Err() != nil {
		t.Fatal(ep.Err())
	}
	if ended, _ := a.el.Readmit(); ended != 0 {
		t.Errorf("the token is the same, and %d connections end", ended)
	}
	auth.Replace(authOf(t, "two", one, two))
	if ended, _ := a.el.Readmit(); ended != 1 || ep.Err() == nil {
		t.Errorf("%d connections have ended; %v", ended, ep.Err())
	}
}

// hooked is an Auth that does something else when a HELLO first asks it for this side's token, or for a peer's.
type hooked struct {
	*Auth
	self, lookup func()
}

func (h *hooked) Self() (string, []byte) {
	name, secret := h.Auth.Self()
	h.do(&h.self)
	return name, secret
}

func (h *hooked) Lookup(name string) ([]byte, fabric.Principal, bool) {
	h.do(&h.lookup)
	return h.Auth.Lookup(name)
}

func (h *hooked) do(fn *func()) {
	if now := *fn; now != nil {
		*fn = nil
		now()
	}
}

// TestReplaceWhileDialling: a token that is withdrawn while a connection is made with it opens none, at the dialler either.
func TestReplaceWhileDialling(t *testing.T) {
	one, two := "one:member:"+strings.Repeat("01", 16), "two:member:"+strings.Repeat("02", 16)
	b := newElementOf(t, "b", true, authOf(t, "one", one, two))
	addr, err := b.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	auth := &hooked{Auth: authOf(t, "one", one, two)}
	a := newElementOf(t, "a", true, auth)
	auth.lookup = func() { // the token was shown, and there is no endpoint yet
		auth.Replace(authOf(t, "two", one, two))
		if ended, who := a.el.Readmit(); ended != 0 {
			t.Errorf("%d connections have ended, of %v, where none was made", ended, who)
		}
	}
	ep, err := a.el.Dial(t.Context(), addr)
	if err != nil {
		return // that would do as well
	}
	until(t, "the connection has ended", func() bool { return ep.Err() != nil })
	if err := ep.Err(); !strings.Contains(err.Error(), `token "one"`) {
		t.Error(err)
	}
}

// TestWrongName: whoever finds that an address is another element's leaves the connection to it alone, which others may use.
func TestWrongName(t *testing.T) {
	one := "one:member:" + strings.Repeat("01", 16)
	c := newElementOf(t, "c", true, authOf(t, "one", one))
	addr, err := c.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	auth := &hooked{Auth: authOf(t, "one", one)}
	a := newElementOf(t, "a", true, auth)
	var others *fabric.Endpoint
	auth.self = func() {
		if others, err = a.el.Dial(t.Context(), addr); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.links.Dial(t.Context(), cluster.Member{Name: "b", Addrs: []string{addr}}); err == nil || !strings.Contains(err.Error(), "the address of c, not of b") {
		t.Errorf("dialled c for b: %v", err)
	}
	if err := others.Err(); err != nil {
		t.Errorf("a connection that somebody else has made: %v", err)
	}
}

// TestKeep: the list of members can change.
func TestKeep(t *testing.T) {
	a, b, c := newElement(t, "a", true), newElement(t, "b", true), newElement(t, "c", true)
	at := func(e *element) cluster.Member {
		addr, err := e.el.Listen("tcp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Member{Name: e.el.Name(), Addrs: []string{addr}}
	}
	ma, mb, mc := at(a), at(b), at(c)
	if added, removed := a.links.Keep([]cluster.Member{ma, mb}); !slices.Equal(added, []string{"b"}) || removed != nil {
		t.Errorf("%v, %v", added, removed)
	}
	until(t, "b is connected", func() bool { return a.links.Endpoint("b") != nil })
	if added, removed := a.links.Keep([]cluster.Member{mc}); !slices.Equal(added, []string{"c"}) || !slices.Equal(removed, []string{"b"}) {
		t.Errorf("%v, %v", added, removed)
	}
	until(t, "c is connected", func() bool { return a.links.Endpoint("c") != nil })
	if a.links.Endpoint("b") != nil || len(a.links.States()) != 1 {
		t.Errorf("b is still kept: %v", a.links.States())
	}
	for _, ep := range a.el.Endpoints() {
		if ep.Name() == "b" {
			ep.Close()
		}
	}
	if added, _ := a.links.Keep([]cluster.Member{mb, mc}); !slices.Equal(added, []string{"b"}) {
		t.Errorf("%v", added)
	}
	until(t, "b is dialled again", func() bool { return a.links.Endpoint("b") != nil })
}
