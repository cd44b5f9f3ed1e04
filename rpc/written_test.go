package rpc

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// scribe is a callee written by hand: it answers out of one segment, and tells of pieces as the test says.
type scribe struct {
	t    *testing.T
	a    *side
	ep   *fabric.Endpoint // a's
	back *fabric.Endpoint // its own
	seg  *fabric.Segment
	at   ref
	came chan exchange.ID
}

func newScribe(t *testing.T, addr string) *scribe {
	const size = 1 << 20
	s := &scribe{t: t, a: newSide(t, "a", Limits{MaxBytes: 2 * size}), came: make(chan exchange.ID, 1)}
	b := bare(t, "b")
	handle := func(id fabric.FrameID, fn func(fabric.Message)) {
		if err := b.el.Handle(id, fn); err != nil {
			t.Fatal(err)
		}
	}
	handle(IDRequest, func(m fabric.Message) {
		var r request
		if err := decodeRequest(m.Body, &r); err != nil {
			t.Error(err)
		}
		if s.back == nil { // there is one endpoint
			s.back = m.From
		}
		s.came <- r.id
	})
	for _, id := range []fabric.FrameID{IDAck, IDCancel} {
		handle(id, func(fabric.Message) {})
	}
	s.ep = connect(t, s.a, b, addr)
	var err error
	if s.seg, err = b.el.NewSegment(size, fabric.Sealed); err != nil {
		t.Fatal(err)
	}
	s.at.size = size
	if s.at.key, err = s.seg.Key(fabric.RightRead); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scribe) fill(v byte) {
	for i := range s.seg.Bytes() {
		s.seg.Bytes()[i] = v
	}
}

// written tells that n bytes are there, and waits until they have been read if they will be.
func (s *scribe) written(id exchange.ID, n uint64, at ref, read bool) {
	s.t.Helper()
	seen := s.a.p.stats.followed.Load()
	if err := s.back.Send(s.t.Context(), IDWritten, at.append(appendWritten(nil, id, n)), nil); err != nil {
		s.t.Error(err)
	}
	if read {
		waitFor(s.t, "the piece is read", func() bool { return s.a.p.stats.followed.Load() > seen })
	}
}

func (s *scribe) answer(id exchange.ID, at ref) {
	s.back.Post(IDResponse, (&response{id: id, lent: true, body: at.append(nil)}).append(nil), nil)
}

// call makes a call, and has the other side do something about it.
func (s *scribe) call(does func(id exchange.ID)) ([]byte, error) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		does(<-s.came)
	}()
	defer func() { <-done }()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	return s.a.p.CallAppend(ctx, s.ep, "x", nil, []byte("kept"))
}

// TestFollow: an answer is read as it is written. What was read is not looked at again, whatever lies there then, and only
// the response says that it is the answer.
func TestFollow(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		s := newScribe(t, addr)
		half, size := s.at.size/2, s.at.size
		mapped := s.ep.Shared()
		ones := func(n uint64) []byte {
			return append(bytes.Repeat([]byte{1}, int(n)), bytes.Repeat([]byte{2}, int(size-n))...)
		}
		short := s.at
		short.size--
		for _, c := range []struct {
			name string
			tell func(id exchange.ID)
			at   ref
			want []byte
		}{
			{"nothing, and the memory is mapped", func(exchange.ID) {}, s.at, ones(0)},
			{"half of it", func(id exchange.ID) { s.written(id, half, s.at, mapped) }, s.at, ones(half)},
			{"piece by piece", func(id exchange.ID) {
				for n := size / 4; n < size; n += size / 4 {
					s.written(id, n, s.at, mapped)
				}
			}, s.at, ones(3 * size / 4)},
			{"in the wrong order", func(id exchange.ID) {
				s.written(id, half, s.at, mapped)
				s.fill(2)
				s.written(id, half/2, s.at, false)
			}, s.at, ones(half)},
			{"of another answer", func(id exchange.ID) { s.written(id, half, short, mapped) }, s.at, ones(0)},
			{"of two answers", func(id exchange.ID) {
				s.written(id, half, s.at, mapped)
				s.written(id, half+1, short, false)
			}, s.at, ones(half)},
			{"of another call", func(id exchange.ID) { s.written(exchange.NewID(id.Number()+1, id.Slot()), half, s.at, false) }, s.at, ones(0)},
			{"larger than may be", func(id exchange.ID) {
				large := s.at
				large.size, large.key.Size = 1<<30, 1<<30
				s.written(id, half, large, false)
			}, s.at, ones(0)},
		} {
			got, err := s.call(func(id exchange.ID) {
				s.fill(1)
				c.tell(id)
				s.fill(2)
				s.answer(id, c.at)
			})
			want := c.want
			if !mapped {
				want = ones(0)
			}
			if err != nil || !bytes.Equal(got, append([]byte("kept"), want...)) {
				t.Errorf("told of %s: %v, or other bytes than there were", c.name, err)
			}
		}
	})
}

// TestFollowNoEnd: a callee that is lost half-way, or whose call fails after all, gives an error and not half an answer; what cannot be
// right ends the endpoint.
func TestFollowNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		does func(s *scribe, id exchange.ID)
		want error
	}{
		"failed": {func(s *scribe, id exchange.ID) {
			s.back.Post(IDResponse, (&response{id: id, code: CodeBusy, body: []byte("no")}).append(nil), nil)
		}, ErrBusy},
		"lost":         {func(s *scribe, _ exchange.ID) { s.back.Close() }, ErrOutcomeUnknown},
		"all of it":    {func(s *scribe, id exchange.ID) { s.written(id, s.at.size, s.at, false) }, ErrOutcomeUnknown},
		"nothing":      {func(s *scribe, id exchange.ID) { s.written(id, 0, s.at, false) }, ErrOutcomeUnknown},
		"no reference": {func(s *scribe, id exchange.ID) { s.written(id, 1, ref{}, false) }, ErrOutcomeUnknown},
	} {
		schemes(t, func(t *testing.T, addr string) {
			s := newScribe(t, addr)
			if _, err := s.call(func(id exchange.ID) { s.answer(id, s.at) }); err != nil {
				t.Fatal(err)
			}
			got, err := s.call(func(id exchange.ID) {
				s.written(id, s.at.size/2, s.at, s.ep.Shared())
				c.does(s, id)
			})
			if !errors.Is(err, c.want) || string(got) != "kept" {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		})
	}
}

// TestFollowAnswers: answers of a real callee are followed where memory is mapped, and each is its own call's. Those of calls that
// were started are not: nobody waits for them.
func TestFollowAnswers(t *testing.T) {
	schemes(t, func(t *testing.T, addr string) {
		a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
		ep := connect(t, a, b, addr)
		const size = 8*pieceBytes + 5
		b.serve(t, "large", func(_ context.Context, c *Call) ([]byte, error) { return bytes.Repeat(c.Req, size), nil })
		var got []byte
		for i := range byte(20) {
			var err error
			if got, err = a.p.CallAppend(t.Context(), ep, "large", []byte{i}, got[:0]); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{i}, size)) {
				t.Fatalf("call %d: %d bytes, %v", i, len(got), err)
			}
		}
		seen := a.p.stats.followed.Load()
		if (seen > 0) != ep.Shared() {
			t.Errorf("%d pieces were read before the last was written", seen)
		}
		f, err := a.p.Start(t.Context(), ep, "large", []byte{7})
		if err != nil {
			t.Fatal(err)
		}
		if got, err = f.Wait(t.Context()); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{7}, size)) || a.p.stats.followed.Load() != seen {
			t.Errorf("a started call: %d bytes, %v", len(got), err)
		}
	})
}
