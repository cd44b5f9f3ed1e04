package tcp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// corked is one link, plain or with TLS, whose other end a test reads and writes.
type corked struct {
	t     testing.TB
	tr    *Transport
	l     *link
	raw   int // what is written there, the link receives
	feed  func(plain []byte) []byte
	mu    sync.Mutex
	got   []byte
	ended bool
}

// eachCork runs a test on a plain link and on one with TLS.
func eachCork(t *testing.T, cfg Config, test func(t *testing.T, c *corked, r *writable)) {
	t.Run("plain", func(t *testing.T) {
		r := &writable{}
		c := &corked{t: t, feed: func(b []byte) []byte { return b }}
		c.tr, c.l, c.raw = pipe(t, cfg, r)
		c.read(t, func(b []byte) (int, error) {
			n, err := unix.Read(c.raw, b)
			if err == unix.EAGAIN {
				time.Sleep(50 * time.Microsecond)
				return 0, nil
			}
			if n <= 0 {
				return 0, errors.Join(errEOF, err)
			}
			return n, nil
		})
		test(t, c, r)
	})
	t.Run("TLS", func(t *testing.T) {
		r := &writable{}
		p := newSealedPipe(t, cfg, r, nil)
		p.settle()
		c := &corked{t: t, tr: p.tr, l: p.l, raw: p.raw, feed: func(b []byte) []byte { return p.seal(t, b) }}
		c.read(t, p.peer.Read)
		test(t, c, r)
	})
}

// read collects what the link sends, on a goroutine of its own.
func (c *corked) read(t *testing.T, read func([]byte) (int, error)) {
	var done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := read(buf)
			c.mu.Lock()
			c.got = append(c.got, buf[:n]...)
			c.ended = err != nil
			c.mu.Unlock()
			select {
			case <-stop:
				return
			default:
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		c.l.Close()
		done.Wait()
	})
}

func (c *corked) n() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

func (c *corked) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *corked) has() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.got)
}

// deliver has the link take frames that came in one read.
func (c *corked) deliver(plain []byte) {
	c.t.Helper()
	b := c.feed(plain)
	if n, err := unix.Write(c.raw, b); err != nil || n != len(b) {
		c.t.Fatal(n, err)
	}
	for end := time.Now().Add(patience); c.tr.Poll(64, fabric.Turn{}) == 0; {
		if time.Now().After(end) {
			c.t.Fatal("nothing was delivered")
		}
	}
}

// wants polls until the other end has exactly these bytes.
func (c *corked) wants(want []byte) {
	c.t.Helper()
	for end := time.Now().Add(patience); c.n() < len(want) && time.Now().Before(end); {
		c.tr.Poll(64, fabric.Turn{})
	}
	if got := c.has(); !bytes.Equal(got, want) {
		c.t.Fatalf("%d bytes came, want %d; they agree in the first %d", len(got), len(want), agree(got, want))
	}
}

func agree(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// stays checks that the other end gets no more than it has for a while.
func (c *corked) stays(n int) {
	c.t.Helper()
	time.Sleep(2 * time.Millisecond)
	if got := c.n(); got != n {
		c.t.Errorf("%d bytes have left, want %d", got, n)
	}
}

// TestCorkHolds: what a handler sends leaves when it is done, at latest after corkFrames of them, or when much is held.
func TestCorkHolds(t *testing.T) {
	eachCork(t, Config{}, func(t *testing.T, c *corked, r *writable) {
		const frames = corkFrames + 3
		var in, want []byte
		at := 0
		r.after = func() {
			switch at++; at {
			case 3, corkFrames:
				c.stays(0)
			case corkFrames + 1:
				for end := time.Now().Add(patience); c.n() < len(want) && time.Now().Before(end); {
					time.Sleep(100 * time.Microsecond)
				}
				c.stays(len(want))
			}
			out := wire(200, []byte{byte(at)})
			want = append(want, out...)
			if err := c.l.Send(200, fabric.Normal, nil, out[headerBytes:]); err != nil {
				t.Error(err)
			}
		}
		for range frames {
			in = append(in, wire(100, []byte("frame"))...)
		}
		c.deliver(in)
		if at != frames {
			t.Fatalf("%d frames came in one read, want %d", at, frames)
		}
		c.wants(want)
		at = 0
		r.after = func() {
			for range 2 * corkBytes / 1000 {
				body := fill(1000, byte(len(want)))
				want = append(want, wire(201, body)...)
				if err := c.l.Send(201, fabric.Normal, body[:10], body[10:]); err != nil {
					t.Error(err)
				}
				if held := len(c.l.out); held > corkBytes+headerBytes*32 {
					t.Errorf("%d bytes are held back", held)
				}
			}
			for end := time.Now().Add(patience); c.n() < len(want)-corkBytes && time.Now().Before(end); {
				time.Sleep(100 * time.Microsecond)
			}
			if got := c.n(); got < len(want)-corkBytes-4096 {
				t.Errorf("%d of %d bytes have left", got, len(want))
			}
		}
		c.deliver(wire(100, nil))
		c.wants(want)
		if c.l.held || len(c.l.out) != 0 || len(c.tr.heldBack) != 0 {
			t.Errorf("held: %v, %d bytes, %d links", c.l.held, len(c.l.out), len(c.tr.heldBack))
		}
	})
}

// TestCorkOrder: frames of all sizes and classes leave in the order they were sent, inside handlers and between them.
func TestCorkOrder(t *testing.T) {
	eachCork(t, Config{OutBytes: 4 << 20}, func(t *testing.T, c *corked, r *writable) {
		rnd := rand.New(rand.NewPCG(1, 4))
		sizes := []int{0, 1, 8, 100, 3000, smallBytes - headerBytes, smallBytes - 1, smallBytes, smallBytes + 1, corkBytes - 1, corkBytes, corkBytes + 1, 40_000, fabric.MaxFrameBytes}
		var want []byte
		send := func(n int) {
			for range n {
				size := sizes[rnd.IntN(len(sizes))]
				if rnd.IntN(3) > 0 {
					size = rnd.IntN(200)
				}
				head, body := fill(size/3, byte(len(want))), fill(size-size/3, byte(len(want)+1))
				if err := c.l.Send(300, fabric.Class(rnd.IntN(2)), head, body); err != nil {
					t.Fatal(err)
				}
				want = append(want, wire(300, append(head, body...))...)
			}
		}
		r.after = func() { send(rnd.IntN(12)) }
		for range 40 {
			var in []byte
			for range 1 + rnd.IntN(40) {
				in = append(in, wire(100, []byte{1})...)
			}
			c.deliver(in)
			send(rnd.IntN(4))
			if len(want) > 1<<20 {
				c.wants(want)
				c.mu.Lock()
				c.got, want = nil, nil
				c.mu.Unlock()
			}
		}
		c.wants(want)
	})
}

// TestCorkGoodbye: what a handler sends before it closes its link arrives.
func TestCorkGoodbye(t *testing.T) {
	eachCork(t, Config{}, func(t *testing.T, c *corked, r *writable) {
		want := append(wire(200, []byte("first")), wire(201, []byte("goodbye"))...)
		r.after = func() {
			for i, body := range []string{"first", "goodbye"} {
				if err := c.l.Send(200+fabric.FrameID(i), fabric.Reserved, nil, []byte(body)); err != nil {
					t.Error(err)
				}
			}
			if err := c.l.Close(); err != nil {
				t.Error(err)
			}
			if err := c.l.Send(202, fabric.Reserved, nil, nil); !errors.Is(err, fabric.ErrLinkClosed) {
				t.Errorf("a frame after Close: %v", err)
			}
		}
		c.deliver(wire(100, nil))
		c.wants(want)
		for end := time.Now().Add(patience); !c.over(); {
			if time.Now().After(end) {
				t.Fatal("the other end does not see that the link was closed")
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// TestCorkOthers: while a handler runs, others' sends return at once, and leave when the delivery is over.
func TestCorkOthers(t *testing.T) {
	eachCork(t, Config{}, func(t *testing.T, c *corked, r *writable) {
		var want []byte
		r.after = func() {
			sent := make(chan error)
			go func() {
				var err error
				for i := range 100 {
					err = errors.Join(err, c.l.Send(200, fabric.Normal, nil, []byte{byte(i)}))
				}
				sent <- err
			}()
			select {
			case err := <-sent:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("a send waits for the handler")
			}
			c.stays(0)
		}
		for i := range 100 {
			want = append(want, wire(200, []byte{byte(i)})...)
		}
		c.deliver(wire(100, nil))
		for end := time.Now().Add(patience); c.n() < len(want) && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond) // no Poll: they are out already
		}
		c.wants(want)
	})
}

// TestCorkFull: a handler that fills its link, and whoever does between handlers, hears of room again, and nothing is lost or changes places.
func TestCorkFull(t *testing.T) {
	for _, bytes := range []int{fabric.MaxFrameBytes, fabric.MaxFrameBytes + 5000, 256 << 10} {
		eachCork(t, Config{OutBytes: bytes}, func(t *testing.T, c *corked, r *writable) {
			room := 4096
			if c.l.sec != nil {
				room = 64 << 10 // TCP gives way to tiny buffers very slowly
			}
			if err := unix.SetsockoptInt(c.l.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, room); err != nil {
				t.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(uint64(bytes), 5))
			var want []byte
			fillUp := func(most int) {
				for range most {
					body := fill([]int{3, 100, 4000, 9000, 30_000, fabric.MaxFrameBytes}[rnd.IntN(6)], byte(len(want)))
					before, full := r.n, errors.Is(c.l.Send(300, fabric.Normal, nil, body), fabric.ErrLinkFull)
					if !full {
						want = append(want, wire(300, body)...)
						continue
					}
					r.full = before + 1
					return
				}
			}
			r.after = func() { fillUp(40) }
			for i := range 24 {
				if c.deliver(wire(100, nil)); i%3 == 0 {
					fillUp(5)
				}
				for end := time.Now().Add(patience); r.n < r.full; c.tr.Poll(64, fabric.Turn{}) {
					if time.Now().After(end) {
						t.Fatalf("round %d: ErrLinkFull, and then nobody says that there is room: %d bytes of %d have left", i, c.n(), len(want))
					}
				}
			}
			c.wants(want)
		})
	}
}

// TestCorkHandOff: what a handler sent has left once it has handed off, however long it goes on; and what it sends then leaves at once.
func TestCorkHandOff(t *testing.T) {
	a, b, ep := pair(t, fabric.Balanced)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var heard [2]atomic.Int64
	told := make(chan int64, 1000)
	b.Handle(100, func(m fabric.Message) {
		from := m.From
		n := int64(m.Body[0])
		from.Post(3000, nil, []byte{byte(n)})
		m.HandOff()
		select {
		case <-told: // a says that it has the first answer while this handler still runs
		case <-ctx.Done():
			t.Error("what was sent before HandOff does not leave")
		}
		from.Post(3001, nil, []byte{byte(n)})
	})
	for i := range heard {
		a.Handle(3000+fabric.FrameID(i), func(m fabric.Message) {
			if heard[i].Add(1); i == 0 {
				told <- 1
			}
		})
	}
	for i := range int64(200) {
		if err := ep.Send(ctx, 100, nil, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if err := a.WaitFor(ctx, func() bool { return heard[0].Load() > i && heard[1].Load() > i }); err != nil {
			t.Fatal(i, err)
		}
	}
}

// TestCorkBound: a handler that goes on sending to a peer that reads nothing is told when the link's bound is reached.
func TestCorkBound(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		r, cfg := &writable{}, Config{OutBytes: 128 << 10}
		var tr *Transport
		var l *link
		var raw int
		in := wire(100, nil)
		waiting := func() int { return len(l.out) - l.outAt }
		if sealed {
			p := newSealedPipe(t, cfg, r, nil)
			p.settle()
			tr, l, raw, in = p.tr, p.l, p.raw, p.seal(t, in)
			waiting = func() int { return l.sec.wire.waiting() }
		} else {
			tr, l, raw = pipe(t, cfg, r)
			defer unix.Close(raw)
		}
		if err := unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10); err != nil {
			t.Fatal(err)
		}
		done := false
		r.after = func() {
			done = true
			for class, limit := range []int{cfg.OutBytes, 2 * cfg.OutBytes} {
				var err error
				for n := 0; err == nil; n++ {
					if n > 20_000 {
						t.Fatalf("TLS %v: %d bytes wait and nobody says that it is enough", sealed, waiting())
					}
					if err = l.Send(300, fabric.Class(class), nil, make([]byte, 1000)); waiting() > limit {
						t.Fatalf("TLS %v: %d bytes wait, at most %d should", sealed, waiting(), limit)
					}
				}
				if !errors.Is(err, fabric.ErrLinkFull) {
					t.Fatal(err)
				}
			}
		}
		if _, err := unix.Write(raw, in); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); !done; tr.Poll(64, fabric.Turn{}) {
			if time.Now().After(end) {
				t.Fatal("nothing was delivered")
			}
		}
	}
}

// TestCorkEnds: who sends later than corkTime after Cork sends at once, and so goes what was held back before it.
func TestCorkEnds(t *testing.T) {
	eachCork(t, Config{}, func(t *testing.T, c *corked, r *writable) {
		c.tr.Cork()
		want := 0
		for i, text := range []string{"one", "two"} {
			if err := c.l.Send(200, fabric.Normal, nil, []byte(text)); err != nil {
				t.Fatal(err)
			}
			want += len(wire(200, []byte(text)))
			if i == 0 {
				time.Sleep(2 * corkTime)
			}
		}
		for end := time.Now().Add(10 * time.Second); c.n() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d bytes have left", c.n(), want)
			}
		}
		c.tr.Uncork()
	})
}
