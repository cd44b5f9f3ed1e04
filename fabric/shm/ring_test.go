package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/fabric"
)

var smallRing = geometry{minSlots, minDataBytes}

// alignedBytes is heap memory that can stand for a mapping.
func alignedBytes(n int) []byte { return make([]byte, n) }

// ringPair is both ends of one direction over heap memory.
func ringPair(g geometry) (*producer, *consumer, half) {
	h := g.cut(alignedBytes(g.size()), dirForward)
	p, c := newProducer(h), newConsumer(h)
	return &p, &c, h
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}

// TestRingModel compares the ring with a queue: any mixture of sizes, classes,
// splits and releases.
func TestRingModel(t *testing.T) {
	type msg struct {
		id   fabric.FrameID
		body []byte
	}
	buf := make([]byte, fabric.MaxFrameBytes)
	rapid.Check(t, func(t *rapid.T) {
		p, c, _ := ringPair(smallRing)
		var queue []msg
		size := rapid.OneOf(rapid.IntRange(0, 130), rapid.SampledFrom([]int{inlineBytes, inlineBytes + 1, slotBytes, 4096, fabric.MaxFrameBytes - 1, fabric.MaxFrameBytes}))
		steps := rapid.IntRange(1, 200).Draw(t, "steps")
		for i := range steps {
			if rapid.Bool().Draw(t, "send") {
				n := size.Draw(t, "size")
				m := msg{fabric.FrameID(rapid.IntRange(0, int(fabric.MaxFrameID)).Draw(t, "id")), pattern(n, byte(i))}
				cut := rapid.IntRange(0, n).Draw(t, "cut")
				class := fabric.Class(rapid.IntRange(0, 1).Draw(t, "class"))
				switch err := p.push(m.id, class, m.body[:cut], m.body[cut:]); {
				case err == nil:
					queue = append(queue, m)
				case err != fabric.ErrLinkFull:
					t.Fatalf("push: %v", err)
				case len(queue) == 0 && c.pos == c.told:
					t.Fatalf("an empty ring is full for %d bytes", n)
				}
				continue
			}
			word, ok := c.peek()
			if ok != (len(queue) > 0) {
				t.Fatalf("peek says %v, %d frames are queued", ok, len(queue))
			}
			if !ok {
				if err := c.checkEmpty(word); err != nil {
					t.Fatal(err)
				}
				c.publish()
				continue
			}
			id, n, err := c.take(word, buf)
			if err != nil {
				t.Fatal(err)
			}
			if id != queue[0].id || !bytes.Equal(buf[:n], queue[0].body) {
				t.Fatalf("frame %d of %d bytes, want %d of %d", id, n, queue[0].id, len(queue[0].body))
			}
			queue = queue[1:]
			if c.due() {
				c.publish()
			}
		}
	})
}

// TestRingSequenceWraps starts both ends just below 2^32 frames.
func TestRingSequenceWraps(t *testing.T) {
	p, c, h := ringPair(smallRing)
	at := uint64(1)<<32 - 20
	for i := range h.slots { // as the lap before left them
		seq := at - uint64(len(h.slots)) + uint64(i)
		h.slots[seq&p.mask].word.Store((seq + 1) << 32)
	}
	p.pos, p.used, c.pos, c.told = at, at, at, at
	h.ctl.usedSlots.Store(at)
	buf := make([]byte, fabric.MaxFrameBytes)
	for i := range 100 {
		word, ok := c.peek()
		if ok || c.checkEmpty(word) != nil {
			t.Fatalf("frame %d is there before it was sent (%v)", i, c.checkEmpty(word))
		}
		if err := p.push(7, fabric.Normal, nil, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if word, ok = c.peek(); !ok {
			t.Fatalf("frame %d is not there", i)
		}
		if _, n, err := c.take(word, buf); err != nil || n != 1 || buf[0] != byte(i) {
			t.Fatalf("frame %d: %d bytes, %v, %v", i, n, buf[0], err)
		}
		c.publish()
	}
}

// TestClasses fills the ring with Normal frames, then with Reserved ones.
func TestClasses(t *testing.T) {
	for _, size := range []int{8, 20 << 10} {
		p, _, h := ringPair(smallRing)
		fill := func(class fabric.Class) (n int) {
			for p.push(9, class, nil, make([]byte, size)) == nil {
				n++
			}
			return n
		}
		normal, reserved := fill(fabric.Normal), fill(fabric.Reserved)
		if normal == 0 || reserved == 0 || normal <= reserved {
			t.Errorf("%d B: %d Normal and %d Reserved frames fit", size, normal, reserved)
		}
		if fill(fabric.Normal) != 0 {
			t.Errorf("%d B: a Normal frame took reserved room", size)
		}
		if h.ctl.wantRoom.Load() != 1 {
			t.Errorf("%d B: the consumer was not asked to ring", size)
		}
	}
}

// TestPublish checks when a consumer tells, and that a waiting producer is rung.
func TestPublish(t *testing.T) {
	p, c, h := ringPair(smallRing)
	buf := make([]byte, fabric.MaxFrameBytes)
	for p.push(9, fabric.Normal, nil, nil) == nil {
	}
	for i := 1; ; i++ {
		word, ok := c.peek()
		if !ok {
			t.Fatal("drained without a release being due")
		}
		if _, _, err := c.take(word, buf); err != nil {
			t.Fatal(err)
		}
		if c.due() {
			if i != minSlots/4 {
				t.Errorf("due after %d frames, want %d", i, minSlots/4)
			}
			break
		}
	}
	if !c.publish() {
		t.Error("the waiting producer is not to be rung")
	}
	if h.ctl.wantRoom.Load() != 0 || c.publish() {
		t.Error("rung twice")
	}
	if err := p.push(9, fabric.Normal, nil, nil); err != nil {
		t.Errorf("no room after a release: %v", err)
	}
}

// TestLyingConsumer checks that counters beyond what was sent are refused.
func TestLyingConsumer(t *testing.T) {
	tests := []struct {
		name        string
		slots, data uint64
		ok          bool
	}{
		{"honest", minSlots / 2, 0, true},
		{"more frames than sent", minSlots, 0, false},
		{"going back", ^uint64(0), 0, false},
		{"more bytes than sent", 4, 1, false},
		{"bytes going back", 4, ^uint64(63), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _, h := ringPair(smallRing)
			for p.push(9, fabric.Normal, nil, nil) == nil {
			}
			h.ctl.usedSlots.Store(tt.slots)
			h.ctl.usedData.Store(tt.data)
			err := p.push(9, fabric.Normal, nil, nil)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ErrProtocol) {
				t.Errorf("push: %v", err)
			}
		})
	}
}

// TestGarbageSlots checks each thing that a slot can get wrong.
func TestGarbageSlots(t *testing.T) {
	word := func(seq, id, n uint64) uint64 { return seq<<32 | id<<20 | n }
	tests := []struct {
		name  string
		word  uint64
		start uint64
	}{
		{"sequence from nowhere", word(77, 1, 0), 0},
		{"sequence one ahead", word(2, 1, 0), 0},
		{"too long", word(1, 1, fabric.MaxFrameBytes+1), 0},
		{"longest that 20 bits say", word(1, 1, 1<<20-1), 0},
		{"body elsewhere", word(1, 1, 100), 64},
		{"body outside", word(1, 1, 100), 1 << 62},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c, h := ringPair(smallRing)
			binary.LittleEndian.PutUint64(h.slots[0].body[:], tt.start)
			h.slots[0].word.Store(tt.word)
			w, ok := c.peek()
			var err error
			if ok {
				_, _, err = c.take(w, make([]byte, fabric.MaxFrameBytes))
			} else {
				err = c.checkEmpty(w)
			}
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v, want ErrProtocol", err)
			}
			if c.pos != 0 || c.dataPos != 0 {
				t.Error("a refused frame was consumed")
			}
		})
	}
}

// FuzzConsumer lets a consumer read memory that holds anything. script is written
// over the ring step by step; what is taken must lie within the limits.
func FuzzConsumer(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 0xff, 0xff, 0x0f, 0}, 40), uint64(3))
	f.Fuzz(func(t *testing.T, script []byte, seed uint64) {
		_, c, h := ringPair(smallRing)
		rnd := rand.New(rand.NewPCG(seed, 1))
		buf := make([]byte, fabric.MaxFrameBytes)
		for len(script) >= 8 {
			v := binary.LittleEndian.Uint64(script)
			script = script[8:]
			s := &h.slots[c.pos&c.mask]
			switch rnd.IntN(4) {
			case 0:
				s.word.Store(v)
			case 1: // the right sequence, anything else
				s.word.Store((c.pos+1)<<32 | v&(1<<32-1))
			case 2: // and the right place
				start, _ := placeAfter(c.dataPos, int(v&lengthMask), uint64(len(h.data)))
				binary.LittleEndian.PutUint64(s.body[:], start)
				s.word.Store((c.pos+1)<<32 | v&(1<<32-1))
			case 3:
				copy(s.body[:], script)
				h.ctl.wantRoom.Store(uint32(v))
				h.ctl.usedSlots.Store(v)
			}
			word, ok := c.peek()
			if !ok {
				_ = c.checkEmpty(word)
				c.publish()
				continue
			}
			id, n, err := c.take(word, buf)
			if err != nil {
				continue
			}
			if id > fabric.MaxFrameID || n > fabric.MaxFrameBytes {
				t.Fatalf("took frame %d of %d bytes", id, n)
			}
			if c.due() {
				c.publish()
			}
		}
	})
}

// FuzzProducer lets a producer read a consumer's counters that are anything.
func FuzzProducer(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{16, 0, 0, 0, 0, 0, 0, 0}, 40))
	f.Fuzz(func(t *testing.T, script []byte) {
		p, _, h := ringPair(smallRing)
		for ; len(script) >= 8; script = script[8:] {
			v := binary.LittleEndian.Uint64(script)
			h.ctl.usedSlots.Store(v)
			h.ctl.usedData.Store(v >> 1)
			err := p.push(1, fabric.Class(v&1), nil, make([]byte, v%fabric.MaxFrameBytes))
			if err != nil && err != fabric.ErrLinkFull && !errors.Is(err, ErrProtocol) {
				t.Fatal(err)
			}
			if p.pos-p.used > uint64(len(p.slots)) || p.dataPos-p.dataUsed > uint64(len(p.data)) {
				t.Fatalf("overcommitted: %+v", p.limits)
			}
		}
	})
}

// TestBoard checks that marks are found, once each, in turn.
func TestBoard(t *testing.T) {
	b := &board{bell: bell{page: boardAt(alignedBytes(boardBytes)), fd: -1}}
	rapid.Check(t, func(t *rapid.T) {
		marked := map[int]bool{}
		b.cursor = rapid.IntRange(0, boardWords*64-1).Draw(t, "cursor")
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, boardWords*64-1), 0, 40).Draw(t, "marks") {
			b.set(i)
			marked[i] = true
		}
		for range len(marked) {
			i := b.pop()
			if !marked[i] {
				t.Fatalf("popped %d, which was not marked or popped before", i)
			}
			delete(marked, i)
		}
		if i := b.pop(); i >= 0 || b.page.summary.Load() != 0 {
			t.Fatalf("popped %d from an empty board, summary %#x", i, b.page.summary.Load())
		}
	})
	// A link that is marked all the time hides no other.
	b.set(5)
	b.set(4000)
	b.set(6)
	seen := map[int]bool{}
	for range 3 {
		i := b.pop()
		seen[i] = true
		b.set(5)
	}
	if !seen[5] || !seen[6] || !seen[4000] {
		t.Errorf("popped only %v", seen)
	}
}

func FuzzSetup(f *testing.F) {
	f.Add(setup{role: roleInitiator, geo: smallRing, link: 3}.encode())
	f.Add(setup{role: roleAcceptor, reason: "no"}.encode())
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, role := range []byte{roleInitiator, roleAcceptor} {
			s, err := decodeSetup(b, role)
			if err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Fatal(err)
				}
				continue
			}
			again, err := decodeSetup(s.encode(), role)
			if err != nil || again != s {
				t.Fatalf("%+v became %+v: %v", s, again, err)
			}
			if s.reason == "" && s.geo.validate() != nil {
				t.Fatalf("accepted %+v", s.geo)
			}
		}
		if tag, err := decodeFDRecord(b); err == nil {
			if rec := fdRecord(tag); !bytes.Equal(rec[:], b) {
				t.Fatalf("%x is %x", b, rec)
			}
		}
	})
}

// TestBoardLosesNoMark has marks set while others are cleared: each must be found.
func TestBoardLosesNoMark(t *testing.T) {
	const setters, rounds = 4, 20_000
	b := &board{bell: bell{page: boardAt(alignedBytes(boardBytes)), fd: -1}}
	var acked [setters]atomic.Int64
	var finished atomic.Int64
	for who := range setters {
		go func() {
			defer finished.Add(1)
			for i := range int64(rounds) {
				b.set(who * 64) // a word each: no other setter puts its summary right
				for end := time.Now().Add(patience); acked[who].Load() == i; runtime.Gosched() {
					if time.Now().After(end) {
						t.Errorf("mark %d of setter %d was lost", i, who)
						return
					}
				}
			}
		}()
	}
	for finished.Load() < setters {
		if idx := b.pop(); idx >= 0 {
			acked[idx/64].Add(1)
		} else {
			runtime.Gosched()
		}
	}
}
