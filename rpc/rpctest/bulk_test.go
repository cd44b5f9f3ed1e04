package rpctest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
	"github.com/wherry-fabric/wherry/rpc"
)

func bulkChecks() []check {
	return []check{
		{"null", bulkNull},
		{"size 0", bulkEmpty},
		{"whole", bulkWhole},
		{"part at odd offsets on both sides", bulkPart},
		{"many tiny segments", bulkTiny},
		{"more segments than the limit", bulkListed},
		{"small and read-only travels along", bulkEager},
		{"bound handle", bulkBound},
		{"without a way to the owner", bulkUnreachable},
		{"rights", bulkRights},
		{"closed", bulkClosed},
		{"partial transfer", bulkPartial},
		{"cancel", bulkCancel},
		{"from an inline handler", bulkInline},
		{"many at once", bulkManyAtOnce},
		{"bad bytes", bulkBad},
	}
}

// segment makes one that is filled with a pattern.
func (r *rig) segment(s *side, n int, kind fabric.SegmentKind, seed uint32) *fabric.Segment {
	r.Helper()
	seg, err := s.el.NewSegment(uint64(n), kind)
	r.Must(err)
	copy(seg.Bytes(), suite.Pattern(n, seed))
	r.AtEnd(func() { seg.Close() })
	return seg
}

func (r *rig) expose(s *side, rights fabric.Rights, o rpc.BulkOptions, spans ...rpc.Span) *rpc.Bulk {
	r.Helper()
	b, err := s.Expose(rights, o, spans...)
	r.Must(err)
	r.AtEnd(func() { b.Close() })
	return b
}

func whole(seg *fabric.Segment) rpc.Span { return rpc.Span{Segment: seg, Size: seg.Size()} }

// mover is the service that the checks move data with: a request is an offset, a size and a Bulk.
type mover struct {
	a, b *side
	ep   *fabric.Endpoint
}

// movers makes a pair whose callee pulls, or pushes a pattern of seed 77, in two
// pieces whose border is at an odd place of the callee's memory.
func (r *rig) movers() *mover {
	r.Helper()
	m := &mover{}
	m.a, m.b, m.ep = r.pair(rpc.Config{})
	for _, push := range []bool{false, true} {
		name := map[bool]string{false: "pull", true: "push"}[push]
		r.serve(m.b, name, blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
			offset, size := binary.LittleEndian.Uint64(c.Req), binary.LittleEndian.Uint64(c.Req[8:])
			b, _, err := rpc.DecodeBulk(c.Req[16:])
			if err != nil {
				return nil, err
			}
			data := make([]byte, size+13)
			split := min(size/3|1, size)
			local := rpc.Memory{data[:7], data[7 : 7+split], nil, data[7+split:]}
			part, err := local.Slice(7, size)
			if err != nil {
				return nil, err
			}
			if push {
				copy(data[7:], suite.Pattern(int(size), 77))
				n, err := c.Push(ctx, b, offset, part)
				return binary.LittleEndian.AppendUint64(nil, n), err
			}
			n, err := c.Pull(ctx, b, offset, part)
			return data[7 : 7+n], err
		})
	}
	return m
}

func (m *mover) do(r *rig, name string, b *rpc.Bulk, offset, size uint64) ([]byte, error) {
	r.Helper()
	req := binary.LittleEndian.AppendUint64(nil, offset)
	req = binary.LittleEndian.AppendUint64(req, size)
	req, err := b.Append(req)
	r.Must(err)
	return m.a.Call(r.Ctx, m.ep, name, req)
}

// pulls checks that a pull gets want.
func (m *mover) pulls(r *rig, b *rpc.Bulk, offset uint64, want []byte) {
	r.Helper()
	got, err := m.do(r, "pull", b, offset, uint64(len(want)))
	if err != nil || !bytes.Equal(got, want) {
		r.Fatalf("pull of [%d, +%d): %d bytes, %v", offset, len(want), len(got), err)
	}
}

// pushes pushes size bytes and checks that they are there, as read tells.
func (m *mover) pushes(r *rig, b *rpc.Bulk, offset, size uint64, read func() []byte) {
	r.Helper()
	before := bytes.Clone(read())
	if _, err := m.do(r, "push", b, offset, size); err != nil {
		r.Fatalf("push of [%d, +%d): %v", offset, size, err)
	}
	copy(before[offset:], suite.Pattern(int(size), 77))
	if !bytes.Equal(read(), before) {
		r.Fatalf("push of [%d, +%d): something else is there", offset, size)
	}
}

func bulkNull(r *rig) {
	m := r.movers()
	var b rpc.Bulk
	if !b.IsNull() || b.Size() != 0 || b.Close() != nil {
		r.Error("the zero Bulk is not null")
	}
	m.pulls(r, &b, 0, nil)
	for _, name := range []string{"pull", "push"} {
		if _, err := m.do(r, name, &b, 0, 1); err == nil {
			r.Errorf("%s of one byte of nothing", name)
		}
	}
	if _, err := b.Bind("tcp://127.0.0.1:1"); err == nil {
		r.Error("nothing was bound to an address")
	}
}

func bulkEmpty(r *rig) {
	m := r.movers()
	seg := r.segment(m.a, 100, fabric.Writable, 1)
	for _, spans := range [][]rpc.Span{nil, {{Segment: seg, Offset: 100}}, {{Segment: seg}, {Segment: seg, Offset: 50}}} {
		for _, rights := range []fabric.Rights{fabric.RightRead, fabric.RightsAll} {
			b := r.expose(m.a, rights, rpc.BulkOptions{}, spans...)
			if b.IsNull() || b.Size() != 0 {
				r.Errorf("null: %v, %d bytes", b.IsNull(), b.Size())
			}
			m.pulls(r, b, 0, nil)
			if _, err := m.do(r, "pull", b, 0, 1); err == nil {
				r.Error("one byte of none")
			}
		}
	}
	for _, bad := range []rpc.Span{{}, {Segment: seg, Offset: 101}, {Segment: seg, Offset: 1, Size: 100}} {
		if _, err := m.a.Expose(fabric.RightRead, rpc.BulkOptions{}, bad); err == nil {
			r.Errorf("a span outside: %+v", bad)
		}
	}
}

func bulkWhole(r *rig) {
	m := r.movers()
	for _, n := range []int{1, 64 << 10, 3<<20 + 11} {
		seg := r.segment(m.a, n, fabric.Writable, uint32(n))
		b := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, whole(seg))
		for range 2 { // the second time, what was imported is known
			m.pulls(r, b, 0, suite.Pattern(n, uint32(n)))
		}
		m.pushes(r, b, 0, uint64(n), seg.Bytes)
		sealed := r.segment(m.a, n, fabric.Sealed, uint32(n))
		m.pulls(r, r.expose(m.a, fabric.RightRead, rpc.BulkOptions{Live: true}, whole(sealed)), 0, suite.Pattern(n, uint32(n)))
	}
}

func bulkPart(r *rig) {
	m := r.movers()
	const n = 300_000
	one, two := r.segment(m.a, n, fabric.Writable, 1), r.segment(m.a, n, fabric.Writable, 2)
	spans := []rpc.Span{{Segment: one, Offset: 3, Size: 99_991}, {Segment: two, Offset: 77, Size: 100_003}, whole(one)}
	all := append(append(append([]byte(nil), suite.Pattern(n, 1)[3:99_994]...), suite.Pattern(n, 2)[77:100_080]...), suite.Pattern(n, 1)...)
	b := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, spans...)
	for _, part := range [][2]uint64{{0, 1}, {1, 7}, {99_990, 2}, {99_991, 1}, {50_001, 100_001}, {99_985, 300_017}, {uint64(len(all)) - 1, 1}, {5, uint64(len(all)) - 5}} {
		m.pulls(r, b, part[0], all[part[0]:part[0]+part[1]])
	}
	// Pushed where no byte is in the Bulk twice.
	b = r.expose(m.a, fabric.RightRead|fabric.RightWrite, rpc.BulkOptions{}, spans[:2]...)
	read := func() []byte {
		return append(append([]byte(nil), one.Bytes()[3:99_994]...), two.Bytes()[77:100_080]...)
	}
	for _, part := range [][2]uint64{{0, 1}, {1, 7}, {99_990, 2}, {50_001, 100_001}, {0, 199_994}} {
		m.pushes(r, b, part[0], part[1], read)
	}
	for _, part := range [][2]uint64{{199_994, 1}, {0, 199_995}, {1 << 63, 1}, {1<<64 - 1, 2}} {
		size := min(part[1], 200_000)
		if _, err := m.do(r, "pull", b, part[0], size); err == nil {
			r.Errorf("[%d, +%d) of %d", part[0], size, b.Size())
		}
	}
}

// bulkTiny has as many segments as a Bulk lists in its own bytes, and far more.
func bulkTiny(r *rig) {
	m := r.movers()
	for _, count := range []int{rpc.InlineParts - 1, 300} {
		var spans []rpc.Span
		read := func() (now []byte) {
			for _, s := range spans {
				now = append(now, s.Segment.Bytes()...)
			}
			return now
		}
		for i := range count {
			spans = append(spans, whole(r.segment(m.a, 1+i%23, fabric.Writable, uint32(i))))
		}
		all := read()
		b := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, spans...)
		for range 2 {
			m.pulls(r, b, 0, all)
		}
		m.pulls(r, b, 3, all[3:len(all)-5])
		m.pushes(r, b, 5, b.Size()-9, read)
	}
}

func bulkListed(r *rig) {
	m := r.movers()
	const n = 400_000
	seg := r.segment(m.a, n, fabric.Writable, 5)
	for _, count := range []int{rpc.InlineParts, rpc.InlineParts + 1, 500} {
		var spans []rpc.Span
		read := func() (now []byte) {
			for _, s := range spans {
				now = append(now, seg.Bytes()[s.Offset:s.Offset+s.Size]...)
			}
			return now
		}
		for i := range count {
			spans = append(spans, rpc.Span{Segment: seg, Offset: uint64(i * 700), Size: uint64(1 + i%97)})
		}
		b := r.expose(m.a, fabric.RightRead|fabric.RightWrite, rpc.BulkOptions{}, spans...)
		if bytes, err := b.Append(nil); err != nil || len(bytes) > 1<<10 {
			r.Errorf("%d parts take %d bytes, %v", count, len(bytes), err)
		}
		m.pulls(r, b, 0, read())
		m.pulls(r, b, 11, read()[11:b.Size()-3])
		m.pushes(r, b, 1, b.Size()-2, read)
	}
	tooMany := make([]rpc.Span, rpc.MaxParts+1)
	for i := range tooMany {
		tooMany[i] = rpc.Span{Segment: seg, Size: 1}
	}
	if _, err := m.a.Expose(fabric.RightsAll, rpc.BulkOptions{}, tooMany...); err == nil {
		r.Errorf("%d parts", len(tooMany))
	}
}

func bulkEager(r *rig) {
	m := r.movers()
	seg := r.segment(m.a, 3000, fabric.Writable, 4)
	b := r.expose(m.a, fabric.RightRead, rpc.BulkOptions{}, rpc.Span{Segment: seg, Offset: 100, Size: 2000}, rpc.Span{Segment: seg, Size: 3})
	want := append(append([]byte(nil), seg.Bytes()[100:2100]...), seg.Bytes()[:3]...)
	if !b.Carried() {
		r.Error("it does not travel along")
	}
	wire, err := b.Append(nil)
	r.Must(err)
	m.pulls(r, b, 0, want)
	m.pulls(r, b, 1999, want[1999:2003])
	if _, err := m.do(r, "push", b, 0, 1); err == nil {
		r.Error("a read-only Bulk was pushed to")
	}
	// What was carried away is there after the owner's memory has gone.
	b.Close()
	seg.Close()
	far, _, err := rpc.DecodeBulk(wire)
	r.Must(err)
	m.pulls(r, far, 7, want[7:])
	if _, err := b.Append(nil); !errors.Is(err, fabric.ErrRevoked) {
		r.Errorf("carried after Close: %v", err)
	}
	other := r.segment(m.a, 100, fabric.Writable, 4)
	if live := r.expose(m.a, fabric.RightRead, rpc.BulkOptions{Live: true}, whole(other)); live.Carried() {
		r.Error("a live Bulk travels along")
	} else {
		wire, err := live.Append(nil)
		r.Must(err)
		far, _, err := rpc.DecodeBulk(wire)
		r.Must(err)
		copy(other.Bytes(), "changed")
		m.pulls(r, far, 0, other.Bytes())
	}
}

// bulkBound hands a Bulk to a third element, which dials the owner.
func bulkBound(r *rig) {
	m := r.movers()
	var dialled atomic.Int64
	var el *side
	el = r.side(rpc.Config{Dial: func(ctx context.Context, addr string) (*fabric.Endpoint, error) {
		dialled.Add(1)
		time.Sleep(5 * time.Millisecond) // the others come meanwhile
		return el.el.Dial(ctx, addr)
	}})
	seg := r.segment(m.a, 200_000, fabric.Writable, 6)
	b, err := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, whole(seg)).Bind(m.a.el.Addrs()...)
	r.Must(err)
	wire, err := b.Append(nil)
	r.Must(err)
	far, rest, err := rpc.DecodeBulk(append(wire, "rest"...))
	if err != nil || string(rest) != "rest" || far.Owner() != m.a.el.Incarnation() || len(far.Addrs()) != 1 {
		r.Fatalf("%+v, %q, %v", far, rest, err)
	}
	pull := func() {
		got := make([]byte, 100_000)
		n, err := el.Pull(r.Ctx, far, 99, rpc.Memory{got})
		if err != nil || n != 100_000 || !bytes.Equal(got, suite.Pattern(200_000, 6)[99:100_099]) {
			r.Errorf("%d bytes, %v", n, err)
		}
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(pull)
	}
	wg.Wait()
	pull()
	if n, err := el.Push(r.Ctx, far, 1, rpc.Memory{[]byte("from the third")}); err != nil || n != 14 || string(seg.Bytes()[1:15]) != "from the third" {
		r.Errorf("%d bytes, %v", n, err)
	}
	if dialled.Load() != 1 {
		r.Errorf("dialled %d times", dialled.Load())
	}
}

func bulkUnreachable(r *rig) {
	m := r.movers()
	var el *side
	el = r.side(rpc.Config{Dial: func(ctx context.Context, addr string) (*fabric.Endpoint, error) { return el.el.Dial(ctx, addr) }})
	other := r.side(rpc.Config{})
	seg := r.segment(m.a, 200_000, fabric.Writable, 6)
	b := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, whole(seg))
	one := rpc.Memory{make([]byte, 1)}
	if bound, err := b.Bind(m.a.addr); err != nil {
		r.Error(err)
	} else if _, err := other.Pull(r.Ctx, bound, 0, one); !errors.Is(err, rpc.ErrNotConnected) {
		r.Errorf("bound, where dialling is not allowed: %v", err)
	}
	if _, err := el.Pull(r.Ctx, b, 0, one); !errors.Is(err, rpc.ErrNotConnected) {
		r.Errorf("not bound: %v", err)
	}
	moved, err := b.Bind(other.addr)
	r.Must(err)
	if _, err := el.Pull(r.Ctx, moved, 0, one); !errors.Is(err, rpc.ErrNotConnected) || !errors.Is(err, fabric.ErrIncarnation) {
		r.Errorf("bound to where another element is: %v", err)
	}
	if _, err := b.Bind("nowhere"); err == nil {
		r.Error("bound to no address")
	}
	if _, err := b.Bind(); err == nil {
		r.Error("bound to nothing")
	}
}

func bulkRights(r *rig) {
	m := r.movers()
	seg := r.segment(m.a, 100_000, fabric.Writable, 1)
	read := r.expose(m.a, fabric.RightRead, rpc.BulkOptions{}, whole(seg))
	write := r.expose(m.a, fabric.RightWrite, rpc.BulkOptions{}, whole(seg))
	if _, err := m.do(r, "push", read, 0, 10); err == nil {
		r.Error("pushed to a Bulk that can be read")
	}
	if _, err := m.do(r, "pull", write, 0, 10); err == nil {
		r.Error("pulled from a Bulk that can be written")
	}
	m.pushes(r, write, 9, 1000, seg.Bytes)
	// A holder who says that it may more than it was given.
	wire, err := read.Append(nil)
	r.Must(err)
	wire[1] = byte(fabric.RightsAll)
	forged, _, err := rpc.DecodeBulk(wire)
	r.Must(err)
	before := bytes.Clone(seg.Bytes())
	if _, err := m.do(r, "push", forged, 0, 10); err == nil || !bytes.Equal(before, seg.Bytes()) {
		r.Errorf("pushed with forged rights: %v", err)
	}
	sealed := r.segment(m.a, 100, fabric.Sealed, 1)
	if _, err := m.a.Expose(fabric.RightsAll, rpc.BulkOptions{}, whole(sealed)); !errors.Is(err, fabric.ErrRights) {
		r.Errorf("more rights than the segment has: %v", err)
	}
}

func bulkClosed(r *rig) {
	m := r.movers()
	seg := r.segment(m.a, 100_000, fabric.Writable, 1)
	for i, spans := range [][]rpc.Span{{whole(seg)}, {{Segment: seg, Offset: 1, Size: 9}}} {
		b := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, spans...)
		m.pulls(r, b, 0, seg.Bytes()[i:i+9])
		wire, err := b.Append(nil)
		r.Must(err)
		r.Must(b.Close())
		r.Must(b.Close())
		far, _, err := rpc.DecodeBulk(wire)
		r.Must(err)
		if _, err := m.do(r, "pull", far, 0, 9); err == nil {
			r.Error("a closed Bulk was pulled")
		}
		if _, err := m.a.Pull(r.Ctx, far, 0, rpc.Memory{make([]byte, 9)}); !errors.Is(err, fabric.ErrRevoked) {
			r.Errorf("pulled by its owner: %v", err)
		}
	}
}

// bulkPartial has the second half of a Bulk go away.
func bulkPartial(r *rig) {
	m := r.movers()
	one, two := r.segment(m.a, 70_000, fabric.Writable, 1), r.segment(m.a, 70_000, fabric.Writable, 2)
	b := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, whole(one), whole(two))
	m.pulls(r, b, 60_000, append(append([]byte(nil), suite.Pattern(70_000, 1)[60_000:]...), suite.Pattern(70_000, 2)[:5]...))
	two.Close()
	moved := make(chan uint64, 1)
	r.serve(m.b, "some", blocking(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		b, _, err := rpc.DecodeBulk(c.Req)
		if err != nil {
			return nil, err
		}
		data := make([]byte, 140_000)
		n, err := c.Pull(ctx, b, 0, rpc.Memory{data})
		moved <- n
		if !bytes.Equal(data[:n], suite.Pattern(70_000, 1)[:n]) {
			return nil, errors.New("other bytes")
		}
		return nil, err
	})
	wire, err := b.Append(nil)
	r.Must(err)
	if _, err := m.a.Call(r.Ctx, m.ep, "some", wire); err == nil {
		r.Error("what is gone was pulled")
	}
	if n := <-moved; n > 70_000 {
		r.Errorf("%d bytes moved of 70000 that are there", n)
	}
	m.pulls(r, b, 10, suite.Pattern(70_000, 1)[10:50_000])
}

func bulkCancel(r *rig) {
	m := r.movers()
	const n = 32 << 20
	seg := r.segment(m.a, n, fabric.Writable, 1)
	b := r.expose(m.a, fabric.RightRead|fabric.RightWrite, rpc.BulkOptions{}, whole(seg)) // not mapped: it takes its time
	wire, err := b.Append(nil)
	r.Must(err)
	far, _, err := rpc.DecodeBulk(wire)
	r.Must(err)
	who := m.b
	if !r.self {
		r.dial(m.b, m.a)
	}
	data := make([]byte, n)
	for i, start := range []func() *rpc.Transfer{
		func() *rpc.Transfer { return who.StartPull(r.Ctx, far, 0, rpc.Memory{data}) },
		func() *rpc.Transfer { return who.StartPush(r.Ctx, far, 0, rpc.Memory{data}) },
	} {
		t := start()
		t.Cancel()
		moved, err := t.Wait(r.Ctx)
		if err == nil && moved != n || err != nil && !errors.Is(err, context.Canceled) {
			r.Errorf("transfer %d: %d bytes, %v", i, moved, err)
		}
		clear(data) // it is ours again: the race detector looks
	}
	if !r.self { // where it is copied at once
		bulkCancelInFlight(r, m, far, data)
	}
	ctx, cancel := context.WithCancel(r.Ctx)
	cancel()
	if n, err := who.Pull(ctx, far, 0, rpc.Memory{data}); n != 0 || !errors.Is(err, context.Canceled) {
		r.Errorf("cancelled before it began: %d bytes, %v", n, err)
	}
	t := who.StartPull(r.Ctx, far, 5, rpc.Memory{data[:1000]})
	<-t.Done()
	t.Cancel()
	if n, err := t.Wait(r.Ctx); n != 1000 || err != nil {
		r.Errorf("cancelled after it had ended: %d bytes, %v", n, err)
	}
}

// bulkCancelInFlight cancels a Pull while its bytes come: from Wait's return on the memory is left alone.
func bulkCancelInFlight(r *rig, m *mover, far *rpc.Bulk, data []byte) {
	const tries = 50
	sent := func() (n uint64) {
		for _, ep := range m.a.el.Endpoints() {
			n += ep.Stats().SentBytes
		}
		return n
	}
	for range tries {
		clear(data)
		before := sent()
		t := m.b.StartPull(r.Ctx, far, 0, rpc.Memory{data})
		for sent() < before+1<<20 && r.Ctx.Err() == nil {
			runtime.Gosched()
		}
		t.Cancel()
		if _, err := t.Wait(r.Ctx); err == nil {
			continue // it was faster
		}
		clear(data)
		time.Sleep(20 * time.Millisecond) // what was under way is here by now, or soon
		for i, b := range data {
			if b != 0 {
				r.Fatalf("byte %d was written after the Pull had ended", i)
			}
		}
		return
	}
	r.Errorf("none of %d Pulls could be cancelled in flight", tries)
}

func bulkInline(r *rig) {
	m := r.movers()
	r.serve(m.b, "first", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		b, _, err := rpc.DecodeBulk(c.Req)
		if err != nil {
			return nil, err
		}
		data := make([]byte, 5)
		_, err = c.Pull(ctx, b, 0, rpc.Memory{data})
		return data, err
	})
	seg := r.segment(m.a, 100_000, fabric.Writable, 1)
	for _, live := range []bool{false, true} {
		wire, err := r.expose(m.a, fabric.RightRead, rpc.BulkOptions{Live: live}, rpc.Span{Segment: seg, Size: 100}).Append(nil)
		r.Must(err)
		got, err := m.a.Call(r.Ctx, m.ep, "first", wire)
		switch {
		case live && !r.self:
			if err == nil || !strings.Contains(err.Error(), "inline handler cannot wait") {
				r.Errorf("what would have to be waited for: %v", err)
			}
		case err != nil || !bytes.Equal(got, seg.Bytes()[:5]):
			r.Errorf("what is at hand: %q, %v", got, err)
		}
	}
	bulkInlineTransfer(r, m)
}

// bulkInlineTransfer has an inline handler wait for a transfer that another goroutine makes.
func bulkInlineTransfer(r *rig, m *mover) {
	seg := r.segment(m.a, 8<<20, fabric.Writable, 1)
	wire, err := r.expose(m.a, fabric.RightRead|fabric.RightWrite, rpc.BulkOptions{}, whole(seg)).Append(nil)
	r.Must(err)
	moving := make(chan *rpc.Transfer, 1)
	data := make([]byte, seg.Size())
	r.serve(m.b, "waits", inline(), func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		b, _, err := rpc.DecodeBulk(c.Req)
		if err != nil {
			return nil, err
		}
		t := m.b.StartPull(r.Ctx, b, 0, rpc.Memory{data})
		moving <- t
		_, err = t.Wait(ctx)
		return nil, err
	})
	if !r.self {
		r.dial(m.b, m.a)
	}
	_, err = m.a.Call(r.Ctx, m.ep, "waits", wire)
	if !r.self && (err == nil || !strings.Contains(err.Error(), "inline handler cannot wait")) {
		r.Errorf("an inline handler that waits for a transfer: %v", err)
	}
	if n, err := (<-moving).Wait(r.Ctx); err != nil || n != seg.Size() || !bytes.Equal(data, seg.Bytes()) {
		r.Errorf("the transfer: %d bytes, %v", n, err)
	}
}

func bulkManyAtOnce(r *rig) {
	m := r.movers()
	seg := r.segment(m.a, 1<<20, fabric.Writable, 8)
	var wg sync.WaitGroup
	for i := range 16 {
		b := r.expose(m.a, fabric.RightRead, rpc.BulkOptions{Live: true}, rpc.Span{Segment: seg, Offset: uint64(i) * 1000, Size: 500_000})
		wg.Go(func() {
			for j := range 4 {
				at := uint64(i*1000 + j)
				req := binary.LittleEndian.AppendUint64(nil, uint64(j))
				req, err := b.Append(binary.LittleEndian.AppendUint64(req, 200_000))
				if err != nil {
					r.Error(err)
					return
				}
				got, err := m.a.Call(r.Ctx, m.ep, "pull", req)
				if err != nil || !bytes.Equal(got, seg.Bytes()[at:at+200_000]) {
					r.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
	r.settled(m.a, m.b)
}

func bulkBad(r *rig) {
	m := r.movers()
	seg := r.segment(m.a, 100_000, fabric.Writable, 1)
	b, err := r.expose(m.a, fabric.RightsAll, rpc.BulkOptions{}, whole(seg)).Bind(m.a.addr)
	r.Must(err)
	wire, err := b.Append(nil)
	r.Must(err)
	for n := range wire {
		if _, _, err := rpc.DecodeBulk(wire[:n]); !errors.Is(err, rpc.ErrWire) {
			r.Errorf("%d of %d bytes: %v", n, len(wire), err)
		}
	}
	// A wrong secret, which sits before the size that ends the bytes.
	bad := bytes.Clone(wire)
	bad[len(bad)-9] ^= 1
	far, _, err := rpc.DecodeBulk(bad)
	r.Must(err)
	if _, err := m.do(r, "pull", far, 0, 10); err == nil {
		r.Error("pulled with a wrong secret")
	}
	if n := m.b.Stats().Malformed; n != 0 {
		r.Errorf("%d malformed messages", n)
	}
	bulkForeign(r, m)
}

// bulkForeign exposes memory that is not this element's.
func bulkForeign(r *rig, m *mover) {
	other := r.side(rpc.Config{})
	for _, o := range []rpc.BulkOptions{{}, {Live: true}} {
		if b, err := other.Expose(fabric.RightRead, o, rpc.Span{Segment: r.segment(m.a, 100, fabric.Writable, 1), Size: 10}); err == nil {
			b.Close()
			r.Error("another element's segment was exposed")
		}
	}
}
