package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/ports"
	"github.com/wherry-fabric/wherry/node"
)

// bench is a set of nodes in this process and the tokens to reach them.
type bench struct {
	dir    string
	scheme string
	tokens *cluster.Tokens
	nodes  map[string]*node.Node
	peers  []cluster.Member
}

// token names of a bench.
const (
	tokenNode   = "node"
	tokenOwner  = "ann"
	tokenOther  = "bob"
	tokenReader = "eve" // may read only
	tokenAdmin  = "root"
)

func newTokens(t testing.TB) *cluster.Tokens {
	t.Helper()
	var list []cluster.Token
	for name, caps := range map[string]cluster.Caps{tokenNode: cluster.CapMember | cluster.CapInject | cluster.CapRead,
		tokenOwner: cluster.CapWrite | cluster.CapRead | cluster.CapInject, tokenOther: cluster.CapWrite | cluster.CapRead,
		tokenReader: cluster.CapRead, tokenAdmin: cluster.CapAdmin} {
		tok, err := cluster.NewToken(name, caps)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tok)
	}
	ts, err := cluster.NewTokens(list)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func (b *bench) addr(name string, i int) string {
	if b.scheme == "shm" {
		return "shm://" + filepath.Join(b.dir, name+".sock")
	}
	return fmt.Sprintf("tcp://127.0.0.1:%d", i)
}

// newBench starts nodes that are each other's peers.
func newBench(t testing.TB, scheme string, names ...string) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "wherry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{dir: dir, scheme: scheme, tokens: newTokens(t), nodes: map[string]*node.Node{}}
	b.peers = newPeers(t, b, names...)
	for _, m := range b.peers {
		b.start(t, m, nil)
	}
	return b
}

func newPeers(t testing.TB, b *bench, names ...string) (out []cluster.Member) {
	t.Helper()
	for i, port := range freePorts(t, len(names)) {
		out = append(out, cluster.Member{Name: names[i], Addrs: []string{b.addr(names[i], port)}})
	}
	return out
}

// start runs a node, changed by edit, until the test ends or stop is called.
func (b *bench) start(t testing.TB, m cluster.Member, edit func(*node.Config)) (stop func()) {
	t.Helper()
	cfg := node.Config{Name: m.Name, Listen: m.Addrs, Peers: b.peers, Tokens: b.tokens, Memory: 64 << 20, DataRoots: []string{b.dir},
		HTTP: "127.0.0.1:0", StopTime: time.Second}
	if edit != nil {
		edit(&cfg)
	}
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.nodes[m.Name] = n
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		err := <-done
		if errors.Is(err, node.ErrStillCloses) { // on a slow machine; Close waits for it
			err = n.Close()
		}
		if err != nil {
			t.Errorf("node %s: %v", m.Name, err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// connect makes a client with a token that knows the first node only.
func (b *bench) connect(t testing.TB, token string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	c, err := Connect(ctx, Config{Name: "client-" + token, Nodes: []cluster.Member{{Addrs: b.peers[0].Addrs}}, Tokens: b.tokens, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func overEach(t *testing.T, fn func(t *testing.T, scheme string)) {
	for _, s := range []string{"tcp", "shm"} {
		t.Run(s, func(t *testing.T) { fn(t, s) })
	}
}

// moment is what a test waits for what should take a moment.
const moment = time.Minute

// patient is a context for a function's whole run: before its first its code is compiled, which the race detector makes long.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*moment)
	t.Cleanup(cancel)
	return ctx
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for tries, end := 0, time.Now().Add(moment); !cond(); time.Sleep(2 * time.Millisecond) {
		if tries++; tries > 2000 && time.Now().After(end) { // a machine that stood still has not looked
			t.Fatal("not in time: " + what)
		}
	}
}

func TestConnectFindsAllNodes(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2", "n3")
		c := b.connect(t, tokenOwner)
		states := c.Nodes()
		if len(states) != 3 {
			t.Fatalf("%d nodes: %+v", len(states), states)
		}
		for _, s := range states {
			if s.Endpoint == nil {
				t.Errorf("%s: %v", s.Member.Name, s.Err)
			}
		}
		info, err := c.Info(t.Context(), "n2")
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != "n2" || info.Principal != tokenOwner || info.LimitBytes != 64<<20 || fabric.Incarnation(info.Incarnation) != b.nodes["n2"].Element().Incarnation() || len(info.Peers) != 2 {
			t.Errorf("%+v", info)
		}
		waitFor(t, "nodes are connected to each other", func() bool {
			for _, n := range b.nodes {
				for _, m := range b.peers {
					if m.Name != n.Name() && n.Peer(m.Name) == nil {
						return false
					}
				}
			}
			return true
		})
	})
}

// freePorts are ports that nobody listens at now.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	list, err := ports.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
