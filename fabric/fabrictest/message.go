package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// Ids of the suite's messages.
const (
	idEcho   fabric.FrameID = fabric.FirstMessageID + iota // answered with idReply
	idData                                                 // each check has its own handler
	idKeep                                                 // retained
	idBlock                                                // holds its element's leader
	idNobody                                               // has no handler
	idReply  fabric.FrameID = fabric.FirstReservedID
	idUrgent fabric.FrameID = fabric.FirstReservedID + 1
)

func messageChecks() []check {
	return []check{
		{"sizes", messageSizes},
		{"order", messageOrder},
		{"order by several", messageOrderSeveral},
		{"no credit, then some", messageCredit},
		{"large heads wait too", messageLargeHeads},
		{"reserved ids pass", messageReservedPass},
		{"several release", messageSeveralRelease},
		{"full queues facing each other", messageFacing},
		{"a reader that stops", messageStoppedReader},
		{"a crowd that does not read", messageUnreadCrowd},
	}
}

func serveEcho(n *node) {
	n.Handle(idEcho, func(m fabric.Message) { m.From.Post(idReply, nil, m.Body) })
}

// echo connects a to b and has one message answered.
func (r *rig) echo(a, b *node) {
	r.Helper()
	serveEcho(b)
	ep, err := a.Dial(r.Ctx, b.addr)
	r.Must(err)
	var got atomic.Int64
	a.Handle(idReply, func(m fabric.Message) {
		if string(m.Body) == "ahoy" {
			got.Add(1)
		}
	})
	r.Must(ep.Send(r.Ctx, idEcho, []byte("ah"), []byte("oy")))
	r.Must(a.WaitFor(r.Ctx, func() bool { return got.Load() > 0 }))
}

// window gives both elements the least credit there can be.
func smallWindow(c *fabric.Config) {
	c.Limits.WindowBytes = 2 * fabric.MaxFrameBytes
	c.Limits.OutboxBytes = 256 << 10
}

func messageSizes(r *rig) {
	_, b, ab, _ := r.pair()
	got := make(chan []byte, 1)
	b.Handle(idData, func(m fabric.Message) { got <- bytes.Clone(m.Body) })
	for _, n := range []int{0, 1, 7, 8, 47, 48, 49, 55, 56, 57, 63, 64, 65, 4095, 4096, 8187, 8188, 8189, 20000, fabric.MaxMessageBytes - 1, fabric.MaxMessageBytes} {
		for _, head := range []int{0, n / 3, n} {
			want := suite.Pattern(n, uint32(n+head))
			r.Must(ab.Send(r.Ctx, idData, want[:head], want[head:]))
			select {
			case body := <-got:
				if !bytes.Equal(body, want) {
					r.Fatalf("%d bytes, head %d: arrived as %d other bytes", n, head, len(body))
				}
			case <-r.Ctx.Done():
				r.Fatalf("%d bytes, head %d: never arrived", n, head)
			}
		}
	}
	big := make([]byte, fabric.MaxMessageBytes+1)
	for _, err := range []error{ab.Send(r.Ctx, idData, nil, big), ab.Send(r.Ctx, idReply, big[:5], big[4:]), ab.Post(idData, big, nil), ab.TrySend(idData, nil, big)} {
		if !errors.Is(err, fabric.ErrTooLarge) {
			r.Errorf("%d bytes: %v", len(big), err)
		}
	}
	select {
	case body := <-got:
		r.Errorf("%d bytes came through", len(body))
	case <-time.After(5 * time.Millisecond):
	}
}

// counted checks numbered messages: in order, each once.
type counted struct {
	next atomic.Uint64
	bad  atomic.Pointer[string]
}

func (c *counted) take(body []byte) {
	n := binary.LittleEndian.Uint64(body)
	if want := c.next.Load(); n != want && c.bad.Load() == nil {
		s := fmt.Sprintf("message %d where %d was due", n, want)
		c.bad.Store(&s)
	}
	c.next.Add(1)
}

func (r *rig) wantCount(what string, c *counted, n uint64) {
	r.Helper()
	r.Eventually(fmt.Sprintf("%s: %d messages", what, n), func() bool { return c.bad.Load() != nil || c.next.Load() >= n })
	time.Sleep(2 * time.Millisecond) // one too many would come now
	if s := c.bad.Load(); s != nil {
		r.Fatalf("%s: %s", what, *s)
	}
	if got := c.next.Load(); got != n {
		r.Fatalf("%s: %d messages, want %d", what, got, n)
	}
}

func numbered(i, size int) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 0, size), uint64(i))[:size]
}

func messageOrder(r *rig) {
	for _, size := range []int{8, 700, 40000} {
		_, b, ab, _ := r.pair(smallWindow)
		var got counted
		b.Handle(idData, func(m fabric.Message) { got.take(m.Body) })
		n := min(20000, 40_000_000/size)
		for i := range n {
			r.Must(ab.Send(r.Ctx, idData, nil, numbered(i, size)))
		}
		r.wantCount(fmt.Sprintf("%d bytes each", size), &got, uint64(n))
	}
}

func messageOrderSeveral(r *rig) {
	const senders, each = 6, 3000
	_, b, ab, ba := r.pair(smallWindow)
	var got [2 * senders]counted
	take := func(m fabric.Message) { got[m.Body[8]].take(m.Body) }
	b.Handle(idData, take)
	ab.Element().Handle(idData, take)
	var wg sync.WaitGroup
	for s := range 2 * senders {
		ep := ab
		if s >= senders {
			ep = ba
		}
		wg.Go(func() {
			for i := range each {
				if err := ep.Send(r.Ctx, idData, numbered(i, 8), append(make([]byte, 0, 400), byte(s))[:400]); err != nil {
					r.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for s := range got {
		r.wantCount(fmt.Sprint("sender ", s), &got[s], each)
	}
}

// keeper retains messages until it is told to release them.
type keeper struct {
	mu   sync.Mutex
	kept []fabric.Message
	counted
}

func (k *keeper) handle(m fabric.Message) {
	k.take(m.Body)
	m.Body = nil
	k.mu.Lock()
	k.kept = append(k.kept, m)
	k.mu.Unlock()
}

func (k *keeper) release() int {
	k.mu.Lock()
	kept := k.kept
	k.kept = nil
	k.mu.Unlock()
	for _, m := range kept {
		m.Release()
	}
	return len(kept)
}

// releaseAll lets go until n messages were handled.
func (k *keeper) releaseAll(r *rig, n uint64) {
	r.Helper()
	r.Eventually(fmt.Sprintf("%d messages are kept", n), func() bool {
		k.release()
		return k.next.Load() >= n
	})
	k.release()
}

func messageCredit(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	var k keeper
	r.Must(b.HandleRetaining(idKeep, k.handle))
	sent := 0
	for quiet := false; ; { // quiet: the link is empty, so that credit is all that can be missing
		err := ab.TrySend(idKeep, nil, numbered(sent, 4000))
		if err == nil {
			sent++
		} else if !errors.Is(err, fabric.ErrBackpressure) {
			r.Fatal(err)
		} else if quiet {
			break
		}
		if quiet = err != nil; quiet {
			r.Eventually("all are kept", func() bool { return k.next.Load() == uint64(sent) })
		}
		if sent > 1000 {
			r.Fatal("credit has no bound")
		}
	}
	ctx, cancel := context.WithTimeout(r.Ctx, 30*time.Millisecond)
	defer cancel()
	err := ab.Send(ctx, idKeep, nil, numbered(sent, 4000))
	if !errors.Is(err, fabric.ErrBackpressure) || !errors.Is(err, context.DeadlineExceeded) {
		r.Fatalf("Send without credit: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- ab.Send(r.Ctx, idKeep, nil, numbered(sent, 4000)) }()
	time.Sleep(5 * time.Millisecond)
	select {
	case err := <-done:
		r.Fatalf("sent without credit: %v", err)
	default:
	}
	k.release()
	if err := <-done; err != nil {
		r.Fatal(err)
	}
	for i := range 100 {
		r.Must(ab.Send(r.Ctx, idKeep, nil, numbered(sent+1+i, 4000)))
		k.releaseAll(r, uint64(sent+2+i))
	}
	r.wantCount("kept and released", &k.counted, uint64(sent+101))
	k.release()
	expired, cancel := context.WithCancel(r.Ctx)
	cancel()
	if err := ab.Send(expired, idKeep, nil, numbered(sent+101, 8)); err != nil && !errors.Is(err, context.Canceled) {
		r.Errorf("Send with an expired context: %v", err)
	}
}

func messageLargeHeads(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	var k keeper
	r.Must(b.HandleRetaining(idKeep, func(m fabric.Message) {
		if !bytes.Equal(m.Body[8:], suite.Pattern(len(m.Body)-8, 9)) {
			r.Error("bytes differ")
		}
		k.handle(m)
	}))
	sent := 0
	for i, n := range []int{8180, 9000, 30000, 60000, 65528, 12000, 50000, 3, 20000, 30000} {
		if err := ab.Post(idKeep, append(numbered(i, 8), suite.Pattern(n, 9)...), nil); err != nil {
			r.Fatalf("message %d: %v", i, err)
		}
		sent++
	}
	k.releaseAll(r, uint64(sent))
}

func messageReservedPass(r *rig) {
	_, b, ab, ba := r.pair(smallWindow)
	var k keeper
	r.Must(b.HandleRetaining(idKeep, k.handle))
	urgent := make(chan int, 1)
	b.Handle(idUrgent, func(m fabric.Message) { urgent <- len(m.Body) })
	sent := uint64(0)
	for ; ab.Post(idKeep, nil, numbered(int(sent), 500)) == nil; sent++ {
	}
	for _, n := range []int{0, 8, 5000, fabric.MaxMessageBytes} {
		r.Must(ab.Send(r.Ctx, idUrgent, nil, make([]byte, n)))
		select {
		case got := <-urgent:
			if got != n {
				r.Errorf("%d bytes, want %d", got, n)
			}
		case <-r.Ctx.Done():
			r.Fatal("a reserved message waits for normal credit")
		}
	}
	// One-sided operations need no credit either.
	seg, err := b.NewSegment(4096, fabric.Writable)
	r.Must(err)
	for _, rem := range r.routes(ab, seg) {
		r.Must(rem.Put(r.Ctx, []byte("passes"), 0))
	}
	_ = ba
	k.releaseAll(r, sent)
}

func messageSeveralRelease(r *rig) {
	_, b, ab, _ := r.pair(smallWindow)
	queue := make(chan fabric.Message, 4096)
	r.Must(b.HandleRetaining(idKeep, func(m fabric.Message) { queue <- m }))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case m := <-queue:
					m.Release()
				case <-stop:
					return
				}
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	for i := range 4000 {
		n := []int{65536, 17, 30000, 0, 65000}[i%5]
		if err := ab.Send(r.Ctx, idKeep, nil, make([]byte, n)); err != nil {
			r.Fatalf("message %d: %v", i, err)
		}
	}
	r.Must(ab.Flush(r.Ctx))
}

func messageFacing(r *rig) {
	const each = 4000
	a, b, ab, ba := r.pair(smallWindow)
	var got, replies [2]counted
	for i, n := range []*node{a, b} {
		n.Handle(idData, func(m fabric.Message) {
			got[i].take(m.Body)
			m.From.Post(idReply, nil, m.Body)
		})
		n.Handle(idReply, func(m fabric.Message) { replies[i].take(m.Body) })
	}
	var wg sync.WaitGroup
	for i, ep := range []*fabric.Endpoint{ab, ba} {
		wg.Go(func() {
			for n := range each {
				if err := ep.Send(r.Ctx, idData, numbered(n, 8), make([]byte, 2000)); err != nil {
					r.Errorf("side %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range got {
		r.wantCount("messages", &got[i], each)
		r.wantCount("replies", &replies[i], each)
	}
}

// block makes n's leader stand still inside a handler until free is called.
func (r *rig) block(n *node, from *fabric.Endpoint) (free func()) {
	r.Helper()
	inside, release := make(chan struct{}), make(chan struct{})
	r.Must(n.Handle(idBlock, func(fabric.Message) {
		close(inside)
		<-release
	}))
	r.Must(from.Send(r.Ctx, idBlock, nil, nil))
	<-inside
	free = sync.OnceFunc(func() { close(release) })
	r.AtEnd(free)
	return free
}

func messageStoppedReader(r *rig) {
	lost := make(chan error, 1)
	a := r.node(func(c *fabric.Config) {
		c.Limits.ReservedBytes = 1 << 20
		c.OnLost = func(_ *fabric.Endpoint, err error) { lost <- err }
	})
	b := r.node()
	ab, _ := r.connect(a, b)
	free := r.block(b, ab)
	var err error
	for i := 0; err == nil && i < 4000; i++ {
		err = ab.Post(idReply, nil, make([]byte, 16<<10))
	}
	if !errors.Is(err, fabric.ErrPeerLost) || !strings.Contains(err.Error(), "unread") {
		r.Fatalf("64 MiB of answers that nobody reads: %v", err)
	}
	select {
	case err = <-lost:
	case <-r.Ctx.Done():
		r.Fatal("the endpoint was not given up")
	}
	if !errors.Is(err, fabric.ErrPeerLost) || !errors.Is(ab.Err(), fabric.ErrPeerLost) {
		r.Errorf("lost because %v, Err %v", err, ab.Err())
	}
	if err := ab.Send(r.Ctx, idData, nil, nil); !errors.Is(err, fabric.ErrPeerLost) {
		r.Errorf("Send on a lost endpoint: %v", err)
	}
	free()
	r.Eventually("the other side hears of it", func() bool { return len(b.Endpoints()) == 0 })
	r.connect(a, b)
}
