package fabric

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memfd"
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

// peers are endpoints of one element that map segments of 1 MiB.
type peers struct {
	t  *testing.T
	el *Element
}

const peerSegment = 1 << 20

func (p *peers) endpoint(inc Incarnation) *Endpoint {
	ep, _ := attach(p.t, p.el, inc)
	ep.fds = &fdSink{}
	return ep
}

func (p *peers) descriptor(size int64) int {
	p.t.Helper()
	f, err := memfd.Create("peer", size, false)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(f.FD())
	if err != nil {
		p.t.Fatal(err)
	}
	return fd
}

// mapped imports a peer's segment, whose descriptor has come, and says whether it is mapped.
func (p *peers) mapped(ep *Endpoint, id uint32) bool {
	p.t.Helper()
	ms := &ep.map_
	if _, came := ms.fds[gensTag]; !came && ms.gens == nil {
		ms.fds[gensTag] = p.descriptor(maxKeys * 4)
	}
	if _, came := ms.fds[uint64(id)]; !came && ms.maps[id] == nil {
		ms.fds[uint64(id)] = p.descriptor(peerSegment)
	}
	r := newRemote(ep, Key{Owner: ep.Incarnation(), Size: peerSegment, Rights: RightsAll})
	if err := ms.attach(r, id, peerSegment, Writable); err != nil {
		p.t.Fatal(err)
	}
	return r.Mapped()
}

// TestMappedBytes: of peers' segments only so many addresses are mapped, of one endpoint's a quarter of that; the rest their owners serve. What was
// let go of comes back once no Remote refers to it.
func TestMappedBytes(t *testing.T) {
	p := &peers{t, loneElement(t, 1, Limits{MappedBytes: 8 * peerSegment})}
	first := p.endpoint(2)
	if !p.mapped(first, 1) || !p.mapped(first, 2) || p.mapped(first, 3) || !p.mapped(first, 1) {
		t.Error("one endpoint has other segments mapped than the two of eight that are its share")
	}
	var others []*Endpoint
	n := 0
	for i := range Incarnation(5) {
		ep := p.endpoint(3 + i)
		others = append(others, ep)
		for id := range uint32(2) {
			if p.mapped(ep, id+1) {
				n++
			}
		}
	}
	if n < 3 || n > 6 { // tables of generations take some
		t.Errorf("%d more are mapped, of eight in all", n)
	}
	for _, ep := range others {
		ep.fail(errors.New("lost"))
	}
	for end := time.Now().Add(20 * time.Second); p.el.mapped.Load() > 3*peerSegment; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of addresses are taken still", p.el.mapped.Load())
		}
		runtime.Gosched()
	}
	if last := p.endpoint(100); !p.mapped(last, 1) || !p.mapped(last, 2) {
		t.Error("addresses that came back are not used again")
	}
}

// TestMappedGoes: the addresses come back also where the element itself leads to who used them, as its handlers do, once the program has let go of all of it.
func TestMappedGoes(t *testing.T) {
	var taken *atomic.Int64
	t.Run("use", func(t *testing.T) { // whose end is that of what it has left to its Cleanup
		var used *Remote
		el, err := New(Config{Name: "lone", Manual: true, Now: func() int64 { runtime.KeepAlive(used); return 1 }, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := &peers{t, el}
		ep := p.endpoint(2)
		if !p.mapped(ep, 1) {
			t.Fatal("it is not mapped")
		}
		used = newRemote(ep, Key{Owner: 2, Size: peerSegment, Rights: RightsAll})
		if err := ep.map_.attach(used, 1, peerSegment, Writable); err != nil {
			t.Fatal(err)
		}
		if err := el.Close(); err != nil {
			t.Fatal(err)
		}
		taken = el.mapped
	})
	for end := time.Now().Add(20 * time.Second); taken.Load() > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of addresses are taken still", taken.Load())
		}
		runtime.Gosched()
	}
}
