package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	lengthBits = 20
	lengthMask = 1<<lengthBits - 1
)

// producer is the sending end of one direction. Its link's mutex guards it.
// Its own counters count; what the consumer publishes is checked against them.
type producer struct {
	half
	mask     uint64
	pos      uint64 // slots published
	used     uint64 // slots the consumer is known to have taken
	dataPos  uint64 // data bytes given out, skips included
	dataUsed uint64 // data bytes the consumer is known to have given back
	limits   [2]room
}

// room is what a class may fill.
type room struct{ slots, data uint64 }

func newProducer(h half) producer {
	n, d := uint64(len(h.slots)), uint64(len(h.data))
	p := producer{half: h, mask: n - 1}
	p.limits[fabric.Normal] = room{n / 4 * 3, d / 4 * 3}
	p.limits[fabric.Reserved] = room{n, d}
	return p
}

// push publishes a frame. It returns fabric.ErrLinkFull if there is no room for
// class, having asked the consumer to ring when there is; any other error means that the
// consumer's counters are garbage.
func (p *producer) push(id fabric.FrameID, class fabric.Class, head, body []byte) error {
	n := len(head) + len(body)
	if p.pos-p.used >= p.limits[class].slots {
		if err := p.await(class, 0); err != nil {
			return err
		}
	}
	s := &p.slots[p.pos&p.mask]
	if n <= inlineBytes {
		copy(s.body[copy(s.body[:], head):], body)
	} else {
		start, end := p.place(n)
		if end-p.dataUsed > p.limits[class].data {
			if err := p.await(class, end); err != nil {
				return err
			}
		}
		at := p.data[start&uint64(len(p.data)-1):][:n]
		copy(at[copy(at, head):], body)
		binary.LittleEndian.PutUint64(s.body[:], start)
		p.dataPos = end
	}
	p.pos++
	s.word.Store(uint64(uint32(p.pos))<<32 | uint64(id)<<lengthBits | uint64(n))
	return nil
}

// place says where a body of n bytes goes; the consumer computes the same.
func (p *producer) place(n int) (start, end uint64) {
	return placeAfter(p.dataPos, n, uint64(len(p.data)))
}

// placeAfter puts n bytes at pos, or at the ring's start if they would not lie
// in one piece; they end on a multiple of a cache line.
func placeAfter(pos uint64, n int, size uint64) (start, end uint64) {
	if left := size - pos&(size-1); left < uint64(n) {
		pos += left
	}
	return pos, pos + (uint64(n)+slotBytes-1)&^(slotBytes-1)
}

// await looks at the consumer's counters, and if they leave no room asks to be
// rung and looks once more: either we see its last release or it sees our wish.
func (p *producer) await(class fabric.Class, dataEnd uint64) error {
	for try := 0; ; try++ {
		used, data := p.ctl.usedSlots.Load(), p.ctl.usedData.Load()
		if used-p.used > p.pos-p.used || data-p.dataUsed > p.dataPos-p.dataUsed {
			return fmt.Errorf("%w: it claims to have taken %d frames and %d bytes of the %d and %d that were sent", ErrProtocol, used, data, p.pos, p.dataPos)
		}
		p.used, p.dataUsed = used, data
		lim := p.limits[class]
		if p.pos-used < lim.slots && (dataEnd == 0 || dataEnd-data <= lim.data) {
			return nil
		}
		if try > 0 {
			return fabric.ErrLinkFull
		}
		p.ctl.wantRoom.Store(1)
	}
}

// consumer is the receiving end of one direction; it is the leader's.
type consumer struct {
	half
	mask     uint64
	pos      uint64 // slots taken
	dataPos  uint64 // data bytes given back, skips included
	told     uint64 // pos as last published
	toldData uint64
}

func newConsumer(h half) consumer {
	return consumer{half: h, mask: uint64(len(h.slots) - 1)}
}

// peek returns the next slot's word and whether it is published.
func (c *consumer) peek() (word uint64, ok bool) {
	word = c.slots[c.pos&c.mask].word.Load()
	return word, uint32(word>>32) == uint32(c.pos+1)
}

// checkEmpty says whether a word that peek took for unpublished is what the
// slot held a lap ago: anything else never becomes the sequence that is due.
func (c *consumer) checkEmpty(word uint64) error {
	old := uint32(0)
	if c.pos >= uint64(len(c.slots)) {
		old = uint32(c.pos+1) - uint32(len(c.slots))
	}
	if seq := uint32(word >> 32); seq != old {
		return fmt.Errorf("%w: a slot has sequence %d where %d or %d belongs", ErrProtocol, seq, old, uint32(c.pos+1))
	}
	return nil
}

// take copies the frame that peek saw into buf (fabric.MaxFrameBytes long) and
// frees its slot.
func (c *consumer) take(word uint64, buf []byte) (id fabric.FrameID, n int, err error) {
	s := &c.slots[c.pos&c.mask]
	n = int(word & lengthMask)
	if n <= inlineBytes {
		*(*[inlineBytes]byte)(buf) = s.body
	} else {
		if n > fabric.MaxFrameBytes {
			return 0, 0, fmt.Errorf("%w: a frame of %d bytes, at most %d are allowed", ErrProtocol, n, fabric.MaxFrameBytes)
		}
		start, end := placeAfter(c.dataPos, n, uint64(len(c.data)))
		if got := binary.LittleEndian.Uint64(s.body[:]); got != start {
			return 0, 0, fmt.Errorf("%w: a body of %d bytes is said to be at %d, it belongs at %d", ErrProtocol, n, got, start)
		}
		copy(buf[:n], c.data[start&uint64(len(c.data)-1):])
		c.dataPos = end
	}
	c.pos++
	return fabric.FrameID(uint32(word) >> lengthBits), n, nil
}

// due says whether so much has been taken that the producer should know.
func (c *consumer) due() bool {
	return c.pos-c.told >= uint64(len(c.slots))/4 || c.dataPos-c.toldData >= uint64(len(c.data))/4
}

// publish tells the producer what was taken. It reports whether the producer
// asked to be rung.
func (c *consumer) publish() (ring bool) {
	if c.pos == c.told {
		return false
	}
	c.told, c.toldData = c.pos, c.dataPos
	c.ctl.usedData.Store(c.dataPos)
	c.ctl.usedSlots.Store(c.pos)
	return c.ctl.wantRoom.Load() != 0 && c.ctl.wantRoom.Swap(0) != 0
}
