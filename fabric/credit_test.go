package fabric

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// creditSide is one of two elements that are joined by fake links.
type creditSide struct {
	ep       *Endpoint
	link     *fakeLink
	inFlight []frame // sent, not delivered yet
	sent     uint64  // messages
	got      uint64
	kept     []Message
	keptCost uint64
}

func newCreditSides(t *rapid.T, l Limits) (sides [2]*creditSide) {
	for i := range sides {
		e, err := New(Config{Manual: true, Now: func() int64 { return 1 }, Incarnation: Incarnation(i + 1), Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		s := &creditSide{link: &fakeLink{room: -1}}
		s.ep, err = (*Layer)(e).Attach(PeerHello{Incarnation: Incarnation(2 - i), Limits: l}, func(Receiver) (Link, error) { return s.link, nil })
		if err != nil {
			t.Fatal(err)
		}
		e.HandleRetaining(70, func(m Message) {
			if n := binary.LittleEndian.Uint64(m.Body); n != s.got {
				t.Fatalf("message %d where %d was due", n, s.got)
			}
			s.got++
			m.Body = nil
			s.kept = append(s.kept, m)
			s.keptCost += m.cost
		})
		sides[i] = s
	}
	return sides
}

// step lets the element pump, and collects what it sent.
func (s *creditSide) step() {
	s.ep.el.Progress()
	s.inFlight = append(s.inFlight, s.link.take()...)
}

func (s *creditSide) deliverTo(t *rapid.T, to *creditSide) {
	if len(s.inFlight) == 0 {
		return
	}
	f := s.inFlight[0]
	s.inFlight = s.inFlight[1:]
	if err := to.ep.receiver().Frame(f.id, f.body); err != nil {
		t.Fatalf("frame %d of %d bytes: %v", f.id, len(f.body), err)
	}
}

func (s *creditSide) release(i int) {
	m := s.kept[i]
	s.kept[i] = s.kept[len(s.kept)-1]
	s.kept = s.kept[:len(s.kept)-1]
	s.keptCost -= m.cost
	m.Release()
}

func TestCreditModel(t *testing.T) {
	l := Limits{WindowBytes: 2 * MaxFrameBytes, OutboxBytes: 200_000}
	rapid.Check(t, func(t *rapid.T) {
		sides := newCreditSides(t, l)
		pick := func(t *rapid.T) (s, other *creditSide) {
			i := rapid.IntRange(0, 1).Draw(t, "side")
			return sides[i], sides[1-i]
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				s, _ := pick(t)
				size := rapid.OneOf(rapid.IntRange(8, 200), rapid.IntRange(8, MaxMessageBytes)).Draw(t, "size")
				send := s.ep.TrySend
				if rapid.Bool().Draw(t, "post") {
					send = s.ep.Post
				}
				switch err := send(70, binary.LittleEndian.AppendUint64(nil, s.sent), make([]byte, size-8)); {
				case err == nil:
					s.sent++
				case !errors.Is(err, ErrBackpressure):
					t.Fatal(err)
				}
				s.step()
			},
			"deliver": func(t *rapid.T) {
				s, other := pick(t)
				for range rapid.IntRange(1, 20).Draw(t, "frames") {
					s.deliverTo(t, other)
				}
			},
			"release": func(t *rapid.T) {
				s, _ := pick(t)
				for n := rapid.IntRange(1, 10).Draw(t, "messages"); n > 0 && len(s.kept) > 0; n-- {
					s.release(rapid.IntRange(0, len(s.kept)-1).Draw(t, "which"))
				}
				s.step()
			},
			"full": func(t *rapid.T) { // the link has no room for a while
				s, _ := pick(t)
				s.link.room = rapid.IntRange(0, 3).Draw(t, "room")
			},
			"room": func(t *rapid.T) {
				s, _ := pick(t)
				s.link.room = -1
				s.ep.receiver().Writable()
				s.step()
			},
			"": func(t *rapid.T) {
				for _, s := range sides {
					if s.keptCost > uint64(l.WindowBytes) {
						t.Fatalf("%d bytes are kept of a window of %d", s.keptCost, l.WindowBytes)
					}
				}
			},
		})
		drainCredit(t, sides)
	})
}

// drainCredit delivers and releases everything: nothing may be left behind, and
// the largest message must fit again.
func drainCredit(t *rapid.T, sides [2]*creditSide) {
	for range 2000 {
		for i, s := range sides {
			s.link.room = -1
			s.ep.receiver().Writable()
			for len(s.kept) > 0 {
				s.release(0)
			}
			s.step()
			s.deliverTo(t, sides[1-i])
		}
	}
	for i, s := range sides {
		if other := sides[1-i]; s.sent != other.got {
			t.Fatalf("%d messages of %d arrived", other.got, s.sent)
		}
		if n := s.ep.Stats().NormalFrames; n != s.sent {
			t.Fatalf("%d messages are counted of %d", n, s.sent)
		}
		if err := s.ep.TrySend(70, binary.LittleEndian.AppendUint64(nil, s.sent), make([]byte, MaxMessageBytes-8)); err != nil {
			t.Fatalf("with all credit back: %v", err)
		}
	}
}

// TestCreditIgnored: a peer that sends without credit is cut off.
func TestCreditIgnored(t *testing.T) {
	e := loneElement(t, 1, Limits{WindowBytes: 2 * MaxFrameBytes})
	e.HandleRetaining(70, func(Message) {})
	ep, _ := attach(t, e, 2)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = ep.receiver().Frame(70, make([]byte, 60_000))
	}
	if !errors.Is(err, ErrProtocol) || n != 3 {
		t.Errorf("message %d without credit: %v", n, err)
	}
}

// TestCreditForged: a peer cannot grant more than it was sent.
func TestCreditForged(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	for _, total := range []uint64{1, 1 << 40, 1<<64 - 1, 1<<64 - 1<<20} {
		ep, _ := attach(t, e, 2)
		if err := ep.receiver().Frame(frameCredit, u64(total)); !errors.Is(err, ErrProtocol) {
			t.Errorf("credit of %d for nothing: %v", total, err)
		}
	}
}

// TestCountsOutbox: a message counts when it has left, whether it left at once or waited in the outbox for credit or room.
func TestCountsOutbox(t *testing.T) {
	e := loneElement(t, 1, Limits{WindowBytes: 2 * MaxFrameBytes})
	ep, link := attach(t, e, 2)
	link.room = 0
	const messages, size = 10, 50_000
	for i := range messages {
		if err := ep.Post(70, make([]byte, 8), make([]byte, size-8)); err != nil {
			t.Fatal(i, err)
		}
	}
	check := func(n int) {
		t.Helper()
		e.Progress()
		if s := ep.Stats(); s.NormalFrames != uint64(n) || s.NormalBytes != uint64(n*size) || len(link.frames) != n || s.SentFrames != uint64(n) {
			t.Errorf("counted %d messages of %d bytes, and %d frames; %d have left", s.NormalFrames, s.NormalBytes, s.SentFrames, len(link.frames))
		}
	}
	check(0)
	link.room = 2
	ep.receiver().Writable()
	check(2)
	link.room = -1
	ep.receiver().Writable()
	check(int(2 * MaxFrameBytes / cost(size)))
	if err := ep.receiver().Frame(frameCredit, u64(ep.sent)); err != nil {
		t.Fatal(err)
	}
	check(2 * int(2*MaxFrameBytes/cost(size)))
}
