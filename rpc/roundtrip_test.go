package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
)

// oneWay is a packet's time under way in these tests. Nothing else takes time, so that
// the world's clock counts round trips.
const oneWay = time.Millisecond

// simPair is two connected elements of a simulated network, each with a Peer.
type simPair struct {
	w    *sim.World
	a, b *sim.Host
	p    map[*sim.Host]*Peer
	ep   *fabric.Endpoint // at a, to b
}

func newSimPair(t testing.TB, mapped bool, limit func(*fabric.Limits)) *simPair {
	t.Helper()
	s := &simPair{w: sim.New(1, sim.Faults{}), p: map[*sim.Host]*Peer{}}
	n := sim.NewNetwork(s.w, sim.WireFaults{MinDelay: oneWay, MaxDelay: oneWay, Room: 1 << 15, Burst: 1 << 15, Descriptors: mapped})
	t.Cleanup(n.Close)
	program := sim.Program{
		Configure: func(_ *sim.Host, c *fabric.Config) { limit(&c.Limits) },
		Start: func(h *sim.Host) (err error) {
			s.p[h], err = New(h.Element(), Config{})
			return err
		},
	}
	var err error
	if s.a, err = n.Add("a", program); err == nil {
		s.b, err = n.Add("b", program)
	}
	if err == nil {
		s.ep, _, err = n.Connect(s.a, s.b)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range s.p {
			p.Close()
		}
	})
	return s
}

// cost runs something that waits at a, and counts round trips and the frames that a sent for it.
func (s *simPair) cost(t testing.TB, do func(ctx context.Context) error) (trips int, frames uint64) {
	t.Helper()
	done, before := false, s.ep.Stats().SentFrames
	s.a.Go(func(ctx context.Context) {
		start := s.w.Now()
		if err := do(ctx); err != nil {
			t.Error(err)
		}
		trips = int((s.w.Now() - start + int64(oneWay)) / int64(2*oneWay))
		frames, done = s.ep.Stats().SentFrames-before, true
	})
	for end := s.w.Now() + int64(5*time.Minute); !done; s.w.Run(oneWay) {
		if s.w.Now() > end {
			t.Fatal("the call did not end")
		}
	}
	return trips, frames
}

// tiny is a Bulk of b's of many segments of a few bytes, as a reads it, and all its bytes.
func (s *simPair) tiny(t testing.TB, rights fabric.Rights, count int) (mine, far *Bulk, all []byte) {
	t.Helper()
	var spans []Span
	for i := range count {
		seg := s.segment(t, 8)
		copy(seg.Bytes(), fmt.Sprintf("%08d", i))
		all = append(all, seg.Bytes()...)
		spans = append(spans, Span{Segment: seg, Size: 8})
	}
	mine, far = s.expose(t, rights, spans)
	return mine, far, all
}

// segment makes one of b's.
func (s *simPair) segment(t testing.TB, n int) *fabric.Segment {
	t.Helper()
	seg, err := s.b.Element().NewSegment(uint64(n), fabric.Writable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	return seg
}

func (s *simPair) expose(t testing.TB, rights fabric.Rights, spans []Span) (mine, far *Bulk) {
	t.Helper()
	mine, err := s.p[s.b].Expose(rights, BulkOptions{}, spans...)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := mine.Append(nil)
	if err == nil {
		far, _, err = DecodeBulk(wire)
	}
	if err != nil {
		t.Fatal(err)
	}
	return mine, far
}

func (s *simPair) pull(t testing.TB, far *Bulk, want []byte) (trips int, frames uint64) {
	t.Helper()
	got := make([]byte, len(want))
	trips, frames = s.cost(t, func(ctx context.Context) error {
		_, err := s.p[s.a].Pull(ctx, far, 0, Memory{got})
		return err
	})
	if !bytes.Equal(got, want) {
		t.Error("other bytes arrived")
	}
	return trips, frames
}

// TestBulkRoundTrips counts what a Bulk of many tiny segments costs. One after the other,
// imports alone would be 4096 round trips, each time if they were not kept.
func TestBulkRoundTrips(t *testing.T) {
	const count = 4096
	for _, c := range []struct {
		name   string
		mapped bool
		rights fabric.Rights
	}{{"tcp", false, fabric.RightsAll}, {"shm", true, fabric.RightsAll}, {"shm, not mapped", true, fabric.RightRead}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSimPair(t, c.mapped, func(*fabric.Limits) {})
			_, far, all := s.tiny(t, c.rights, count)
			const windows = count / opsAtOnce
			first, frames := s.pull(t, far, all)
			t.Logf("the first transfer: %d round trips, %d frames", first, frames)
			// The list takes two; then imports and chunks are under way opsAtOnce together.
			if first > 2*windows+4 || frames > 2*count+20 {
				t.Errorf("the first transfer takes %d round trips and %d frames", first, frames)
			}
			again, frames := s.pull(t, far, all)
			t.Logf("the second: %d round trips, %d frames", again, frames)
			if again > windows+2 || frames > count+20 {
				t.Errorf("the second transfer takes %d round trips and %d frames", again, frames)
			}
		})
	}
}

// TestBulkAtTheLimit moves a Bulk of as many parts as there can be: what is kept of it is enough
// to import none of them again, and no more than the bound.
func TestBulkAtTheLimit(t *testing.T) {
	s := newSimPair(t, false, func(*fabric.Limits) {})
	seg := s.segment(t, MaxParts)
	spans := make([]Span, MaxParts)
	for i := range spans {
		spans[i] = Span{Segment: seg, Offset: uint64(i), Size: 1}
		seg.Bytes()[i] = byte(i * 7)
	}
	_, far := s.expose(t, fabric.RightRead, spans)
	s.pull(t, far, seg.Bytes())
	if _, frames := s.pull(t, far, seg.Bytes()); frames > MaxParts+100 {
		t.Errorf("%d frames for %d parts that were imported before", frames, MaxParts)
	}
	rc := &s.p[s.a].conn(s.ep).remotes
	if n := len(rc.known); n < MaxParts || n > maxRemotes {
		t.Errorf("%d imports are kept", n)
	}
	// What was not used for longest goes first.
	oldest := rc.order.Back().Value.(*keptRemote).Key()
	next := rc.order.Back().Prev().Value.(*keptRemote).Key()
	if rc.find(oldest) == nil {
		t.Fatal("the oldest is not there")
	}
	s.cost(t, func(ctx context.Context) error {
		for len(rc.known) < maxRemotes || rc.known[next] != nil {
			k, err := seg.KeyRange(0, 1, fabric.RightRead)
			if err != nil {
				return err
			}
			if _, err := rc.get(ctx, s.ep, k); err != nil {
				return err
			}
			if n := rc.order.Len(); n != len(rc.known) || n > maxRemotes {
				return fmt.Errorf("%d imports are kept, %d in order", len(rc.known), n)
			}
		}
		return nil
	})
	if rc.find(oldest) == nil {
		t.Error("what was used last went first")
	}
}

// TestImportsGo: what was imported and is not used for a while is forgotten, what is in use stays.
func TestImportsGo(t *testing.T) {
	s := newSimPair(t, false, func(*fabric.Limits) {})
	_, far, all := s.tiny(t, fabric.RightsAll, 300)
	kept := func() int { return len(s.p[s.a].conn(s.ep).remotes.known) }
	s.pull(t, far, all)
	for range 3 {
		s.w.Run(remoteTime * 2 / 3)
		if _, frames := s.pull(t, far, all[:800]); frames > 100+10 || kept() < 100 {
			t.Errorf("%d frames for 100 parts that are in use", frames)
		}
	}
	if n := kept(); n != 100 {
		t.Errorf("%d imports are kept, of which 100 are in use", n)
	}
	s.w.Run(2 * remoteTime)
	if n := kept(); n != 0 {
		t.Errorf("%d imports are kept for nobody", n)
	}
	s.pull(t, far, all)
}

// TestBulkWithFewOps has room for fewer operations than a transfer would like to have under way.
func TestBulkWithFewOps(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		s := newSimPair(t, mapped, func(l *fabric.Limits) { l.OpsPerEndpoint = 3 })
		_, far, all := s.tiny(t, fabric.RightsAll, 100)
		s.pull(t, far, all)
		large := s.segment(t, 3*chunkBytes+5)
		large.Bytes()[2*chunkBytes] = 1
		_, far = s.expose(t, fabric.RightRead, []Span{{large, 0, large.Size()}})
		s.pull(t, far, large.Bytes())
	}
}

// TestBulkPartRevoked takes one part of many away, before and after it was imported: nothing from
// there on counts as moved, the reason is told, and the key is forgotten.
func TestBulkPartRevoked(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		for _, imported := range []bool{false, true} {
			s := newSimPair(t, mapped, func(*fabric.Limits) {})
			mine, far, all := s.tiny(t, fabric.RightsAll, 200)
			if imported {
				s.pull(t, far, all)
			}
			const gone = 100
			if err := s.b.Element().Revoke(mine.parts[gone].key); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(all))
			s.cost(t, func(ctx context.Context) error {
				n, err := s.p[s.a].Pull(ctx, far, 0, Memory{got})
				if n > 8*gone || !bytes.Equal(got[:n], all[:n]) || !errors.Is(err, fabric.ErrRevoked) {
					t.Errorf("mapped %v, imported %v: %d bytes, %v", mapped, imported, n, err)
				}
				return nil
			})
			if s.p[s.a].conn(s.ep).remotes.find(mine.parts[gone].key) != nil {
				t.Error("a key that does not hold is kept")
			}
		}
	}
}
