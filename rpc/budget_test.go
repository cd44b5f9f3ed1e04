package rpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestHoardersGiveWay: several peers that together have all the memory for answers, and read none for an hour, do not keep
// it from who reads.
func TestHoardersGiveWay(t *testing.T) {
	const size, hoarders, calls, linger = 128 << 10, 12, 60, 200 * time.Millisecond
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: 4 * size, LingerTime: linger})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { return make([]byte, size), nil })
	for range hoarders {
		newHolder(t, b, true).call(t, "large", calls)
	}
	waitFor(t, "they have it all", func() bool { return b.p.lentBytes() == 4*size })
	a := newSide(t, "a", Limits{})
	ep, err := a.el.Dial(t.Context(), b.el.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 3 {
		if got, err := a.p.Call(ctx, ep, "large", nil); err != nil || len(got) != size {
			t.Fatalf("call %d: %d bytes, %v; %+v", i, len(got), err, b.p.Stats())
		}
	}
}

// shares is a budget with some endpoints that have nothing yet.
type shares struct {
	t  *testing.T
	b  budget
	of [4]portion
}

func newShares(t *testing.T, limit int64) *shares {
	s := &shares{t: t, b: budget{limit: limit, el: newSide(t, "a", Limits{}).el}}
	for i := range s.of {
		s.of[i].b = &s.b
	}
	return s
}

// wait has somebody wait for n bytes.
func (s *shares) wait(ctx context.Context, i int, n int64) (ended chan error) {
	s.t.Helper()
	ended = make(chan error, 1)
	before := s.waiting(i)
	go func() { ended <- s.of[i].wait(ctx, n, func() error { return nil }) }()
	waitFor(s.t, "it waits", func() bool { return s.waiting(i) > before })
	return ended
}

func (s *shares) waiting(i int) int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.of[i].waits.Len()
}

// have says what all have.
func (s *shares) have(when string, want ...int64) {
	s.t.Helper()
	sum := int64(0)
	for i := range s.of {
		n := s.of[i].inUse()
		if sum += n; n != want[i] {
			s.t.Errorf("%s: endpoint %d has %d, not %d", when, i, n, want[i])
		}
	}
	if n := s.b.inUse(); n != sum {
		s.t.Errorf("%s: all have %d, and %d together", when, sum, n)
	}
}

func (s *shares) granted(what string, ended chan error) {
	s.t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		s.t.Fatalf("%s waits for ever", what)
	}
}

// TestShares: an endpoint may have as much as it leaves to others, however many have had theirs.
func TestShares(t *testing.T) {
	s := newShares(t, 64)
	for i := range s.of {
		for s.of[i].take(1) {
		}
	}
	s.have("each has taken what it can", 32, 16, 8, 4)
	for i := range s.of {
		if !s.of[i].crowded() {
			t.Errorf("endpoint %d has all it can, and is said not to", i)
		}
	}
	s.of[0].give(32)
	for s.of[3].take(1) {
	}
	s.have("one has left", 0, 16, 8, 20)
	if s.of[0].crowded() {
		t.Error("who has nothing is said to have too much")
	}
	all := newShares(t, 64)
	if !all.of[0].take(64) || all.of[1].take(1) {
		t.Error("one payload that takes it all is not taken, or more than there is")
	}
}

// TestTurns: who waits gets what others give back, endpoint by endpoint, and a large payload does not wait for ever for small ones.
func TestTurns(t *testing.T) {
	s := newShares(t, 64)
	for i, n := range []int64{32, 16} {
		if !s.of[i].take(n) {
			t.Fatal("there is no room")
		}
	}
	first, second := s.wait(t.Context(), 0, 1), s.wait(t.Context(), 0, 1) // for itself: it has its share
	if !s.of[2].take(1) {
		t.Error("one that waits for itself is in others' way")
	}
	s.of[2].give(1)
	large := s.wait(t.Context(), 2, 17)
	if s.of[3].take(1) || s.of[1].take(1) {
		t.Error("somebody overtakes one who waits for what others have")
	}
	small, next := s.wait(t.Context(), 3, 1), s.wait(t.Context(), 3, 1)
	s.have("all wait", 32, 16, 0, 0)
	s.of[1].give(2)
	s.granted("the large one", large)
	s.granted("a small one", small)
	s.have("there is no more", 32, 14, 17, 1)
	s.of[2].give(17)
	s.granted("the next", next)
	s.have("those behind it", 32, 14, 0, 2)
	s.of[0].give(16)
	s.granted("who had too much", first)
	s.granted("and again", second)
	s.have("at the end", 18, 14, 0, 2)
}

// TestWaitEnds: a wait ends with its context, and with the endpoint; who is behind it goes on.
func TestWaitEnds(t *testing.T) {
	s := newShares(t, 64)
	if !s.of[0].take(60) {
		t.Fatal("there is no room")
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := s.wait(ctx, 1, 8)
	behind := s.wait(t.Context(), 2, 4)
	cancel()
	if err := <-late; !errors.Is(err, ErrBusy) || !errors.Is(err, ErrCanceled) || !strings.Contains(err.Error(), "60 of all peers") {
		t.Errorf("one that was cancelled: %v", err)
	}
	s.granted("the one behind", behind)
	lost := []chan error{s.wait(t.Context(), 1, 8), s.wait(t.Context(), 1, 8)}
	s.of[1].fail(fabric.ErrPeerLost)
	for _, ended := range lost {
		if err := <-ended; err != fabric.ErrPeerLost {
			t.Errorf("one for who is lost: %v", err)
		}
	}
	gone := errors.New("gone")
	if err := s.of[1].wait(t.Context(), 8, func() error { return gone }); err != gone {
		t.Errorf("what came too late to be found: %v", err)
	}
	s.have("at the end", 60, 0, 4, 0)
	if n := s.b.line.Len(); n != 0 {
		t.Errorf("%d are in line", n)
	}
}

// TestHoardersLeaveRoom: as long as what hoarders have is theirs, others have room beside it.
func TestHoardersLeaveRoom(t *testing.T) {
	const size, hoarders = 128 << 10, 3
	b := newSide(t, "b", Limits{MaxBytes: size, BulkBytes: 32 * size, LingerTime: time.Hour})
	if _, err := b.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int64
	b.serve(t, "large", func(context.Context, *Call) ([]byte, error) { ran.Add(1); return make([]byte, size), nil })
	for i := range int64(hoarders) {
		newHolder(t, b, true).call(t, "large", 40)
		waitFor(t, "its calls have run", func() bool { return ran.Load() == (i+1)*40 && b.p.Stats().Active == 0 })
	}
	a := newSide(t, "a", Limits{})
	ep, err := a.el.Dial(t.Context(), b.el.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 3 {
		if got, err := a.p.Call(ctx, ep, "large", nil); err != nil || len(got) != size {
			t.Fatalf("call %d: %d bytes, %v; %+v", i, len(got), err, b.p.Stats())
		}
	}
}
