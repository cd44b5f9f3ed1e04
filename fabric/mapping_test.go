package fabric

import (
	"errors"
	"testing"
)

// fdSink is a carrier whose descriptors nobody takes.
type fdSink struct {
	sent []uint64
	full bool // for segments
}

func (s *fdSink) SendFD(tag uint64, _ int) error {
	if s.full && tag != gensTag {
		return ErrLinkFull
	}
	s.sent = append(s.sent, tag)
	return nil
}

func (s *fdSink) Left() bool { return false }
func (s *fdSink) Wake()      {}

// TestGivenTo: a segment knows to whose peers it was given, asks those to let go of it when it is closed, and no
// others; and forgets an endpoint that has ended.
func TestGivenTo(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	seg, err := e.NewSegment(100, Writable)
	if err != nil {
		t.Fatal(err)
	}
	k, err := seg.Key(RightsAll)
	if err != nil {
		t.Fatal(err)
	}
	slot, st := e.keys.find(k.Slot, k.Generation, &k.Secret)
	if st != statusOK {
		t.Fatal(st)
	}
	var eps []*Endpoint
	var links []*fakeLink
	for i := range 4 {
		ep, link := attach(t, e, Incarnation(i+2))
		ep.fds = &fdSink{full: i == 2}
		eps, links = append(eps, ep), append(links, link)
	}
	for i, want := range []bool{true, true, false} { // the last is never asked
		if got := eps[i].offerMapping(slot); got != want {
			t.Errorf("given to peer %d: %v", i, got)
		}
	}
	if len(seg.given) != 2 || !eps[0].offerMapping(slot) || len(eps[0].fds.(*fdSink).sent) != 2 {
		t.Errorf("given to %d, and to the first as %v", len(seg.given), eps[0].fds.(*fdSink).sent)
	}
	for i := len(eps[0].map_.sent); i < maxMappings; i++ {
		eps[0].map_.sent[1<<20+uint32(i)] = &Segment{}
	}
	if !eps[0].offerMapping(slot) {
		t.Error("where there is no room for further segments, one that the peer has is not mapped again")
	}
	eps[1].fail(errors.New("lost"))
	if len(seg.given) != 1 || eps[1].offerMapping(slot) {
		t.Errorf("after the end of one of two, it is given to %d", len(seg.given))
	}
	seg.Close()
	for i, link := range links {
		n := 0
		for _, f := range link.take() {
			if f.id == frameUnmap {
				n++
			}
		}
		if want := i == 0; (n == 1) != want {
			t.Errorf("peer %d was asked %d times to let go", i, n)
		}
	}
	if eps[0].offerMapping(slot) || seg.give(eps[0]) {
		t.Error("it is given after it was closed")
	}
}
