package fabrictest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// This file speaks HELLO by hand, as docs/wire.md lays it out.

const (
	kindDial = 1 + iota
	kindAccept
	kindProof
	kindWelcome
	kindRefuse
	kindTaken
	kindOther
	kindInsist
)

// featureOne is the bit of a HELLO whose sender knows kindOther.
const featureOne = 1

// rawHello is a first message with every field open to abuse.
type rawHello struct {
	magic       uint32
	kind        byte
	min, max    uint16
	features    uint64
	incarnation uint64
	window, ops uint32
	name, token string
	addrs       []string
	tail        []byte
}

func goodHello(kind byte) rawHello {
	return rawHello{magic: 0x59524857, kind: kind, min: 1, max: 1, incarnation: 77, window: 1 << 20, ops: 16, name: "raw"}
}

func (h rawHello) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, h.magic)
	b = append(b, h.kind)
	b = binary.LittleEndian.AppendUint16(b, h.min)
	b = binary.LittleEndian.AppendUint16(b, h.max)
	b = binary.LittleEndian.AppendUint64(b, h.features)
	b = binary.LittleEndian.AppendUint64(b, h.incarnation)
	b = binary.LittleEndian.AppendUint32(b, h.window)
	b = binary.LittleEndian.AppendUint32(b, h.ops)
	b = append(b, make([]byte, 32)...) // nonce
	for _, s := range []string{h.name, h.token} {
		b = append(append(b, byte(len(s))), s...)
	}
	b = append(b, byte(len(h.addrs)))
	for _, s := range h.addrs {
		b = append(append(b, byte(len(s))), s...)
	}
	return append(b, h.tail...)
}

func framed(body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func readFramed(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, min(binary.LittleEndian.Uint32(n[:]), 1<<16))
	_, err := io.ReadFull(r, b)
	return b, err
}

func prove(secret, role string, dial, accept []byte) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("wherry hello 1 " + role + "\x00"))
	for _, p := range [][]byte{dial, accept} {
		sum := sha256.Sum256(p)
		m.Write(sum[:])
	}
	return m.Sum(nil)
}

// tokens is an Auth with one token of its own.
type tokens struct {
	name, secret string
	anonymous    bool
}

func (a tokens) Self() (string, []byte) { return a.name, []byte(a.secret) }

func (a tokens) Lookup(name string) ([]byte, fabric.Principal, bool) {
	return []byte(a.secret), fabric.Principal{Name: "holder of " + name, Caps: 5}, name == a.name && name != ""
}

func (a tokens) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "stranger", Caps: 1}, a.anonymous
}

func auth(a fabric.Auth) func(*fabric.Config) { return func(c *fabric.Config) { c.Auth = a } }

func helloTime(d time.Duration) func(*fabric.Config) {
	return func(c *fabric.Config) { c.Limits.HelloTime = d }
}

func helloChecks() []check {
	return []check{
		{"acceptor judges", helloAcceptorJudges},
		{"wrong proof", helloWrongProof},
		{"garbage after it", helloGarbageAfter},
		{"silent dialler", helloSilentDialler},
		{"slow dialler", helloSlowDialler},
		{"dialler judges", helloDiallerJudges},
		{"silent acceptor", helloSilentAcceptor},
		{"tokens", helloTokens},
		{"limit of endpoints", helloLimit},
		{"limit of a principal's endpoints", helloLimitPrincipal},
		{"no such address", helloNoAddress},
		{"incarnations differ", helloIncarnations},
		{"endpoint to oneself", helloOneself},
		{"one connection of two", helloOneOfTwo},
		{"one connection of several dials", helloOneOfSeveral},
		{"a lost connection is named", helloLostIsNamed},
		{"connect, call, drop", helloAgainAndAgain},
	}
}

// rawDial opens a connection below the element, past HELLO's code.
func (r *rig) rawDial(n *node) fabric.Pending {
	r.Helper()
	tr, _ := r.transport()
	_, rest, err := fabric.SplitAddr(n.addr)
	r.Must(err)
	p, err := tr.Dial(r.Ctx, rest)
	r.Must(err)
	r.AtEnd(func() { p.Close() })
	p.SetDeadline(time.Now().Add(patience / 2))
	return p
}

func helloAcceptorJudges(r *rig) {
	long := strings.Repeat("n", 129)
	for _, c := range []struct {
		name   string
		change func(*rawHello)
		answer string // in the refusal; "" if it is accepted
	}{
		{"good", func(h *rawHello) {}, ""},
		{"later versions too", func(h *rawHello) { h.max = 9 }, ""},
		{"unknown fields after ours", func(h *rawHello) { h.tail = []byte("later") }, ""},
		{"later versions only", func(h *rawHello) { h.min, h.max = 2, 3 }, "versions 2 to 3"},
		{"no version", func(h *rawHello) { h.min, h.max = 0, 0 }, "versions 0 to 0"},
		{"wrong magic", func(h *rawHello) { h.magic = 0x20544547 }, "not a wherry HELLO"},
		{"wrong kind", func(h *rawHello) { h.kind = kindAccept }, "not a wherry HELLO"},
		{"no incarnation", func(h *rawHello) { h.incarnation = 0 }, "not a wherry HELLO"},
		{"name too long", func(h *rawHello) { h.name = long }, "129 bytes"},
		{"token name too long", func(h *rawHello) { h.token = long }, "129 bytes"},
		{"too many addresses", func(h *rawHello) { h.addrs = make([]string, 9) }, "not a wherry HELLO"},
		{"window too small", func(h *rawHello) { h.window = 100 }, "window"},
	} {
		n := r.node(helloTime(patience)) // a busy machine may take long over TLS
		p := r.rawDial(n)
		h := goodHello(kindDial)
		c.change(&h)
		p.Write(framed(h.encode()))
		answer, err := readFramed(p)
		r.Must(err)
		if c.answer != "" {
			if answer[0] != kindRefuse || !strings.Contains(string(answer), c.answer) {
				r.Errorf("%s: answer %q, want a refusal with %q", c.name, answer, c.answer)
			}
			continue
		}
		p.Write(framed([]byte{kindProof}))
		if answer, err = readFramed(p); err != nil || answer[0] != kindWelcome {
			r.Errorf("%s: answer %q, %v", c.name, answer, err)
		}
	}
	for _, first := range [][]byte{{0, 0, 0, 0}, {1, 16, 0, 0}, []byte("GET / HTTP/1.1\r\n\r\n"), {200, 0, 0, 0, 1, 2, 3}} {
		n := r.node(helloTime(100 * time.Millisecond))
		p := r.rawDial(n)
		p.Write(first)
		if b, err := io.ReadAll(p); len(b) > 0 {
			r.Errorf("after % x: %q, %v; want it closed without a word", first, b, err)
		}
		if len(n.Endpoints()) != 0 {
			r.Errorf("after % x there is an endpoint", first)
		}
	}
}

func helloWrongProof(r *rig) {
	n := r.node(auth(tokens{name: "harbour", secret: "deep"}))
	for _, secret := range []string{"deep", "shallow"} {
		p := r.rawDial(n)
		h := goodHello(kindDial)
		h.token = "harbour"
		dial := h.encode()
		p.Write(framed(dial))
		accept, err := readFramed(p)
		r.Must(err)
		body := accept[:len(accept)-sha256.Size]
		if !hmac.Equal(accept[len(body):], prove("deep", "accept", dial, body)) {
			r.Fatal("the acceptor's proof is not the documented one")
		}
		p.Write(framed(append([]byte{kindProof}, prove(secret, "dial", dial, body)...)))
		answer, err := readFramed(p)
		r.Must(err)
		if want := map[string]byte{"deep": kindWelcome, "shallow": kindRefuse}[secret]; answer[0] != want {
			r.Errorf("secret %q: answer %q", secret, answer)
		}
	}
}

func helloGarbageAfter(r *rig) {
	n := r.node()
	for _, garbage := range [][]byte{suite.Pattern(300, 1), make([]byte, 64), []byte(strings.Repeat("\xff", 5000))} {
		p := r.rawDial(n)
		p.Write(framed(goodHello(kindDial).encode()))
		if _, err := readFramed(p); err != nil {
			r.Fatal(err)
		}
		p.Write(append(framed([]byte{kindProof}), garbage...))
		p.Write(garbage)
		time.Sleep(time.Millisecond)
		p.Close()
	}
	r.Eventually("garbage leaves no endpoint", func() bool { return len(n.Endpoints()) == 0 })
	r.echo(r.node(), n) // and does no harm
}

func helloSilentDialler(r *rig) {
	n := r.node(helloTime(100 * time.Millisecond))
	p := r.rawDial(n)
	start := time.Now()
	if b, _ := io.ReadAll(p); len(b) > 0 {
		r.Errorf("a silent peer was told %q", b)
	}
	if d := time.Since(start); d > patience/3 { // it would be closed here after patience/2
		r.Errorf("a silent peer was kept for %v", d)
	}
}

func helloSlowDialler(r *rig) {
	n := r.node(helloTime(200 * time.Millisecond))
	p := r.rawDial(n)
	closed := make(chan struct{})
	go func() {
		io.ReadAll(p)
		close(closed)
	}()
	msg := framed(goodHello(kindDial).encode())
	for i := 0; ; i++ { // a byte at a time does not push the deadline on
		select {
		case <-closed:
			return
		case <-time.After(20 * time.Millisecond):
			p.Write(msg[i%len(msg) : i%len(msg)+1])
		}
		if i > 500 {
			r.Fatal("a peer that never finishes HELLO is kept")
		}
	}
}

// acceptor listens below an element and answers each connection by hand.
func (r *rig) acceptor(answer func(fabric.Pending)) (addr string) {
	r.Helper()
	var busy sync.WaitGroup
	r.AtEnd(busy.Wait) // after the transport is closed: nobody is added then
	tr, listen := r.transport()
	scheme, rest, err := fabric.SplitAddr(listen)
	r.Must(err)
	bound, err := tr.Listen(rest, func(p fabric.Pending) {
		busy.Add(1)
		defer busy.Done()
		defer p.Close()
		p.SetDeadline(time.Now().Add(patience / 2))
		answer(p)
	})
	r.Must(err)
	return scheme + "://" + bound
}

func helloDiallerJudges(r *rig) {
	plain, holder := tokens{}, tokens{name: "harbour", secret: "deep"}
	for _, c := range []struct {
		name   string
		auth   tokens
		answer func(dial []byte) []byte
		is     error
		says   string
	}{
		{"refusal", plain, func([]byte) []byte { return []byte("\x05no\x1b[2Jway") }, fabric.ErrRefused, "no?[2Jway"},
		{"garbage", plain, func([]byte) []byte { return suite.Pattern(200, 3) }, nil, "not a wherry HELLO"},
		{"nothing", plain, func([]byte) []byte { return []byte{} }, nil, "not a wherry HELLO"},
		{"a dialler's HELLO", plain, func([]byte) []byte { return goodHello(kindDial).encode() }, nil, "not a wherry HELLO"},
		{"later versions", plain, func([]byte) []byte {
			h := goodHello(kindAccept)
			h.min, h.max = 4, 5
			return h.encode()
		}, nil, "versions 4 to 5"},
		{"no proof", holder, func([]byte) []byte { return goodHello(kindAccept).encode() }, fabric.ErrRefused, "does not prove"},
		{"wrong proof", holder, func(dial []byte) []byte {
			body := goodHello(kindAccept).encode()
			return append(body, prove("shallow", "accept", dial, body)...)
		}, fabric.ErrRefused, "does not prove"},
		{"our own proof", holder, func(dial []byte) []byte {
			body := goodHello(kindAccept).encode()
			return append(body, prove("deep", "dial", dial, body)...)
		}, fabric.ErrRefused, "does not prove"},
	} {
		addr := r.acceptor(func(p fabric.Pending) {
			if dial, err := readFramed(p); err == nil {
				p.Write(framed(c.answer(dial)))
				readFramed(p) // until the dialler has read it and leaves
			}
		})
		ep, err := r.node(auth(c.auth)).Dial(r.Ctx, addr)
		if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			r.Errorf("%s: %v, %v; want an error with %q (%v)", c.name, ep, err, c.says, c.is)
		}
	}
}

func helloSilentAcceptor(r *rig) {
	addr := r.acceptor(func(p fabric.Pending) { io.ReadAll(p) })
	start := time.Now()
	if _, err := r.node(helloTime(100*time.Millisecond)).Dial(context.Background(), addr); err == nil {
		r.Error("a silent peer was dialled")
	}
	ctx, cancel := context.WithTimeout(r.Ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := r.node(helloTime(patience)).Dial(ctx, addr); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("Dial past its deadline: %v", err)
	}
	if d := time.Since(start); d > patience/3 {
		r.Errorf("giving up took %v", d)
	}
}

func helloTokens(r *rig) {
	deep, shallow := tokens{name: "harbour", secret: "deep"}, tokens{name: "harbour", secret: "shallow"}
	other := tokens{name: "marina", secret: "deep"}
	open := tokens{name: "harbour", secret: "deep", anonymous: true}
	for _, c := range []struct {
		name         string
		dial, accept fabric.Auth
		dialled, who string // principals, "" if refused
		says         string
	}{
		{"nobody asks", nil, nil, "anonymous", "anonymous", ""},
		{"same token", deep, deep, "holder of harbour", "holder of harbour", ""},
		{"a stranger let in", nil, open, "anonymous", "stranger", ""},
		{"a stranger", nil, deep, "", "", "wants a token"},
		{"another secret", shallow, deep, "", "", "does not prove"},
		{"another token", other, deep, "", "", "not known here"},
		{"peer without tokens", deep, nil, "", "", "takes no tokens"},
	} {
		accepted := make(chan *fabric.Endpoint, 1)
		b := r.node(auth(c.accept), func(cfg *fabric.Config) { cfg.OnPeer = func(ep *fabric.Endpoint) { accepted <- ep } })
		a := r.node(auth(c.dial))
		ep, err := a.Dial(r.Ctx, b.addr)
		if c.dialled == "" {
			if !errors.Is(err, fabric.ErrRefused) && !strings.Contains(err.Error(), c.says) {
				r.Errorf("%s: %v; want a refusal", c.name, err)
			}
			if n := len(b.Endpoints()) + len(a.Endpoints()); n != 0 {
				r.Errorf("%s: %d endpoints", c.name, n)
			}
			continue
		}
		r.Must(err)
		if got := ep.Principal().Name; got != c.dialled {
			r.Errorf("%s: dialled %q, want %q", c.name, got, c.dialled)
		}
		if back := <-accepted; back.Principal().Name != c.who || back.Name() != a.Name() || back.Incarnation() != a.Incarnation() {
			r.Errorf("%s: accepted %v, principal %q, want %q", c.name, back, back.Principal().Name, c.who)
		}
	}
}

func helloLimit(r *rig) {
	n := r.node(func(c *fabric.Config) { c.Limits.Endpoints = 2 })
	for range 2 {
		r.connect(r.node(), n)
	}
	if _, err := r.node().Dial(r.Ctx, n.addr); !errors.Is(err, fabric.ErrRefused) {
		r.Errorf("a third endpoint: %v", err)
	}
	n.Endpoints()[0].Close()
	r.connect(r.node(), n)
}

func helloNoAddress(r *rig) {
	n := r.node()
	scheme, _, _ := fabric.SplitAddr(n.addr)
	for _, addr := range []string{"nowhere://x", "nothing", "", scheme + "://"} {
		if _, err := n.Dial(r.Ctx, addr); err == nil {
			r.Errorf("dialled %q", addr)
		}
	}
	gone := r.node()
	gone.Close()
	if _, err := n.Dial(r.Ctx, gone.addr); err == nil {
		r.Error("dialled an element that is closed")
	}
}

func helloIncarnations(r *rig) {
	seen := map[fabric.Incarnation]bool{}
	for range 8 {
		n := r.node()
		if n.Incarnation() == 0 || seen[n.Incarnation()] {
			r.Errorf("incarnation %v", n.Incarnation())
		}
		seen[n.Incarnation()] = true
	}
}

func helloOneself(r *rig) {
	n := r.node()
	ep, back := r.connect(n, n)
	if ep.Incarnation() != n.Incarnation() || back.Incarnation() != n.Incarnation() {
		r.Fatal("not to oneself")
	}
	r.echo(n, n)
	seg, err := n.NewSegment(1<<20, fabric.Writable)
	r.Must(err)
	k, err := seg.KeyRange(64, 1<<19, fabric.RightsAll)
	r.Must(err)
	rem, err := ep.Import(r.Ctx, k)
	r.Must(err)
	want, got := suite.Pattern(1<<18, 1), make([]byte, 1<<18)
	r.Must(rem.Put(r.Ctx, want, 3))
	r.Must(rem.Get(r.Ctx, got, 3))
	if string(got) != string(want) {
		r.Error("bytes differ")
	}
}

// helloOneOfTwo has two elements dial each other at once: both get the same connection, and there is no other.
func helloOneOfTwo(r *rig) {
	for range 20 {
		var up [2]atomic.Int32
		count := func(i int) func(*fabric.Config) {
			return func(c *fabric.Config) { c.OnPeer = func(*fabric.Endpoint) { up[i].Add(1) } }
		}
		nodes := [2]*node{r.node(count(0)), r.node(count(1))}
		for range 2 { // and once more when that has ended
			var both sync.WaitGroup
			var got [2][2]*fabric.Endpoint
			for i, n := range nodes {
				for k := range got[i] {
					both.Go(func() {
						var err error
						if got[i][k], err = n.Dial(r.Ctx, nodes[1-i].addr); err != nil {
							r.Errorf("dial: %v", err)
						}
					})
				}
			}
			both.Wait()
			for i, n := range nodes {
				eps := n.Endpoints()
				if len(eps) != 1 || got[i][0] != eps[0] || got[i][1] != eps[0] {
					r.Fatalf("endpoints %v; the dials got %v", eps, got[i])
				}
			}
			r.Must(got[0][0].Flush(r.Ctx))
			r.Must(got[1][0].Flush(r.Ctx))
			got[0][0].Close()
			r.Eventually("the end", func() bool { return len(nodes[0].Endpoints())+len(nodes[1].Endpoints()) == 0 })
		}
		if a, b := up[0].Load(), up[1].Load(); a != 2 || b != 2 {
			r.Fatalf("layers heard of %d and %d endpoints, of 2 connections", a, b)
		}
	}
}

// helloOneOfSeveral has an element dial a peer that is connected already, whoever dialled before.
func helloOneOfSeveral(r *rig) {
	a, b, ab, ba := r.pair()
	for _, c := range []struct {
		by, of *node
		want   *fabric.Endpoint
	}{{a, b, ab}, {b, a, ba}, {a, b, ab}} {
		if ep, err := c.by.Dial(r.Ctx, c.of.addr); err != nil || ep != c.want {
			r.Errorf("another dial got %v, %v; there is %v", ep, err, c.want)
		}
	}
	if len(a.Endpoints()) != 1 || len(b.Endpoints()) != 1 {
		r.Errorf("%v, %v", a.Endpoints(), b.Endpoints())
	}
	r.echo(a, b)
}

// helloLostIsNamed has a peer dial again who has lost a connection that the element still has: it hears which that is, and gets a new one if
// it insists. A peer that does not know the question gets one unasked.
func helloLostIsNamed(r *rig) {
	n, a := r.node(), r.node(func(c *fabric.Config) { c.Incarnation = 77 })
	_, back := r.connect(a, n)
	greet := func(features uint64) (p fabric.Pending, answer []byte) {
		r.Helper()
		h := goodHello(kindDial) // of 77, too
		h.features = features
		p = r.rawDial(n)
		p.Write(framed(h.encode()))
		_, err := readFramed(p)
		r.Must(err)
		return p, r.say(p, kindProof)
	}
	p, answer := greet(0)
	if len(answer) != 1 || answer[0] != kindWelcome {
		r.Errorf("a peer that does not know the question: %x", answer)
	}
	p.Close()
	r.Eventually("it has gone", func() bool { return len(n.Endpoints()) == 1 })
	var names [2][]byte
	for i := range names {
		p, answer := greet(featureOne)
		if len(answer) != 1+16 || answer[0] != kindOther {
			r.Fatalf("beside a connection: %x", answer)
		}
		names[i] = answer
		p.Close() // it uses that
	}
	if string(names[0]) != string(names[1]) || string(names[0][1:]) == string(make([]byte, 16)) {
		r.Errorf("one connection has the names %x", names)
	}
	p, _ = greet(featureOne)
	if answer := r.say(p, kindInsist); len(answer) != 1 || answer[0] != kindWelcome {
		r.Errorf("to who insists: %x", answer)
	}
	if back.Err() != nil {
		r.Errorf("who insists has ended the connection that there was: %v", back.Err())
	}
}

// say sends a message of HELLO and returns the answer.
func (r *rig) say(p fabric.Pending, kind byte) []byte {
	r.Helper()
	p.Write(framed([]byte{kind}))
	answer, err := readFramed(p)
	r.Must(err)
	return answer
}

func helloAgainAndAgain(r *rig) {
	b := r.node()
	serveEcho(b)
	for i := range 32 {
		a := r.node()
		r.echo(a, b)
		if i%2 == 0 {
			a.Endpoints()[0].Close()
		}
		r.Must(a.Close())
	}
	r.Eventually("the peers are forgotten", func() bool { return len(b.Endpoints()) == 0 })
}
