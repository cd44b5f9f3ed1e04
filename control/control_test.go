package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// patience is what a test waits for what should take a moment.
	patience = time.Minute
	// apart is where an element listens that comes back at its port: an address of loopback that nothing else here
	// uses, so that nobody gets the port meanwhile.
	apart = "tcp://127.7.7.7:0"
)

func TestErrorsKeepTheirKind(t *testing.T) {
	for _, c := range codes() {
		sent := Coded(fmt.Errorf("more words: %w", c.err))
		var coded *rpc.Error
		if !errors.As(sent, &coded) || coded.Code != c.code {
			t.Fatalf("%v is sent as %#v", c.err, sent)
		}
		got := Err("n1", fmt.Errorf("call: %w", &rpc.RemoteError{Code: coded.Code, Text: coded.Text, Peer: "n1"}))
		if !errors.Is(got, c.err) || !strings.HasPrefix(got.Error(), "node n1: more words") {
			t.Errorf("%v came back as %v", c.err, got)
		}
		for _, other := range codes() {
			if other.err != c.err && errors.Is(got, other.err) {
				t.Errorf("%v came back as %v", c.err, other.err)
			}
		}
	}
	if err := Err("n1", &rpc.RemoteError{Code: rpc.CodeNoSuchCall, Call: CallInfo}); !errors.Is(err, rpc.ErrNoSuchCall) || !strings.Contains(err.Error(), "upgrade") {
		t.Error(err)
	}
	if err := Err("n1", fabric.ErrPeerLost); !errors.Is(err, fabric.ErrPeerLost) {
		t.Error(err)
	}
	if err := Err("n1", &rpc.RemoteError{Code: 99999, Text: "new"}); err.Error() != "node n1: new" {
		t.Error(err)
	}
	line := &dataset.LineError{File: "f.csv", Line: 3, Err: errors.New("bad")}
	if got := Err("n1", &rpc.RemoteError{Code: Coded(line).(*rpc.Error).Code, Text: line.Error()}); !errors.Is(got, dataset.ErrInput) {
		t.Error(got)
	}
}

func TestFileOptions(t *testing.T) {
	o, err := (&FileOptions{}).Options("data.tsv.gz")
	if err != nil || o.Format != dataset.CSV || o.Comma != '\t' {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = (&FileOptions{Comma: ";"}).Options("data.csv"); err != nil || o.Comma != ';' {
		t.Errorf("%+v, %v", o, err)
	}
	for path, o := range map[string]FileOptions{"data.csv": {Comma: ";;"}, "data": {}} {
		if _, err := o.Options(path); !errors.Is(err, dataset.ErrOptions) {
			t.Errorf("%s %+v: %v", path, o, err)
		}
	}
}

// element is one with Links.
type element struct {
	el    *fabric.Element
	links *Links
}

func newElement(t *testing.T, name string, nodes bool) *element {
	t.Helper()
	return newElementOf(t, name, nodes, everybody{cluster.CapMember})
}

func newElementOf(t *testing.T, name string, nodes bool, auth fabric.Auth) *element {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := &element{}
	e.el, err = fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}, Auth: auth,
		OnPeer: func(ep *fabric.Endpoint) { e.links.PeerUp(ep) }, OnLost: func(ep *fabric.Endpoint, err error) { e.links.PeerLost(ep, err) }})
	if err != nil {
		t.Fatal(err)
	}
	e.links = NewLinks(LinksConfig{Element: e.el, Schemes: fabric.Schemes{tcp.Scheme()}, Nodes: nodes})
	t.Cleanup(e.close)
	return e
}

func (e *element) close() {
	e.links.Close()
	e.el.Close()
}

// everybody admits all, with these capabilities.
type everybody struct{ caps cluster.Caps }

func (everybody) Self() (string, []byte) { return "", nil }
func (everybody) Lookup(string) ([]byte, fabric.Principal, bool) {
	return nil, fabric.Principal{}, false
}
func (e everybody) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "m", Caps: uint32(e.caps)}, true
}

func TestLinksMakeOneConnection(t *testing.T) {
	for range 5 {
		a, b := newElement(t, "a", true), newElement(t, "b", true)
		at := func(e *element) cluster.Member {
			addr, err := e.el.Listen("tcp://127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return cluster.Member{Name: e.el.Name(), Addrs: []string{addr}}
		}
		ma, mb := at(a), at(b)
		a.links.Add(mb)
		a.links.Add(ma) // itself: passed over
		b.links.Add(ma)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, w := range []struct {
			e    *element
			name string
		}{{a, "b"}, {b, "a"}} {
			if _, err := w.e.links.Wait(ctx, w.name); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(a.links.States()); n != 1 {
			t.Errorf("a keeps %d links", n)
		}
		a.close()
		b.close()
	}
}

// TestLinksCloseQuietly: an attempt that is given up because nobody wants it any more is no news.
func TestLinksCloseQuietly(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var log bytes.Buffer
	e := newElement(t, "a", false)
	links := NewLinks(LinksConfig{Element: e.el, Schemes: fabric.Schemes{tcp.Scheme()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	links.Add(cluster.Member{Name: "b", Addrs: []string{"tcp://" + silent.Addr().String()}})
	c, err := silent.Accept() // and no word
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	links.Close()
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

func TestLinksComeBack(t *testing.T) {
	a, b := newElement(t, "a", false), newElement(t, "b", false)
	addr, err := b.el.Listen(apart)
	if err != nil {
		t.Fatal(err)
	}
	a.links.Add(cluster.Member{Name: "b", Addrs: []string{"tcp://127.0.0.1:1", addr}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := a.links.Wait(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := a.links.Wait(ctx, "b")
	if err != nil || second == first {
		t.Fatalf("%v, %v", second, err)
	}
	b.close()
	for refused := false; !refused; time.Sleep(time.Millisecond) {
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := a.links.Wait(short, "b")
		stop()
		if refused = err != nil && strings.Contains(err.Error(), "refused"); refused && (!errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), addr)) || ctx.Err() != nil {
			t.Fatalf("while it is away: %v", err)
		}
	}
	c := newElement(t, "b", false) // the next life
	if _, err := c.el.Listen(addr); err != nil {
		t.Fatal(err)
	}
	third, err := a.links.Wait(ctx, "b")
	if err != nil || third.Incarnation() == first.Incarnation() {
		t.Fatalf("%v, %v", third, err)
	}
	if _, err := a.links.Wait(ctx, "z"); !errors.Is(err, ErrNoNode) || !strings.Contains(err.Error(), `"z"; did you mean "b"?`) {
		t.Errorf("an unknown member: %v", err)
	}
}

// Whoever is dialled must be a member too: an element that calls itself b is not node b.
func TestLinksDialMembersOnly(t *testing.T) {
	a, b := newElementOf(t, "a", true, everybody{cluster.CapRead}), newElement(t, "b", false)
	addr, err := b.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.links.Add(cluster.Member{Name: "b", Addrs: []string{addr}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if ep, err := a.links.Try(ctx, "b"); !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), "capability member") {
		t.Errorf("%v, %v", ep, err)
	}
}

// A peer that takes connections and drops them is dialled at a bounded pace.
func TestLinksToAPeerThatHangsUp(t *testing.T) {
	a, b := newElement(t, "a", false), newElement(t, "b", false)
	var taken atomic.Int64
	b.el.Watch(func(ep *fabric.Endpoint) { taken.Add(1); go ep.Close() }, func(*fabric.Endpoint, error) {})
	addr, err := b.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	a.links.Add(cluster.Member{Name: "b", Addrs: []string{addr}})
	time.Sleep(10 * firstRetry)
	for end := begun.Add(patience); taken.Load() < 2; time.Sleep(firstRetry) {
		if time.Now().After(end) {
			t.Fatalf("it was dialled %d times", taken.Load())
		}
	}
	n := taken.Load()
	if took := time.Since(begun); n > 2*int64(took/firstRetry) {
		t.Errorf("it was dialled %d times in %v", n, took)
	}
}

// Try waits for one attempt, whatever was before: one that succeeds starts the count of failures anew.
func TestTryWaitsForOneAttempt(t *testing.T) {
	a, b := newElement(t, "a", false), newElement(t, "b", false)
	addr, err := b.el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lost, err := a.el.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	lost.Close()
	for name, outcome := range map[string]struct {
		ep  *fabric.Endpoint
		err error
	}{"it comes and is lost at once": {ep: lost}, "it fails": {err: fabric.ErrRefused}} {
		t.Run(name, func(t *testing.T) {
			k := &link{member: cluster.Member{Name: "b"}, tries: 5, ended: 5, err: ErrInsecure, wake: make(chan struct{}, 1)}
			a.links.mu.Lock()
			a.links.links["b"] = k
			a.links.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			result := make(chan error, 1)
			go func() {
				_, err := a.links.Try(ctx, "b")
				result <- err
			}()
			<-k.wake // it has asked for an attempt
			a.links.settle(k, outcome.ep, outcome.err)
			if err := <-result; !errors.Is(err, ErrNotConnected) || ctx.Err() != nil {
				t.Errorf("%v, %v", err, context.Cause(ctx))
			}
		})
	}
}

// Members beyond the limit are left out aloud, and those that are known may still get addresses.
func TestLinksFull(t *testing.T) {
	var log bytes.Buffer
	e := newElement(t, "a", false)
	links := NewLinks(LinksConfig{Element: e.el, Schemes: fabric.Schemes{tcp.Scheme()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(links.Close)
	for i := range cluster.MaxMembers {
		name := fmt.Sprintf("n%d", i)
		links.links[name] = &link{member: cluster.Member{Name: name}}
	}
	links.Add(cluster.Member{Name: "n7", Addrs: []string{"tcp://127.0.0.1:7"}})
	if got := links.links["n7"].member.Addrs; len(got) != 1 {
		t.Errorf("a known member has the addresses %q", got)
	}
	if log.Len() > 0 {
		t.Errorf("nobody is left out yet: %s", log.String())
	}
	links.Add(cluster.Member{Name: "late"})
	links.Add(cluster.Member{Name: "later"})
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "node=late most=1024") {
		t.Errorf("the log: %s", text)
	}
	if len(links.links) != cluster.MaxMembers {
		t.Errorf("%d are kept", len(links.links))
	}
	if _, err := links.Wait(t.Context(), "late"); !errors.Is(err, ErrNoNode) || !strings.Contains(err.Error(), "left out") {
		t.Errorf("%v", err)
	}
}

// An endpoint that has ended and was not told of yet is not connected for no reason.
func TestLinkStatesSayWhy(t *testing.T) {
	a := newElement(t, "a", false)
	a.links.links["b"] = &link{member: cluster.Member{Name: "b"}}
	if s := a.links.States()[0]; !errors.Is(s.Err, fabric.ErrPeerLost) {
		t.Errorf("%+v", s)
	}
}
