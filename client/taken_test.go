package client

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/node"
)

// reader sits between a client and a node, where it can read, and has bob come to the node before the client's HELLO does, under the
// client's incarnation.
type reader struct {
	t     *testing.T
	b     *bench
	of    *node.Node
	node  string // its address
	times int    // that it does so

	mu   sync.Mutex
	seen []fabric.Incarnation
}

// listen is where clients find the reader.
func (r *reader) listen() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	var work sync.WaitGroup
	r.t.Cleanup(func() { l.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { defer c.Close(); r.pass(c) })
		}
	})
	return "tcp://" + l.Addr().String()
}

// pass has a connection go on to the node, once its first message was read.
func (r *reader) pass(c net.Conn) {
	first := make([]byte, 4)
	if _, err := io.ReadFull(c, first); err != nil {
		return
	}
	first = append(first, make([]byte, binary.LittleEndian.Uint32(first))...)
	if _, err := io.ReadFull(c, first[4:]); err != nil {
		return
	}
	inc := fabric.Incarnation(binary.LittleEndian.Uint64(first[4+17:])) // docs/wire.md
	r.mu.Lock()
	r.seen = append(r.seen, inc)
	steal := len(r.seen) <= r.times
	r.mu.Unlock()
	if steal {
		r.steal(inc)
	}
	to, err := net.Dial("tcp", strings.TrimPrefix(r.node, "tcp://"))
	if err != nil {
		r.t.Error(err)
		return
	}
	defer to.Close()
	to.Write(first)
	go func() { io.Copy(to, c); to.Close() }()
	io.Copy(c, to)
}

func (r *reader) steal(inc fabric.Incarnation) {
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		r.t.Error(err)
		return
	}
	auth, err := control.NewAuth(r.b.tokens, tokenOther)
	if err != nil {
		r.t.Error(err)
		return
	}
	el, err := fabric.New(fabric.Config{Name: "bob", Transports: []fabric.Transport{tr}, Auth: auth, Incarnation: inc})
	if err != nil {
		r.t.Error(err)
		return
	}
	r.t.Cleanup(func() { el.Close() })
	if _, err := el.Dial(r.t.Context(), r.node); err != nil {
		r.t.Errorf("bob comes as %v: %v", inc, err)
		return
	}
	for end := time.Now().Add(moment); len(r.of.Element().EndpointsTo(inc)) == 0; time.Sleep(time.Millisecond) { // who is welcome is not there yet
		if time.Now().After(end) {
			r.t.Error("bob is not there")
			return
		}
	}
}

// TestTakenIncarnation: a client whose incarnation somebody else has shown to a node before it starts anew, and comes in; not without end.
func TestTakenIncarnation(t *testing.T) {
	for name, c := range map[string]struct {
		times, seen int
	}{"once": {1, 2}, "always": {1 << 20, lives}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "tcp", "n1")
			r := &reader{t: t, b: b, of: b.nodes[b.peers[0].Name], node: b.peers[0].Addrs[0], times: c.times}
			var said logText
			client, err := Connect(t.Context(), Config{Name: "client", Nodes: []cluster.Member{{Addrs: []string{r.listen()}}}, Tokens: b.tokens, Token: tokenOwner,
				Only: true, Log: slog.New(slog.NewTextHandler(&said, nil))})
			if err == nil {
				t.Cleanup(func() { client.Close() })
			}
			r.mu.Lock()
			seen := r.seen
			r.mu.Unlock()
			if len(seen) != c.seen || seen[0] == seen[1] {
				t.Fatalf("it came under %v", seen)
			}
			if n := strings.Count(said.String(), "new incarnation"); n != c.seen-1 {
				t.Errorf("the log says %d times that it starts anew: %s", n, said.String())
			}
			if name == "always" {
				if !errors.Is(err, fabric.ErrTaken) || !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), "another principal's") {
					t.Errorf("it ends with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if client.Element().Incarnation() != seen[1] {
				t.Errorf("it is %v", client.Element().Incarnation())
			}
			waitFor(t, "it is connected", func() bool { return len(client.Element().Endpoints()) > 0 })
			if _, err := client.Info(t.Context(), "n1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTakenElsewhere: so does one that is refused by a node of which it only hears; the last start makes do with the others.
func TestTakenElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		times int
		all   bool // nodes are connected in the end
	}{"once": {1, true}, "always": {1 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "tcp", "n2")
			r := &reader{t: t, b: b, of: b.nodes[b.peers[0].Name], node: b.peers[0].Addrs[0]}
			b.peers = []cluster.Member{newPeers(t, b, "n1")[0], {Name: "n2", Addrs: []string{r.listen()}}}
			b.start(t, b.peers[0], nil)
			waitFor(t, "the nodes are connected", func() bool { return b.nodes["n1"].Peer("n2") != nil })
			r.mu.Lock()
			r.seen, r.times = nil, c.times
			r.mu.Unlock()
			client := b.connect(t, tokenOwner)
			r.mu.Lock()
			seen := len(r.seen)
			r.mu.Unlock()
			if want := min(c.times+1, lives); seen < want {
				t.Errorf("it came to the second node %d times, want %d", seen, want)
			}
			for _, s := range client.Nodes() {
				if (s.Endpoint != nil) != (c.all || s.Member.Name == "n1") {
					t.Errorf("%s: %v", s.Member.Name, s.Err)
				}
			}
		})
	}
}
