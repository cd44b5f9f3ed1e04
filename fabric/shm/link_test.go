package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

const testID = fabric.FirstMessageID + 1

// number is a body that carries i.
func number(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)) }

// inOrder makes r check that frames carry 0, 1, 2, … in their first 8 bytes.
func inOrder(r *recorder) {
	next := uint64(0)
	r.frame = func(_ fabric.FrameID, body []byte) error {
		if got := binary.LittleEndian.Uint64(body); got != next {
			return fmt.Errorf("frame %d arrived, %d is due", got, next)
		}
		next++
		return nil
	}
}

func TestFramesArriveInOrder(t *testing.T) {
	a, b := pair(t, Config{})
	const count = 5000
	var bodies [][]byte
	b.r.frame = func(id fabric.FrameID, body []byte) error {
		if want := bodies[b.r.frames-1]; id != testID || !bytes.Equal(body, want) {
			return fmt.Errorf("frame %d: id %d, %d bytes, want %d", b.r.frames, id, len(body), len(want))
		}
		return nil
	}
	for i := range count {
		n := rand.IntN(200)
		if i%50 == 0 {
			n = rand.IntN(fabric.MaxFrameBytes + 1)
		}
		body := pattern(n, byte(i))
		bodies = append(bodies, body)
		cut := rand.IntN(n + 1)
		for a.l.Send(testID, fabric.Normal, body[:cut], body[cut:]) == fabric.ErrLinkFull {
			b.poll()
		}
	}
	until(t, "all frames", func() bool { return b.r.frames == count || b.r.lost != nil }, a.t, b.t)
	if b.r.lost != nil {
		t.Fatal(b.r.lost)
	}
}

func TestSendRefuses(t *testing.T) {
	a, _ := pair(t, Config{})
	tests := []struct {
		name  string
		id    fabric.FrameID
		class fabric.Class
		n     int
	}{
		{"id of 13 bits", fabric.MaxFrameID + 1, fabric.Normal, 0},
		{"unknown class", testID, 2, 0},
		{"too long", testID, fabric.Reserved, fabric.MaxFrameBytes + 1},
	}
	for _, tt := range tests {
		err := a.l.Send(tt.id, tt.class, nil, make([]byte, tt.n))
		if err == nil || errors.Is(err, fabric.ErrLinkFull) || errors.Is(err, fabric.ErrLinkClosed) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestBothFull fills both directions with Normal frames and then has each side
// answer every frame with a Reserved one: all must get through.
func TestBothFull(t *testing.T) {
	a, b := pair(t, Config{Slots: 64})
	fill := func(e *end) (n int) {
		for e.l.Send(testID, fabric.Normal, nil, nil) == nil {
			n++
		}
		return n
	}
	const replyID = testID + 1
	replies := map[*end]int{}
	unsent := map[*end]int{}
	for _, e := range []*end{a, b} {
		flush := func() {
			for unsent[e] > 0 && e.l.Send(replyID, fabric.Reserved, nil, nil) == nil {
				unsent[e]--
			}
		}
		e.r.frame = func(id fabric.FrameID, _ []byte) error {
			if id == replyID {
				replies[e]++
				return nil
			}
			unsent[e]++
			flush()
			return nil
		}
		e.r.onWritable = flush
	}
	na, nb := fill(a), fill(b)
	if na != 48 || nb != 48 {
		t.Fatalf("%d and %d Normal frames fit into 64 slots, want 48", na, nb)
	}
	until(t, "replies", func() bool { return replies[a] == na && replies[b] == nb }, a.t, b.t)
}

func TestWritable(t *testing.T) {
	for _, size := range []int{8, 30 << 10} {
		a, b := pair(t, Config{Slots: 64, DataBytes: minDataBytes})
		inOrder(b.r)
		const count = 1000
		sent := 0
		body := make([]byte, size)
		send := func() {
			for sent < count {
				binary.LittleEndian.PutUint64(body, uint64(sent))
				if a.l.Send(testID, fabric.Normal, nil, body) != nil {
					return
				}
				sent++
			}
		}
		a.r.onWritable = send
		send()
		if sent == count {
			t.Fatal("the ring never filled")
		}
		a.poll()
		if a.r.writable != 0 {
			t.Error("Writable before there was room")
		}
		until(t, "all frames", func() bool { return b.r.frames == count }, a.t, b.t)
		if b.r.lost != nil {
			t.Error(b.r.lost)
		}
		if a.r.writable < count/64 {
			t.Errorf("%d B: Writable was called %d times", size, a.r.writable)
		}
	}
}

func TestCloseIsHeard(t *testing.T) {
	a, b := pair(t, Config{})
	for i := range 100 {
		must(t, a.l.Send(testID, fabric.Normal, nil, number(i)))
	}
	must(t, a.l.Close())
	must(t, a.l.Close())
	if err := a.l.Send(testID, fabric.Normal, nil, nil); err != fabric.ErrLinkClosed {
		t.Errorf("Send after Close: %v", err)
	}
	until(t, "Lost", func() bool { return b.r.lost != nil }, a.t, b.t)
	if !errors.Is(b.r.lost, ErrPeerClosed) {
		t.Errorf("Lost(%v), want ErrPeerClosed", b.r.lost)
	}
	if b.r.frames != 100 {
		t.Errorf("%d frames before Lost, 100 were published", b.r.frames)
	}
	if err := b.l.Send(testID, fabric.Normal, nil, nil); err != fabric.ErrLinkClosed {
		t.Errorf("Send after Lost: %v", err)
	}
	if err := b.l.SendFD(1, 0); err != fabric.ErrLinkClosed {
		t.Errorf("SendFD after Lost: %v", err)
	}
	for range 10 {
		a.poll()
	}
	if a.r.lost != nil || a.r.frames != 0 {
		t.Errorf("the side that closed heard %v", a.r.lost)
	}
}

func TestFrameErrorBreaksTheLink(t *testing.T) {
	a, b := pair(t, Config{})
	boom := errors.New("not what was agreed")
	b.r.frame = func(fabric.FrameID, []byte) error { return boom }
	for range 10 {
		must(t, a.l.Send(testID, fabric.Normal, nil, nil))
	}
	until(t, "both Lost", func() bool { return a.r.lost != nil && b.r.lost != nil }, a.t, b.t)
	if b.r.lost != boom || b.r.frames != 1 {
		t.Errorf("after %d frames Lost(%v), want %v after 1", b.r.frames, b.r.lost, boom)
	}
	if !errors.Is(a.r.lost, ErrPeerClosed) || !strings.Contains(a.r.lost.Error(), "protocol") {
		t.Errorf("the peer lost it for %v", a.r.lost)
	}
}

// TestGarbageBreaksOnlyItsLink writes over the memory of one of two links.
func TestGarbageBreaksOnlyItsLink(t *testing.T) {
	for seed := range uint64(20) {
		a, b := pair(t, Config{Slots: minSlots, DataBytes: minDataBytes})
		c := &end{t: newTransport(t, Config{}), r: &recorder{}}
		a2 := &end{t: a.t, r: &recorder{}}
		join(t, a2, c)
		rnd := rand.New(rand.NewPCG(seed, 2))
		until(t, "Lost", func() bool {
			for range 200 { // what a hostile b could write
				at := rnd.IntN(len(b.l.mem)/8) * 8
				if rnd.IntN(2) == 0 {
					at = rnd.IntN(headerBytes/8+2*minSlots*slotBytes/8) * 8
				}
				binary.LittleEndian.PutUint64(b.l.mem[at:], rnd.Uint64()>>(rnd.IntN(8)*8))
			}
			_ = a.l.Send(testID, fabric.Normal, nil, make([]byte, 100))
			return a.r.lost != nil
		}, a.t)
		if !errors.Is(a.r.lost, ErrProtocol) {
			t.Errorf("Lost(%v), want ErrProtocol", a.r.lost)
		}
		must(t, c.l.Send(testID, fabric.Normal, nil, nil))
		until(t, "the other link's frame", func() bool { return a2.r.frames == 1 }, a.t)
		a.t.Close()
		b.t.Close()
		c.t.Close()
	}
}

// TestManyLinks has more links than can be hot; each gets its frames.
func TestManyLinks(t *testing.T) {
	const count = 3 * maxHot
	hub := &end{t: newTransport(t, Config{}), r: &recorder{}}
	spoke := &end{t: newTransport(t, Config{}), r: &recorder{}}
	var ls []*link
	var rs []*recorder
	for range count {
		h := &end{t: hub.t, r: &recorder{}}
		inOrder(h.r)
		join(t, h, spoke)
		ls, rs = append(ls, spoke.l), append(rs, h.r)
	}
	sent := make([]int, count)
	for round := range 300 {
		for i := range ls {
			if round%10 == i%10 || i < 5 {
				must(t, ls[i].Send(testID, fabric.Normal, nil, number(sent[i])))
				sent[i]++
			}
		}
		if round%3 == 0 {
			if hub.t.Arm(); len(hub.t.leader.hot) > maxHot {
				t.Fatalf("%d rings are hot", len(hub.t.leader.hot))
			}
			hub.t.Disarm()
		}
		hub.t.Poll(rand.IntN(100), never)
	}
	until(t, "all frames", func() bool {
		for i, r := range rs {
			if r.lost != nil {
				t.Fatal(r.lost)
			}
			if r.frames != sent[i] {
				return false
			}
		}
		return true
	}, hub.t)
}

// TestColdRingsCool checks that idle rings stop being polled, and still deliver.
func TestColdRingsCool(t *testing.T) {
	a, b := pair(t, Config{})
	must(t, a.l.Send(testID, fabric.Normal, nil, nil))
	until(t, "heat", func() bool { return b.l.hot }, b.t)
	until(t, "cooling", func() bool { return !b.l.hot }, b.t)
	if b.l.rx.ctl.attention.Load() != 1 {
		t.Error("a cold ring does not want to be rung")
	}
	must(t, a.l.Send(testID, fabric.Normal, nil, nil))
	until(t, "the frame", func() bool { return b.r.frames == 2 }, b.t)
}

// TestFairness has one ring always full: another's frame must not wait.
func TestFairness(t *testing.T) {
	hub := newTransport(t, Config{})
	a := &end{t: hub, r: &recorder{}}
	b := &end{t: newTransport(t, Config{}), r: &recorder{}}
	c := &end{t: hub, r: &recorder{}}
	d := &end{t: newTransport(t, Config{}), r: &recorder{}}
	join(t, a, b)
	join(t, c, d)
	for _, budget := range []int{1, 2, 64} {
		for range 50 {
			for b.l.Send(testID, fabric.Normal, nil, nil) == nil {
			}
			must(t, d.l.Send(testID, fabric.Normal, nil, nil))
			before := c.r.frames
			for polls := 0; c.r.frames == before; polls++ {
				if polls == 2*quantum+4 {
					t.Fatalf("budget %d: the quiet link waited %d polls", budget, polls)
				}
				hub.Poll(budget, never)
			}
			until(t, "drain", func() bool { _, ok := a.l.rx.peek(); return !ok }, hub)
		}
	}
}

// TestLeadIsHandedOn gives the lead away from inside every callback, as a handler
// that blocks does. The old leader then touches nothing, the new one goes on.
func TestLeadIsHandedOn(t *testing.T) {
	a, b := pair(t, Config{Slots: 64, DataBytes: minDataBytes})
	const count = 2000
	next, depth := 0, 0
	var lead atomic.Uint64 // number of the goroutine that leads
	var poll func()
	handOn := func() {
		if depth == 50 {
			return // this one keeps the lead
		}
		depth++
		lead.Add(1)
		done := make(chan struct{})
		go func() { poll(); close(done) }()
		<-done
		depth--
	}
	poll = func() {
		b.t.Poll(7, fabric.NewTurn(&lead, lead.Load()))
	}
	b.r.frame = func(_ fabric.FrameID, body []byte) error {
		if got := int(binary.LittleEndian.Uint64(body)); got != next {
			return fmt.Errorf("frame %d, want %d", got, next)
		}
		next++
		handOn()
		return nil
	}
	b.r.fd = func(_ uint64, fd int) { unix.Close(fd); handOn() }
	for sent := 0; next < count && b.r.lost == nil; {
		for sent < count && a.l.Send(testID, fabric.Normal, number(sent), make([]byte, sent%300)) == nil {
			if sent++; sent%100 == 0 {
				_ = a.l.SendFD(1, 0)
			}
		}
		poll()
	}
	if b.r.lost != nil {
		t.Fatal(b.r.lost)
	}
	// The last callback reports an error after it gave the lead away.
	boom := errors.New("late")
	b.r.frame = func(fabric.FrameID, []byte) error { lead.Add(1); return boom }
	must(t, a.l.Send(testID, fabric.Normal, nil, nil))
	until(t, "Lost", func() bool { poll(); return b.r.lost != nil }, a.t)
	if b.r.lost != boom {
		t.Errorf("Lost(%v), want %v", b.r.lost, boom)
	}
}

func TestManySenders(t *testing.T) {
	a, b := pair(t, Config{})
	const goroutines, each = 8, 2000
	next := make([]int, goroutines)
	b.r.frame = func(_ fabric.FrameID, body []byte) error {
		who, i := int(body[8]), int(binary.LittleEndian.Uint64(body))
		if next[who] != i {
			return fmt.Errorf("sender %d: frame %d, want %d", who, i, next[who])
		}
		next[who]++
		return nil
	}
	var wg sync.WaitGroup
	for who := range goroutines {
		wg.Go(func() {
			tail := make([]byte, 1+who*100)
			tail[0] = byte(who)
			for i := 0; i < each; {
				if a.l.Send(testID, fabric.Normal, number(i), tail) == nil {
					i++
				}
			}
		})
	}
	until(t, "all frames", func() bool { return b.r.frames == goroutines*each || b.r.lost != nil }, b.t)
	wg.Wait()
	if b.r.lost != nil {
		t.Fatal(b.r.lost)
	}
}

func TestSendFD(t *testing.T) {
	a, b := pair(t, Config{})
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	var tags []uint64
	b.r.fd = func(tag uint64, fd int) {
		tags = append(tags, tag)
		f := os.NewFile(uintptr(fd), "sent")
		fmt.Fprintf(f, "%d ", tag)
		f.Close()
	}
	// A descriptor arrives before the frames that were sent after it.
	b.r.frame = func(_ fabric.FrameID, body []byte) error {
		if want := int(binary.LittleEndian.Uint64(body)); len(tags) < want {
			return fmt.Errorf("%d descriptors before this frame, want at least %d", len(tags), want)
		}
		return nil
	}
	const count = 20
	for i := range count {
		must(t, a.l.SendFD(uint64(i), int(w.Fd())))
		must(t, a.l.Send(testID, fabric.Normal, nil, number(i+1)))
		if i%3 == 0 {
			until(t, "a frame", func() bool { return b.r.frames == i+1 || b.r.lost != nil }, b.t)
		}
	}
	w.Close()
	until(t, "all frames", func() bool { return b.r.frames == count || b.r.lost != nil }, b.t)
	if b.r.lost != nil {
		t.Fatal(b.r.lost)
	}
	got, err := io.ReadAll(r)
	must(t, err)
	if want := "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 "; string(got) != want {
		t.Errorf("got %q", got)
	}
}

// TestSendFDBound sends descriptors that nobody takes until there is no room.
func TestSendFDBound(t *testing.T) {
	a, b := pair(t, Config{})
	before := openFDs(t)
	sent := 0
	for ; ; sent++ {
		if err := a.l.SendFD(uint64(sent), 0); err != nil {
			if err != fabric.ErrLinkFull {
				t.Fatal(err)
			}
			break
		}
		if sent > 100_000 {
			t.Fatal("no bound")
		}
	}
	until(t, "Writable", func() bool { return a.r.writable > 0 }, a.t, b.t)
	must(t, a.l.SendFD(1, 0))
	got := 0
	b.r.fd = func(_ uint64, fd int) { unix.Close(fd); got++ }
	until(t, "the last descriptor", func() bool { return got > 0 }, a.t, b.t)
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	t.Logf("%d descriptors under way at most", sent)
}

// TestNothingLeaks links and unlinks in every way and counts descriptors and mappings.
func TestNothingLeaks(t *testing.T) {
	maps := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		must(t, err)
		return bytes.Count(b, []byte("wherry-"))
	}
	fds, mapped := openFDs(t), maps()
	for i := range 20 {
		a, b := pair(t, Config{})
		for range 3 {
			x, y := &end{t: a.t, r: &recorder{}}, &end{t: b.t, r: &recorder{}}
			join(t, x, y)
			switch i % 3 {
			case 0:
				x.l.Close()
				until(t, "Lost", func() bool { return y.r.lost != nil }, a.t, b.t)
			case 1:
				y.r.frame = func(fabric.FrameID, []byte) error { return errors.New("no") }
				must(t, x.l.Send(testID, fabric.Normal, nil, nil))
				until(t, "Lost", func() bool { return x.r.lost != nil }, a.t, b.t)
			case 2:
				must(t, x.l.SendFD(1, 0)) // under way when both close
			}
		}
		must(t, a.t.Close())
		must(t, b.t.Close())
		if i%2 == 0 {
			must(t, a.t.Close())
		}
		if a.t.Poll(64, never) != 0 || a.r.lost != nil {
			t.Error("a closed transport calls back")
		}
	}
	if n := openFDs(t); n > fds { // fewer if an earlier test's were open still
		t.Errorf("%d descriptors open, %d before", n, fds)
	}
	if n := maps(); n > mapped {
		t.Errorf("%d mappings, %d before", n, mapped)
	}
}

// TestNoAllocations sends and polls without allocating.
func TestNoAllocations(t *testing.T) {
	a, b := pair(t, Config{})
	small, large := make([]byte, 8), make([]byte, 4096)
	n := testing.AllocsPerRun(1000, func() {
		if a.l.Send(testID, fabric.Normal, small, large) != nil || a.l.Send(testID, fabric.Normal, nil, small) != nil {
			t.Fatal("full")
		}
		for b.poll() == 0 {
		}
		b.t.Arm()
		b.t.Disarm()
	})
	if n != 0 {
		t.Errorf("%v allocations per round", n)
	}
}

// TestRoomOfTheLastQuarter asks for room when the ring is empty and the consumer
// has kept its last release to itself, as it may below a quarter. Only in the
// smallest data ring does a frame of the largest size then not fit.
func TestRoomOfTheLastQuarter(t *testing.T) {
	for _, cold := range []bool{false, true} {
		a, b := pair(t, Config{DataBytes: minDataBytes})
		b.t.leader.asleep = cold // as if all places among the hot were taken
		for _, size := range []int{64 << 10, 64 << 10, 65472} {
			must(t, a.l.Send(testID, fabric.Normal, nil, make([]byte, size)))
		}
		until(t, "three frames", func() bool { return b.r.frames == 3 }, b.t)
		if cold {
			b.poll() // the visit that finds nothing more
		}
		err := a.l.Send(testID, fabric.Normal, nil, make([]byte, fabric.MaxFrameBytes))
		if cold != (err == nil) {
			t.Fatalf("cold %v: %v", cold, err)
		}
		if !cold {
			b.poll() // at once, not when the ring cools
			if a.poll(); a.r.writable != 1 {
				t.Errorf("Writable was called %d times", a.r.writable)
			}
			must(t, a.l.Send(testID, fabric.Normal, nil, make([]byte, fabric.MaxFrameBytes)))
		}
		until(t, "the last frame", func() bool { return b.r.frames == 4 }, b.t)
	}
}

// TestCloseFromCallbacks closes the link, or the whole transport, from inside Poll.
func TestCloseFromCallbacks(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, where := range []string{"frame", "fd", "writable"} {
			a, b := pair(t, Config{Slots: minSlots})
			called := 0
			end := func() {
				called++
				if whole {
					must(t, b.t.Close())
				} else {
					must(t, b.l.Close())
				}
			}
			switch where {
			case "frame":
				b.r.frame = func(fabric.FrameID, []byte) error { end(); return nil }
				for range 5 {
					must(t, a.l.Send(testID, fabric.Normal, nil, nil))
				}
			case "fd":
				b.r.fd = func(_ uint64, fd int) { unix.Close(fd); end() }
				for range 5 {
					must(t, a.l.SendFD(1, 0))
				}
			case "writable":
				b.r.onWritable = end
				for b.l.Send(testID, fabric.Normal, nil, nil) == nil {
				}
			}
			until(t, "the other side's Lost", func() bool { return a.r.lost != nil }, a.t, b.t)
			if called != 1 || b.r.lost != nil {
				t.Errorf("%s: %d callbacks, Lost(%v) after Close", where, called, b.r.lost)
			}
			if !errors.Is(a.r.lost, ErrPeerClosed) {
				t.Errorf("%s: Lost(%v)", where, a.r.lost)
			}
		}
	}
}

// TestDescriptorsLeaveTime has a socket full of descriptors: one Poll takes few.
func TestDescriptorsLeaveTime(t *testing.T) {
	a, b := pair(t, Config{})
	sent, got := 0, 0
	for a.l.SendFD(uint64(sent), 0) == nil {
		sent++
	}
	must(t, a.l.Send(testID, fabric.Normal, nil, nil))
	b.r.fd = func(_ uint64, fd int) { unix.Close(fd); got++ }
	b.r.frame = func(fabric.FrameID, []byte) error {
		if got != sent {
			return fmt.Errorf("a frame after %d of %d descriptors", got, sent)
		}
		return nil
	}
	until(t, "the frame", func() bool {
		before := got
		if b.t.Poll(8, never); got > before+8 {
			t.Fatalf("one Poll of 8 took %d descriptors", got-before)
		}
		return b.r.frames > 0 || b.r.lost != nil
	}, a.t)
	if b.r.lost != nil {
		t.Error(b.r.lost)
	}
}
