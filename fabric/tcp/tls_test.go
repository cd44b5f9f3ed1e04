package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// logged keeps what an element's log says of refused peers.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// element makes one over a transport with these credentials (nil: plain).
func element(t testing.TB, name string, cred Credentials, change ...func(*fabric.Config)) (*fabric.Element, *Transport) {
	t.Helper()
	tr, err := New(Config{TLS: cred})
	if err != nil {
		t.Fatal(err)
	}
	cfg := fabric.Config{Name: name, Transports: []fabric.Transport{tr}}
	cfg.Limits.HelloTime = 10 * time.Second
	for _, c := range change {
		c(&cfg)
	}
	e, err := fabric.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, tr
}

// TestWhoMayConnect: each pair of credentials, and what both sides make of it.
func TestWhoMayConnect(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	at := func(from, to time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to) }
	}
	expired, early := at(-time.Hour, -time.Minute), at(30*time.Minute, time.Hour)
	elsewhere := func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(192, 0, 2, 1)}, []string{"other.example"}
	}
	clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }
	serverOnly := func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }
	good := func() Credentials { return ours.holder(t, "n") }
	revoking := func(serial int64) Credentials {
		h := ours.holder(t, "n")
		h.revoked.Store(serial)
		return h
	}
	stolen := ours.holder(t, "thief")
	stolen.own.PrivateKey = theirs.key // the certificate without its key
	lost := ours.holder(t, "lost")
	for _, c := range []struct {
		name             string
		acceptor, dialer Credentials
		dialled          string // in the dialler's error; "" if it connects
	}{
		{"both good", good(), good(), ""},
		{"client's authority is another", good(), &holder{own: theirs.issue(t, "c"), roots: ours.holder(t, "").roots}, "not from an authority"},
		{"node's authority is another", theirs.holder(t, "n"), ours.holder(t, "c"), "unknown authority"},
		{"client's certificate expired", good(), ours.holder(t, "c", expired), "expired"},
		{"node's certificate expired", ours.holder(t, "n", expired), good(), "expired"},
		{"client's certificate not valid yet", good(), ours.holder(t, "c", early), "ends TLS"},
		{"node's certificate not valid yet", ours.holder(t, "n", early), good(), "not yet valid"},
		{"client's certificate revoked", revoking(lost.own.Leaf.SerialNumber.Int64()), lost, "revoked"},
		{"node's certificate for another host", ours.holder(t, "n", elsewhere), good(), "192.0.2.1"},
		{"client passes for a node", ours.holder(t, "c", clientOnly), good(), "incompatible key usage"},
		{"node's certificate only for accepting", good(), ours.holder(t, "n", serverOnly), "refuses this element's certificate"},
		{"certificate without its key", good(), stolen, "key is not"},
		{"plain client", good(), nil, "give it a certificate"},
		{"plain node", nil, good(), "is TLS off there?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			acceptor, _ := element(t, "acceptor", c.acceptor)
			dialler, _ := element(t, "dialler", c.dialer)
			addr, err := acceptor.Listen("tcp://127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			start := time.Now()
			ep, err := dialler.Dial(ctx, addr)
			if c.dialled == "" {
				if err != nil || ep.Flush(ctx) != nil {
					t.Fatalf("not connected: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.dialled) {
				t.Errorf("dial: %v, want %q in it", err, c.dialled)
			}
			if d := time.Since(start); d > 8*time.Second {
				t.Errorf("it took %v to find out", d)
			}
			if n := len(acceptor.Endpoints()); n != 0 {
				t.Errorf("the acceptor has %d endpoints", n)
			}
		})
	}
}

// TestForeignTLS: TLS clients that are no wherry of today.
func TestForeignTLS(t *testing.T) {
	a := newAuthority(t, "ca")
	own := a.issue(t, "c")
	good := func() *tls.Config {
		return &tls.Config{RootCAs: a.holder(t, "").roots, ServerName: "localhost", Certificates: []tls.Certificate{own}, NextProtos: []string{protocol}}
	}
	for name, c := range map[string]struct {
		change func(*tls.Config)
		logged string
	}{
		"TLS 1.2":        {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, "unsupported versions"},
		"no certificate": {func(c *tls.Config) { c.Certificates = nil }, "didn't provide a certificate"},
		"no protocol":    {func(c *tls.Config) { c.NextProtos = nil }, "does not ask for the protocol"},
		"http":           {func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, "unsupported application protocols"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logged{}
			acceptor, _ := element(t, "acceptor", a.holder(t, "n"), logTo(log))
			addr, err := acceptor.Listen("tcp://127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cfg := good()
			c.change(cfg)
			conn, err := tls.Dial("tcp", strings.TrimPrefix(addr, "tcp://"), cfg)
			if err == nil {
				conn.SetDeadline(time.Now().Add(8 * time.Second))
				conn.Write([]byte("\x01\x00\x00\x00x"))
				_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the client is done before the server has judged it
				conn.Close()
			}
			var timeout net.Error
			if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("the acceptor did not end it: %v", err)
			}
			for end := time.Now().Add(patience); !strings.Contains(log.String(), c.logged); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the acceptor's log has no %q:\n%s", c.logged, log.String())
				}
			}
			if n := len(acceptor.Endpoints()); n != 0 {
				t.Errorf("%d endpoints", n)
			}
		})
	}
}

// TestCertifiedPrincipal: who the certificate names is who the peer is, on both
// sides, and a token of somebody else does not change it.
func TestCertifiedPrincipal(t *testing.T) {
	a := newAuthority(t, "ca")
	node, ann, eve := a.holder(t, "node"), a.holder(t, "ann"), a.holder(t, "eve")
	nameless := a.holder(t, "nobody")
	for _, h := range []*holder{node, ann, eve} {
		h.principals = true
	}
	acceptor, _ := element(t, "acceptor", node, auth(tokenOf{"ann", "secret"}))
	addr, err := acceptor.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	principal := func(e *fabric.Element) (string, uint32) {
		for {
			for _, ep := range acceptor.Endpoints() {
				if ep.Incarnation() == e.Incarnation() {
					return ep.Principal().Name, ep.Principal().Caps
				}
			}
			if ctx.Err() != nil {
				t.Fatal("no endpoint at the acceptor")
			}
			time.Sleep(time.Millisecond)
		}
	}
	e, _ := element(t, "e", eve, auth(tokenOf{"ann", "secret"})) // its certificate is enough: no token is shown
	ep, err := e.Dial(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	if who, caps := principal(e); who != "eve" || caps != 9 || ep.Principal().Name != "node" {
		t.Errorf("the acceptor sees %q (%d), the dialler %q", who, caps, ep.Principal().Name)
	}
	thief, _ := element(t, "thief", showToken{eve}, auth(tokenOf{"ann", "secret"}))
	if _, err := thief.Dial(ctx, addr); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), `the certificate is "eve"'s and the token "ann"'s`) {
		t.Errorf("eve's certificate with ann's token: %v", err)
	}
	both, _ := element(t, "both", showToken{ann}, auth(tokenOf{"ann", "secret"}))
	if _, err := both.Dial(ctx, addr); err != nil {
		t.Errorf("ann's certificate with ann's token: %v", err)
	} else if who, caps := principal(both); who != "ann" || caps != 9 {
		t.Errorf("both of ann: %q (%d)", who, caps)
	}
	wrong, _ := element(t, "wrong", showToken{ann}, auth(tokenOf{"ann", "guess"}))
	if _, err := wrong.Dial(ctx, addr); !errors.Is(err, fabric.ErrRefused) {
		t.Errorf("ann's certificate with a wrong secret: %v", err)
	}
	token, _ := element(t, "token", nameless, auth(tokenOf{"ann", "secret"}))
	if _, err := token.Dial(ctx, addr); err != nil {
		t.Errorf("a certificate that names nobody, and ann's token: %v", err)
	} else if who, caps := principal(token); who != "ann" || caps != 1 {
		t.Errorf("by token: %q (%d)", who, caps)
	}
	none, _ := element(t, "none", nameless)
	if _, err := none.Dial(ctx, addr); !errors.Is(err, fabric.ErrRefused) {
		t.Errorf("a certificate that names nobody, and no token: %v", err)
	}
}

// showToken are credentials whose holder shows a token although its certificate names it.
type showToken struct{ *holder }

func (s showToken) Judge(leaf *x509.Certificate) (fabric.Principal, bool, error) {
	who, named, err := s.holder.Judge(leaf)
	return who, named && !leaf.Equal(s.own.Leaf), err
}

// tokenOf is an Auth with one token.
type tokenOf struct{ name, secret string }

func (a tokenOf) Self() (string, []byte) { return a.name, []byte(a.secret) }

func (a tokenOf) Lookup(name string) ([]byte, fabric.Principal, bool) {
	return []byte(a.secret), fabric.Principal{Name: a.name, Caps: 1}, name == a.name
}

func (a tokenOf) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

func auth(a fabric.Auth) func(*fabric.Config) { return func(c *fabric.Config) { c.Auth = a } }

// TestRevokedWhileConnected: Recheck ends the links of certificates that are
// refused now, and no other, on both sides.
func TestRevokedWhileConnected(t *testing.T) {
	a := newAuthority(t, "ca")
	node := a.holder(t, "node")
	var lost []string
	var mu sync.Mutex
	acceptor, tr := element(t, "acceptor", node, func(c *fabric.Config) {
		c.OnLost = func(ep *fabric.Endpoint, err error) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, ep.Name()+": "+err.Error())
		}
	})
	addr, err := acceptor.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connect := func(name string) (*holder, *fabric.Element, *fabric.Endpoint) {
		h := a.holder(t, name)
		e, _ := element(t, name, h)
		ep, err := e.Dial(ctx, addr)
		if err != nil {
			t.Fatal(err)
		}
		return h, e, ep
	}
	_, _, stays := connect("stays")
	gone, e, goes := connect("goes")
	until := func(what string, ok func() bool) {
		t.Helper()
		for ; !ok(); time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal(what)
			}
		}
	}
	// Dial has returned before the other end has its endpoint.
	until("the acceptor does not see both peers", func() bool { return len(acceptor.Endpoints()) == 2 })
	if n := tr.Recheck(); n != 0 {
		t.Fatalf("%d links ended before anything was revoked", n)
	}
	node.revoked.Store(gone.own.Leaf.SerialNumber.Int64())
	if n := tr.Recheck(); n != 1 {
		t.Fatalf("%d links ended", n)
	}
	until("the revoked peer is still connected", func() bool { return goes.Err() != nil && len(acceptor.Endpoints()) == 1 })
	if err := stays.Flush(ctx); err != nil {
		t.Errorf("the other peer: %v", err)
	}
	heard := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(lost)
	}
	// The endpoint is off the list a moment before.
	until("OnLost does not hear of the revoked peer", func() bool { return heard() > 0 })
	mu.Lock()
	if len(lost) != 1 || !strings.Contains(lost[0], "goes: ") || !strings.Contains(lost[0], errRevoked.Error()) {
		t.Errorf("lost: %q", lost)
	}
	mu.Unlock()
	if _, err := e.Dial(ctx, addr); !errors.Is(err, fabric.ErrRefused) {
		t.Errorf("dialled again: %v", err)
	}
}

// revokesBetween refuses one certificate from the second time on that it is asked about it: as if it had been revoked
// after the handshake, and before its link could be found by Recheck.
type revokesBetween struct {
	*holder
	serial int64
	asked  atomic.Int64
}

func (r *revokesBetween) Judge(leaf *x509.Certificate) (fabric.Principal, bool, error) {
	if leaf.SerialNumber.Int64() == r.serial && r.asked.Add(1) > 1 {
		return fabric.Principal{}, false, errRevoked
	}
	return r.holder.Judge(leaf)
}

// TestRevokedBeforeStart: who was revoked between the handshake and the link's beginning is disconnected, though
// nobody calls Recheck afterwards; whichever side dialled.
func TestRevokedBeforeStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, dials := range []bool{false, true} {
		t.Run(fmt.Sprintf("judge dials %v", dials), func(t *testing.T) {
			a := newAuthority(t, "ca")
			gone := a.holder(t, "gone")
			judge := &revokesBetween{holder: a.holder(t, "judge"), serial: gone.own.Leaf.SerialNumber.Int64()}
			lost := make(chan error, 1)
			e, _ := element(t, "judge", judge, func(c *fabric.Config) { c.OnLost = func(_ *fabric.Endpoint, err error) { lost <- err } })
			peer, _ := element(t, "gone", gone)
			from, to := peer, e
			if dials {
				from, to = e, peer
			}
			addr, err := to.Listen("tcp://127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ep, err := from.Dial(ctx, addr)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-lost:
				if !errors.Is(err, fabric.ErrPeerLost) || !strings.Contains(err.Error(), errRevoked.Error()) {
					t.Errorf("lost because %v", err)
				}
			case <-ctx.Done():
				t.Fatalf("still connected, after %d questions about its certificate", judge.asked.Load())
			}
			for ; ep.Err() == nil || len(from.Endpoints())+len(to.Endpoints()) > 0; time.Sleep(time.Millisecond) {
				if ctx.Err() != nil {
					t.Fatal("an endpoint is left")
				}
			}
		})
	}
}

// TestSilentInHandshake: who opens a connection and says nothing, or little, is
// given up after HELLO's deadline, and does not hold up the end.
func TestSilentInHandshake(t *testing.T) {
	a := newAuthority(t, "ca")
	acceptor, _ := element(t, "acceptor", a.holder(t, "n"), func(c *fabric.Config) { c.Limits.HelloTime = 300 * time.Millisecond })
	addr, err := acceptor.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{"nothing": "", "half a header": "\x16\x03", "half a record": "\x16\x03\x01\x01\x00abc", "garbage": strings.Repeat("\xff", 100)} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write([]byte(b))
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			for {
				if _, err := c.Read(make([]byte, 100)); err != nil {
					var timeout net.Error
					if errors.As(err, &timeout) && timeout.Timeout() {
						t.Error("the acceptor waits on")
					}
					return
				}
			}
		})
	}
}

// logTo has an element's warnings written to w.
func logTo(w *logged) func(*fabric.Config) {
	return func(c *fabric.Config) { c.Log = slog.New(slog.NewTextHandler(w, nil)) }
}
