package sim_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	idHeld   fabric.FrameID = 70 // kept by its handler for a while
	idPlain  fabric.FrameID = 71
	idAnswer fabric.FrameID = fabric.FirstReservedID + 5

	// A numbered message: its number (8), flags (1), cell (1), version (4), pattern.
	messageHead = 14
	wantAnswer  = 1 // flag: answer with the number
	wantLook    = 2 // flag: the cell holds the version now
)

// messageCost is what docs/wire.md says a message of n bytes costs.
func messageCost(n int) uint64 { return (uint64(n) + 64 + 63) / 64 * 64 }

// patterns is one long row of bytes without their top bit; something's version
// is a piece of it.
var patterns = func() []byte {
	b := make([]byte, patternStarts+staticBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32()) & 0x7f
	}
	return b
}()

const patternStarts = 65521

func patternOf(what, version int) []byte {
	return patterns[(uint(what)*7919+uint(version)*40009)%patternStarts:]
}

func fillPattern(b []byte, what, version int) { copy(b, patternOf(what, version)) }

func isPattern(b []byte, what, version, from int) bool {
	return bytes.Equal(b, patternOf(what, version)[from:][:len(b)])
}

// numbered is the side's next message.
func (s *side) numbered(flags byte, cell, version, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, s.sent)
	b = binary.LittleEndian.AppendUint32(append(b, flags, byte(cell)), uint32(version))
	return append(b, patternOf(int(s.sent), s.c.id)[:n]...)
}

// counted hears that the message with the next number is on its way.
func (s *side) counted(flags byte) {
	if flags&wantAnswer != 0 {
		s.asked = append(s.asked, s.sent)
	}
	s.sent++
}

func (s *side) randomID() fabric.FrameID {
	if s.t.w.Rand.IntN(2) == 0 {
		return idHeld
	}
	return idPlain
}

func (s *side) randomBody() int {
	r, most := s.t.w.Rand, s.t.k.bodies
	if r.IntN(3) > 0 {
		most = min(most, 200)
	}
	return r.IntN(most + 1)
}

// post sends one numbered message without waiting; false if there was no room.
func (s *side) post(flags byte, cell, version int) bool {
	if s.sending {
		return false
	}
	b := s.numbered(flags, cell, version, s.randomBody())
	send := s.ep.Post
	if s.t.w.Rand.IntN(3) == 0 {
		send = s.ep.TrySend
	}
	cut := s.t.w.Rand.IntN(len(b) + 1)
	switch err := send(s.randomID(), b[:cut], b[cut:]); {
	case err == nil:
		s.counted(flags)
		return true
	case errors.Is(err, fabric.ErrBackpressure):
	case s.lost == nil && !errors.Is(err, fabric.ErrPeerLost):
		s.t.fail("%v: post: %v", s, err)
	}
	return false
}

// actPost posts a burst of messages.
func actPost(s *side) {
	for range 1 + s.t.w.Rand.IntN(12) {
		flags := byte(0)
		if s.t.w.Rand.IntN(3) == 0 {
			flags = wantAnswer
		}
		if !s.post(flags, 0, 0) {
			return
		}
	}
}

// actJam fills all the room there is with large messages, and then does
// something that has to wait for room behind a fence.
func actJam(s *side) {
	for !s.sending && s.live() {
		b := s.numbered(0, 0, 0, s.t.k.bodies)
		if err := s.ep.Post(s.randomID(), nil, b); err != nil {
			break
		}
		s.counted(0)
	}
	for s.post(0, 0, 0) {
	}
	s.ep.Fence()
	actExpire(s)
	actChain(s)
}

// actSend waits for credit, for as long as a context lets it.
func actSend(s *side) {
	limit := s.t.w.Between(10*time.Microsecond, 20*time.Millisecond)
	s.call(func(context.Context) {
		if s.sending || !s.live() {
			return
		}
		ctx, cancel := s.l.h.Timeout(limit)
		defer cancel()
		s.sending = true
		b := s.numbered(0, 0, 0, s.randomBody())
		err := s.ep.Send(ctx, s.randomID(), nil, b)
		s.sending = false
		switch {
		case err == nil:
			s.counted(0)
		case s.l.dead || s.lost != nil:
		case errors.Is(err, fabric.ErrPeerLost):
		case errors.Is(err, fabric.ErrBackpressure) && errors.Is(err, context.DeadlineExceeded):
		default:
			s.t.fail("%v: Send: %v", s, err)
		}
	})
}

// message handles a numbered message.
func (t *trial) message(m fabric.Message, keep bool) {
	s := t.sides[m.From]
	b := m.Body
	number := binary.LittleEndian.Uint64(b)
	t.note(uint64(s.c.id), number)
	switch {
	case s.lost != nil:
		t.fail("%v got message %d after its end", s, number)
	case number != s.got:
		t.fail("%v got message %d where %d was due", s, number, s.got)
	case !isPattern(b[messageHead:], int(number), s.c.id, 0):
		t.fail("%v got message %d with another body", s, number)
	}
	s.got++
	s.cost += messageCost(len(b))
	if s.cost > uint64(t.k.limits.WindowBytes) {
		t.fail("%v holds %d bytes of a window of %d", s, s.cost, t.k.limits.WindowBytes)
	}
	if b[8]&wantLook != 0 {
		s.look(int(b[9]), int(binary.LittleEndian.Uint32(b[10:])), number)
	}
	if flags := b[8]; flags&wantAnswer != 0 {
		if err := s.ep.Post(idAnswer, nil, binary.LittleEndian.AppendUint64(nil, number)); err != nil && !errors.Is(err, fabric.ErrPeerLost) {
			t.fail("%v: answer: %v", s, err)
		}
	}
	n := len(b)
	m.Body = nil
	if t.w.Rand.Float64() < t.k.handOff {
		m.HandOff()
	}
	if !keep {
		s.cost -= messageCost(n)
		return
	}
	s.held = append(s.held, heldMessage{m, n})
	s.l.h.Do(t.w.Between(0, t.k.hold), s.release)
}

// heldMessage is one whose credit has not been given back.
type heldMessage struct {
	m fabric.Message
	n int
}

// release gives back one of the messages that are held, not always the oldest.
func (s *side) release() {
	i := s.t.w.Rand.IntN(len(s.held))
	h := s.held[i]
	s.held = slices.Delete(s.held, i, i+1)
	s.cost -= messageCost(h.n)
	h.m.Release()
}

// answer hears that the peer handled a message.
func (t *trial) answer(m fabric.Message) {
	s := t.sides[m.From]
	number := binary.LittleEndian.Uint64(m.Body)
	if len(s.asked) == 0 || s.asked[0] != number {
		t.fail("%v got answer %d; due are %v", s, number, s.asked)
	}
	s.asked = s.asked[1:]
}

// actFlush waits until everything before it has taken effect.
func actFlush(s *side) {
	limit := s.t.w.Between(10*time.Microsecond, 50*time.Millisecond)
	s.call(func(context.Context) {
		if !s.live() {
			return
		}
		ctx, cancel := s.l.h.Timeout(limit)
		defer cancel()
		sent := s.sent
		var before []*op
		for _, o := range s.t.ops {
			if o.s == s && !o.get {
				before = append(before, o)
			}
		}
		if err := s.ep.Flush(ctx); err != nil {
			if s.live() && !errors.Is(err, fabric.ErrPeerLost) && !errors.Is(err, fabric.ErrBackpressure) && !errors.Is(err, context.DeadlineExceeded) {
				s.t.fail("%v: Flush: %v", s, err)
			}
			return
		}
		if got := s.peer().got; got < sent {
			s.t.fail("%v: after Flush %d of %d messages were handled", s, got, sent)
		}
		for _, o := range before {
			if !o.ended && !o.op.Poll() {
				s.t.fail("%v: after Flush a %s is still under way", s, o.what)
			}
		}
	})
}

// refill checks that all credit has come back: at least three quarters of the
// window, as reports go out by quarters, and never more than all of it.
func (s *side) refill() {
	window := uint64(s.t.k.limits.WindowBytes)
	const size = 6000
	used := uint64(0)
	for {
		b := s.numbered(0, 0, 0, size)
		err := s.ep.TrySend(idPlain, nil, b)
		if errors.Is(err, fabric.ErrBackpressure) {
			break
		}
		if err != nil {
			s.t.fail("%v: TrySend: %v", s, err)
		}
		s.counted(0)
		used += messageCost(len(b))
	}
	if used+window/4+messageCost(size+messageHead) < window || used > window {
		s.t.fail("%v: credit for %d bytes with nothing under way, the window has %d", s, used, window)
	}
}
