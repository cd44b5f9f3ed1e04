package tcp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestOutBytesInAll: what all links together keep for peers that do not read has a bound, which leaves each room for
// a frame, and is counted to the byte.
func TestOutBytesInAll(t *testing.T) {
	t.Run("plain", func(t *testing.T) { outBytesInAll(t, func(string) Credentials { return nil }) })
	a := newAuthority(t, "ca")
	t.Run("TLS", func(t *testing.T) { outBytesInAll(t, func(name string) Credentials { return a.holder(t, name) }) })
}

func outBytesInAll(t *testing.T, cred func(name string) Credentials) {
	const (
		peers  = 12
		one    = 512 << 10 // and as much reserved
		all    = 1 << 20
		answer = 16 << 10
	)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, tr, addr := serverOf(t, Config{TLS: cred("server"), OutBytes: one, OutBytesInAll: all})
	var clients []*fabric.Element
	got := 0
	for i := range peers {
		c, _ := element(t, fmt.Sprint(i), cred("client"), func(c *fabric.Config) { c.Manual = true })
		c.Handle(fabric.FirstReservedID, func(fabric.Message) { got++ })
		if _, err := c.Dial(ctx, addr); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for ; !ok(); time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("%s; %d bytes wait", what, tr.waiting.Load())
			}
		}
	}
	until("not all are connected", func() bool { return len(server.Endpoints()) == peers })
	sent := map[string]int{}
	for _, ep := range server.Endpoints() {
		for ; ep.Stats().Reserved == 0; sent[ep.Name()]++ {
			if err := ep.Post(fabric.FirstReservedID, nil, make([]byte, answer)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := tr.waiting.Load(); n <= all || n > all+peers*2*fabric.MaxFrameBytes || n != kept(tr) {
		t.Errorf("%d bytes are counted, %d kept; in all %d may be, and a frame for each", n, kept(tr), all)
	}
	for _, c := range clients[peers/2:] {
		c.Close() // it has read nothing
	}
	until("the links that ended are counted", func() bool { return len(server.Endpoints()) == peers/2 })
	if n := tr.waiting.Load(); n > kept(tr) {
		t.Errorf("%d bytes are counted, %d kept", n, kept(tr))
	}
	want := 0
	for _, c := range clients[:peers/2] {
		want += sent[c.Name()]
	}
	until(fmt.Sprintf("%d answers are missing", want), func() bool {
		for n := 1; n > 0; {
			n = 0
			for _, c := range clients[:peers/2] {
				n += c.Progress()
			}
		}
		return got == want
	})
	until("it is counted though all has gone", func() bool { return tr.waiting.Load() == 0 })
	if n := len(server.Endpoints()); n != peers/2 {
		t.Errorf("it was counted until the links ended: %d are left", n)
	}
}

// serverOf is an element that listens over a transport of its own.
func serverOf(t *testing.T, cfg Config) (*fabric.Element, *Transport, string) {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fabric.New(fabric.Config{Name: "server", Transports: []fabric.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	addr, err := server.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return server, tr, addr
}

// kept is what a transport's links keep.
func kept(tr *Transport) (n int64) {
	tr.mu.Lock()
	var links []*link
	for _, l := range tr.links {
		links = append(links, l)
	}
	tr.mu.Unlock()
	for _, l := range links {
		l.txMu.Lock()
		if n += int64(len(l.out) - l.outAt); l.sec != nil {
			n += int64(l.sec.wire.waiting())
		}
		l.txMu.Unlock()
	}
	return n
}

func TestOutBytesValidated(t *testing.T) {
	if _, err := New(Config{OutBytes: 1 << 20, OutBytesInAll: 1<<20 - 1}); err == nil || !strings.Contains(err.Error(), "OutBytesInAll 1048575: at least") {
		t.Errorf("less in all than for one: %v", err)
	}
	tr, err := New(Config{OutBytes: 1 << 30})
	if err != nil || tr.cfg.OutBytesInAll != 1<<30 {
		t.Fatalf("more for one than there is in all: %v", err)
	}
	tr.Close()
}

// TestOutBytesCounted: what a socket takes only part of is counted from then on, sent at once or held back before.
func TestOutBytesCounted(t *testing.T) {
	for _, held := range []bool{false, true} {
		var w writable
		tr, l, peer := pipe(t, Config{}, &w)
		for len(l.out) == l.outAt {
			l.Hold(held)
			for range 2 { // together less than is ever held back
				if err := l.Send(100, fabric.Normal, nil, make([]byte, 7<<10)); err != nil {
					t.Fatal(err)
				}
				if held && tr.waiting.Load() != 0 {
					t.Fatal("what is only held back is counted")
				}
				if !held && len(l.out) > l.outAt {
					break
				}
			}
			l.Hold(false)
		}
		if n := tr.waiting.Load(); n == 0 || n != kept(tr) {
			t.Errorf("held %v: %d bytes are counted, %d kept", held, n, kept(tr))
		}
		l.Close()
		if n := tr.waiting.Load(); n != 0 {
			t.Errorf("held %v: %d bytes are counted of a link that is closed", held, n)
		}
		unix.Close(peer)
	}
}
