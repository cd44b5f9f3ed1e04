package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func FuzzDecodeHello(f *testing.F) {
	h := &hello{kind: helloDial, versionMin: 1, versionMax: 1, incarnation: 5, window: 1 << 20, ops: 1024, name: "n", token: "t", addrs: []string{"tcp://h:1"}}
	good := h.encode()
	for n := 0; n < len(good); n += 7 {
		f.Add(good[:n])
	}
	f.Add(good)
	f.Add(append(good, "later fields"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			if !errors.Is(err, errHello) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if h.incarnation == 0 || len(h.name) > 3*maxNameBytes || len(h.token) > maxNameBytes || len(h.addrs) > maxAddrs {
			t.Errorf("accepted %+v", h)
		}
		for _, r := range h.name {
			if r < ' ' {
				t.Errorf("name %q", h.name)
			}
		}
		if len(h.name) > maxNameBytes {
			return // a replaced rune is longer than the byte it stood for
		}
		again, err := decodeHello(h.encode())
		if err != nil || again.name != h.name || again.nonce != h.nonce || again.window != h.window || len(again.addrs) != len(h.addrs) {
			t.Errorf("%+v encodes to %+v, %v", h, again, err)
		}
	})
}

func FuzzDecodeKey(f *testing.F) {
	k := Key{Owner: 1, Slot: 2, Generation: 3, Secret: [16]byte{4}, Size: 5, Rights: RightsAll}
	f.Add(k.Append(nil))
	f.Add(k.Append([]byte{0}))
	f.Add(make([]byte, KeyBytes))
	f.Add(bytes.Repeat([]byte{0xff}, KeyBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeKey(b)
		if err != nil {
			if !errors.Is(err, ErrBadKey) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if !bytes.Equal(k.Append(nil), b) {
			t.Errorf("% x decodes to %v and encodes to % x", b, k, k.Append(nil))
		}
	})
}

// script writes a fuzzing script for FuzzFrames.
type script []byte

// frame appends a frame: its id, how it is delivered, its length, its body.
func (s script) frame(id FrameID, place bool, body ...[]byte) script {
	b := bytes.Join(body, nil)
	n := uint16(id) & 0xfff
	if place {
		n |= 1 << 15
	}
	s = binary.LittleEndian.AppendUint16(s, n)
	s = binary.LittleEndian.AppendUint16(s, uint16(len(b)))
	return append(s, b...)
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// fuzzKey is the key of FuzzFrames' segment: its secret is zeros.
func fuzzAccess(op uint32, offset, size uint64) []byte {
	return appendAccess(nil, op, keyRef{}, offset, size)
}

func addFrameScripts(f *testing.F) {
	var s script
	f.Add([]byte(s.frame(framePing, false).frame(framePong, false).frame(frameCredit, false, u64(1<<63)).frame(frameGoodbye, false)))
	f.Add([]byte(s.frame(frameGet, false, fuzzAccess(1, 0, 8)).frame(frameGet, false, fuzzAccess(2, 100, 100_000)).frame(frameFlush, false, u32(3))))
	f.Add([]byte(s.frame(framePut, false, fuzzAccess(1, 8, 5), []byte("hello")).frame(framePut, false, fuzzAccess(1, 8, 9), []byte("short"))))
	f.Add([]byte(s.frame(framePut, false, fuzzAccess(9, 0, 300)).
		frame(framePutData, true, bulkHead(nil, 9, 0, 0), make([]byte, 200)).
		frame(framePutData, false, bulkHead(nil, 9, bulkLast, 200), make([]byte, 100))))
	f.Add([]byte(s.frame(framePut, false, fuzzAccess(9, 0, 300)).
		frame(framePutData, true, bulkHead(nil, 9, bulkAbort, 0), make([]byte, 900))))
	f.Add([]byte(s.frame(framePut, false, fuzzAccess(9, 0, 300)).
		frame(framePutData, true, bulkHead(nil, 9, bulkAbort|bulkLast, 77))))
	f.Add([]byte(s.frame(frameAtomic, false, fuzzAccess(1, 8, 8), u64(1), u64(2), []byte{byte(KindCompareSwap)}).
		frame(frameAtomic, false, fuzzAccess(1, 3, 8), u64(1), u64(2), []byte{9})))
	f.Add([]byte(s.frame(frameNarrow, false, fuzzAccess(1, 8, 8), []byte{1}).frame(frameImport, false, u32(1), make([]byte, keyRefBytes))))
	// Answers to the operations that FuzzFrames started: get 0, put 1, large put 2, atomic 3, flush 4.
	f.Add([]byte(s.frame(frameGetData, true, bulkHead(nil, 0, 0, 0), make([]byte, 100)).
		frame(frameGetData, true, bulkHead(nil, 0, bulkLast, 100), make([]byte, 900)).
		frame(framePutDone, false, u32(1), u32(0)).frame(framePutDone, false, u32(2), u32(1)).
		frame(frameAtomicDone, false, u32(3), u32(0), u64(7)).frame(frameFlushed, false, u32(4))))
	f.Add([]byte(s.frame(frameGetData, true, bulkHead(nil, 0, bulkAbort, 0), make([]byte, 5000)).frame(frameGetDone, false, u32(0), u32(99))))
	f.Add([]byte(s.frame(frameImported, false, u32(0), u32(0), make([]byte, 24)).frame(frameNarrowed, false, u32(1), u32(0), make([]byte, 48)).frame(frameUnmap, false, u32(1))))
	f.Add([]byte(s.frame(frameUnhandled, false, []byte{71, 0, 1, 2, 3}).frame(frameUnhandled, false, []byte{72, 0}).frame(71, false, make([]byte, 40)).
		frame(frameUnhandled, false, []byte{0, 8})))
	f.Add([]byte(s.frame(frameUnhandled, false, make([]byte, 2+unhandledBytes+1)).frame(frameUnhandled, false, []byte{71})))
	f.Add([]byte(s.frame(70, false, make([]byte, 900)).frame(3000, false).frame(60, false)))
}

// FuzzFrames plays the peer of an endpoint: whatever it sends, nothing panics,
// every operation ends, and no memory stays pinned.
func FuzzFrames(f *testing.F) {
	addFrameScripts(f)
	f.Fuzz(func(t *testing.T, script []byte) {
		e := loneElement(t, 1, Limits{WindowBytes: 2 * MaxFrameBytes, OpsPerEndpoint: 8, ReservedBytes: 1 << 20})
		seg, err := e.NewSegment(200_000, Writable)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := seg.Key(RightsAll); err != nil {
			t.Fatal(err)
		}
		e.keys.slots[0].secret = [16]byte{}
		e.HandleRetaining(70, func(m Message) {})
		(*Layer)(e).HandleReturned(71, func(m Message) {
			if m.ID != 71 || len(m.Body) > unhandledBytes {
				t.Fatalf("message %d comes back with %d bytes", m.ID, len(m.Body))
			}
			m.Release()
		})
		ep, link := attach(t, e, 2)
		link.room = 20 // then it is full
		r := newRemote(ep, Key{Owner: 2, Size: 1 << 20, Rights: RightsAll})
		buf := make([]byte, 1000)
		ops := []Op{r.StartGet(buf, 0), r.StartPut(buf[:10], 0), r.StartPut(make([]byte, 100_000), 0), r.StartAtomic(FetchAdd(1), 8, 0)}
		for len(script) >= 4 {
			head, n := binary.LittleEndian.Uint16(script), int(binary.LittleEndian.Uint16(script[2:]))
			script = script[4:]
			n = min(n, len(script))
			fr := frame{FrameID(head & 0xfff), script[:n]}
			script = script[n:]
			if err := deliver(ep, fr, head>>15 != 0); err != nil {
				ep.receiver().Lost(err)
				break
			}
			if head>>12&7 == 1 {
				link.room += 3
				ep.receiver().Writable()
			}
			e.Progress()
		}
		ep.fail(ErrPeerLost)
		for i, op := range ops {
			if !op.Poll() {
				t.Fatalf("operation %d is still under way", i)
			}
			op.Wait(soon(t))
		}
		seg.Close()
		if e.LentBytes() != 0 {
			t.Fatalf("%d bytes stay pinned", e.LentBytes())
		}
	})
}

// FuzzFrameQueue pushes and pops by a script, against a plain list.
func FuzzFrameQueue(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 200, 0, 0, 0}, uint16(400))
	f.Add(bytes.Repeat([]byte{255, 254, 0}, 300), uint16(60_000))
	f.Fuzz(func(t *testing.T, script []byte, limit uint16) {
		q := frameQueue{max: int(limit)}
		m := queueModel{max: int(limit)}
		for i, b := range script {
			if b == 0 {
				m.pop(t, &q)
			} else {
				m.push(t, &q, FrameID(b), bytes.Repeat([]byte{byte(i)}, int(b)*7), []byte{b})
			}
		}
		for len(m.frames) > 0 {
			m.pop(t, &q)
		}
	})
}
