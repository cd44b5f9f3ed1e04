package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// between is somebody on the way: all bytes go through it. see is shown what
// passes on each connection (they count from 0) in each direction (0: from the
// dialler), and may alter it.
type between struct {
	ln   net.Listener
	to   string
	see  func(conn, direction int, b []byte)
	work sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newBetween(t *testing.T, to string, see func(conn, direction int, b []byte)) *between {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &between{ln: ln, to: strings.TrimPrefix(to, "tcp://"), see: see}
	w.work.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *between) addr() string { return "tcp://" + w.ln.Addr().String() }

func (w *between) accept() {
	for conn := 0; ; conn++ {
		c, err := w.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			c.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, c, far)
		w.mu.Unlock()
		w.work.Go(func() { w.pass(conn, 0, c, far) })
		w.work.Go(func() { w.pass(conn, 1, far, c) })
	}
}

func (w *between) pass(conn, direction int, from, to net.Conn) {
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if n > 0 {
			w.see(conn, direction, b[:n])
			if _, err := to.Write(b[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	from.Close()
	to.Close()
}

func (w *between) close() {
	w.ln.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		c.Close()
	}
	w.mu.Unlock()
	w.work.Wait()
}

// TestEavesdropper: who sees all bytes on the way sees no message, no data, no
// key and no token's name; without TLS it would see each of them.
func TestEavesdropper(t *testing.T) {
	a := newAuthority(t, "ca")
	for _, secured := range []bool{false, true} {
		var cred Credentials
		if secured {
			cred = a.holder(t, "n")
		}
		var mu sync.Mutex
		var seen bytes.Buffer
		acceptor, _ := element(t, "acceptor", cred, auth(tokenOf{"the-name-of-a-token", "secret"}))
		dialler, _ := element(t, "dialler", cred, auth(tokenOf{"the-name-of-a-token", "secret"}))
		addr, err := acceptor.Listen("tcp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		way := newBetween(t, addr, func(_, _ int, b []byte) {
			mu.Lock()
			defer mu.Unlock()
			seen.Write(b)
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		ep, err := dialler.Dial(ctx, way.addr())
		if err != nil {
			t.Fatal(err)
		}
		seg, err := acceptor.NewSegment(1<<16, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		key, err := seg.Key(fabric.RightsAll)
		if err != nil {
			t.Fatal(err)
		}
		var got atomic.Bool
		acceptor.Handle(100, func(m fabric.Message) { got.Store(true) })
		rem, err := ep.Import(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		large := bytes.Repeat([]byte("what is put there. "), 3000)
		if err := rem.Put(ctx, large, 0); err != nil {
			t.Fatal(err)
		}
		if err := ep.Send(ctx, 100, nil, []byte("what is said in a message")); err != nil {
			t.Fatal(err)
		}
		if err := ep.Flush(ctx); err != nil || !got.Load() {
			t.Fatal("not delivered", err)
		}
		mu.Lock()
		for what, secret := range map[string][]byte{"message": []byte("what is said"), "data": []byte("what is put"), "key": key.Append(nil)[16:32], "token's name": []byte("the-name-of")} {
			if bytes.Contains(seen.Bytes(), secret) == secured {
				t.Errorf("TLS %v: the %s is on the wire: %v", secured, what, !secured)
			}
		}
		mu.Unlock()
		cancel()
	}
}

// TestTamperedHandshake: whichever byte of the handshake and of HELLO is altered on the way, no
// endpoint comes of it.
func TestTamperedHandshake(t *testing.T) {
	a := newAuthority(t, "ca")
	cred := a.holder(t, "n")
	acceptor, _ := element(t, "acceptor", cred)
	dialler, _ := element(t, "dialler", cred)
	addr, err := acceptor.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	passed := map[int]*[2]int{} // on each connection
	tries, direction, where := 0, 0, -1
	way := newBetween(t, addr, func(conn, d int, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		at := passed[conn]
		if at == nil {
			at = new([2]int)
			passed[conn] = at
		}
		if i := where - at[d]; conn == tries && d == direction && i >= 0 && i < len(b) {
			b[i] ^= 0x10
		}
		at[d] += len(b)
	})
	var hello [2]int // what passed until Dial was done
	try := func(d, place int) error {
		mu.Lock()
		direction, where = d, place
		mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		ep, err := dialler.Dial(ctx, way.addr())
		mu.Lock()
		if at := passed[tries]; at != nil {
			hello = *at
		}
		tries++
		mu.Unlock()
		if err == nil {
			err = ep.Flush(ctx)
			ep.Close()
		}
		for end := time.Now().Add(10 * time.Second); len(acceptor.Endpoints()) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the endpoint stays")
			}
		}
		return err
	}
	if err := try(0, -1); err != nil {
		t.Fatalf("unaltered: %v", err)
	}
	// 1 and 2 are the version in the first record's header, which says nothing and is not looked at.
	// Signatures differ in length by a few bytes from one connection to the next.
	for d, total := range hello {
		for place := 3; place < total-16; place += 61 {
			if err := try(d, place); err == nil {
				t.Errorf("byte %d of direction %d altered, and nobody noticed", place, d)
			}
		}
	}
}

// TestHijacked: who has let a genuine connection come about and then writes into
// it, in either direction, ends it and does nothing else.
func TestHijacked(t *testing.T) {
	a := newAuthority(t, "ca")
	for d := range 2 {
		acceptor, _ := element(t, "acceptor", a.holder(t, "n"))
		dialler, _ := element(t, "dialler", a.holder(t, "c"))
		addr, err := acceptor.Listen("tcp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var delivered atomic.Int32
		for _, e := range []*fabric.Element{acceptor, dialler} {
			e.Handle(100, func(fabric.Message) { delivered.Add(1) })
		}
		way := newBetween(t, addr, func(int, int, []byte) {})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		ep, err := dialler.Dial(ctx, way.addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := ep.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		way.mu.Lock()
		_, err = io.Copy(way.conns[1-d], bytes.NewReader(bytes.Repeat(wire(100, []byte("mine now")), 2000)))
		way.mu.Unlock()
		for ep.Err() == nil || len(acceptor.Endpoints()) > 0 {
			if ctx.Err() != nil {
				t.Fatal("the connection goes on", err)
			}
			time.Sleep(time.Millisecond)
		}
		if delivered.Load() != 0 {
			t.Errorf("%d forged messages were delivered", delivered.Load())
		}
		cancel()
	}
}

// TestGivenUpInAFragment: the network stops somewhere within a Get's data, the Get is given up then, and its buffer is the
// caller's at once; when the network goes on, so does the endpoint, and the rest of that data goes nowhere.
func TestGivenUpInAFragment(t *testing.T) {
	a := newAuthority(t, "ca")
	for _, secured := range []bool{false, true} {
		for _, at := range []int{100_000, 230_000, 390_000, 700_000} {
			t.Run(fmt.Sprintf("TLS %v, after %d bytes", secured, at), func(t *testing.T) {
				var cred Credentials
				if secured {
					cred = a.holder(t, "n")
				}
				givenUp(t, cred, at)
			})
		}
	}
}

func givenUp(t *testing.T, cred Credentials, at int) {
	const size = 4 << 20
	owner, _ := element(t, "owner", cred)
	reader, _ := element(t, "reader", cred)
	addr, err := owner.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passed, stopped, goOn := 0, make(chan struct{}), make(chan struct{})
	var once sync.Once
	resume := func() { once.Do(func() { close(goOn) }) }
	way := newBetween(t, addr, func(_, direction int, b []byte) {
		if direction != 1 {
			return
		}
		before := passed
		if passed += len(b); before < at && passed >= at {
			close(stopped)
			<-goOn
		}
	})
	defer resume()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ep, err := reader.Dial(ctx, way.addr())
	if err != nil {
		t.Fatal(err)
	}
	seg, err := owner.NewSegment(size, fabric.Writable)
	if err != nil {
		t.Fatal(err)
	}
	copy(seg.Bytes(), fill(size, 7))
	key, err := seg.Key(fabric.RightRead)
	if err != nil {
		t.Fatal(err)
	}
	rem, err := ep.Import(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	first, stop := context.WithCancel(ctx)
	go func() {
		<-stopped
		time.Sleep(20 * time.Millisecond) // what passed has been received
		stop()
	}()
	buf := make([]byte, size)
	if err := rem.Get(first, buf, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("a Get whose data stops: %v", err)
	}
	kept := bytes.Repeat([]byte{0xa5}, size)
	copy(buf, kept)
	resume()
	again := make([]byte, size)
	if err := rem.Get(ctx, again, 0); err != nil || !bytes.Equal(again, seg.Bytes()) {
		t.Fatalf("a Get after it: %v", err)
	}
	if !bytes.Equal(buf, kept) {
		t.Error("the buffer of the Get that was given up was written to")
	}
}
