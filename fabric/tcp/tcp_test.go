package tcp

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// patience bounds every wait that a bug could make endless.
const patience = 30 * time.Second

func pair(t testing.TB, policy fabric.Policy) (a, b *fabric.Element, ep *fabric.Endpoint) {
	var els []*fabric.Element
	for _, name := range []string{"a", "b"} {
		tr, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		els = append(els, e)
	}
	addr, err := els[1].Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ep, err = els[0].Dial(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return els[0], els[1], ep
}

func TestSmoke(t *testing.T) {
	for _, policy := range []fabric.Policy{fabric.Balanced, fabric.Latency, fabric.Efficient} {
		a, b, ep := pair(t, policy)
		var got atomic.Int64
		b.Handle(100, func(m fabric.Message) { m.From.Post(3000, nil, m.Body) })
		a.Handle(3000, func(m fabric.Message) { got.Add(1) })
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		msg := []byte("12345678")
		for i := range 1000 {
			if err := ep.Send(ctx, 100, nil, msg); err != nil {
				t.Fatal(err)
			}
			if err := a.WaitFor(ctx, func() bool { return got.Load() > int64(i) }); err != nil {
				t.Fatal(policy, i, err)
			}
		}
		seg, err := b.NewSegment(1<<20, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		k, err := seg.Key(fabric.RightsAll)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ep.Import(ctx, k)
		if err != nil {
			t.Fatal(err)
		}
		big := make([]byte, 1<<20)
		for i := range big {
			big[i] = byte(i * 7)
		}
		if err := r.Put(ctx, big, 0); err != nil {
			t.Fatal(err)
		}
		back := make([]byte, 1<<20)
		if err := r.Get(ctx, back, 0); err != nil {
			t.Fatal(err)
		}
		if string(back) != string(big) || string(seg.Bytes()) != string(big) {
			t.Fatal("bytes differ")
		}
		if old, err := r.Atomic(ctx, fabric.FetchAdd(5), 8, 8); err != nil || old == 0 {
			t.Fatal(old, err)
		}
		if err := ep.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBulkAllocations: nothing is made for a large Put or Get, on either side.
func TestBulkAllocations(t *testing.T) {
	_, peer, ep := pair(t, fabric.Latency)
	ctx := t.Context()
	seg, err := peer.NewSegment(1<<20, fabric.Writable)
	if err != nil {
		t.Fatal(err)
	}
	k, err := seg.Key(fabric.RightsAll)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ep.Import(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for name, way := range map[string]func(context.Context, []byte, uint64) error{"get": r.Get, "put": r.Put} {
		run := func() {
			if e := way(ctx, buf, 0); e != nil {
				err = e
			}
		}
		// Sleeps and timers of the background allocate now and then: look at the best of a few.
		best := 1e9
		for range 5 {
			best = min(best, testing.AllocsPerRun(50, run))
		}
		if err != nil || best > 0 {
			t.Errorf("%s: %v allocations; %v", name, best, err)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	el, peer, ep := pair(b, fabric.Latency)
	var got atomic.Int64
	peer.Handle(100, func(m fabric.Message) { m.From.Post(3000, nil, m.Body) })
	el.Handle(3000, func(m fabric.Message) { got.Add(1) })
	ctx := context.Background()
	msg := []byte("12345678")
	want := int64(0)
	cond := func() bool { return got.Load() >= want }
	b.ReportAllocs()
	for b.Loop() {
		want++
		ep.Send(ctx, 100, nil, msg)
		el.WaitFor(ctx, cond)
	}
}

func BenchmarkGet(b *testing.B) {
	_, peer, ep := pair(b, fabric.Latency)
	ctx := context.Background()
	seg, _ := peer.NewSegment(1<<20, fabric.Writable)
	k, _ := seg.Key(fabric.RightsAll)
	r, err := ep.Import(ctx, k)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Get(ctx, buf, 64); err != nil {
			b.Fatal(err)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{OutBytes: -1}, {OutBytes: fabric.MaxFrameBytes - 1}, {OutBytesInAll: -1}, {OutBytesInAll: 1}, {AcceptTime: -1}} {
		if tr, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
			tr.Close()
		}
	}
}

// TestFailedStart: a link that cannot be watched leaves nothing behind, and what has its descriptor's number next keeps it.
func TestFailedStart(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	open := func() int { // epoll does not watch files
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	fd := open()
	if l, err := tr.start(fd, &recorder{}, nil); !errors.Is(err, unix.EPERM) {
		t.Fatalf("start on a file: %v, %v", l, err)
	}
	var again []int // the lowest free numbers: fd is among them, if it was closed
	for {
		n := open()
		defer unix.Close(n)
		if again = append(again, n); n >= fd {
			break
		}
	}
	if len(tr.links) != 0 || again[len(again)-1] != fd {
		t.Errorf("%d links; descriptor %d is still open: %v", len(tr.links), fd, again)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	for _, n := range again {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != nil {
			t.Errorf("descriptor %d of somebody else: %v", n, err)
		}
	}
}
