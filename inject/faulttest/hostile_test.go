package faulttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject/travel"
)

const (
	kindInject  = travel.KindInject
	kindNeed    = travel.KindNeed
	kindCode    = travel.KindCode
	kindDone    = travel.KindDone
	kindRefused = travel.KindRefused
)

func frame(k travel.Kind) fabric.FrameID {
	if k.Reserved() {
		return fabric.FirstReservedID + fabric.FrameID(k)
	}
	return fabric.FirstMessageID + fabric.FrameID(k)
}

// hostile is an element that speaks the travel protocol by hand.
type hostile struct {
	t  testing.TB
	el *fabric.Element
	to *fabric.Endpoint // node 0

	mu   sync.Mutex
	got  []received
	need func(id travel.ID, first, count int) // answers NEED; nil: does not
}

type received struct {
	kind travel.Kind
	body []byte
}

// newHostile connects a hostile element to node 0, with any incarnation if 0.
func newHostile(t testing.TB, g *grid, token string, incarnation uint64) *hostile {
	t.Helper()
	h := &hostile{t: t, el: strange(t, token, incarnation)}
	var err error
	for k := travel.Kind(0); k < travel.Kinds; k++ {
		if err := h.el.Handle(frame(k), func(m fabric.Message) { h.receive(k, m.Body) }); err != nil {
			t.Fatal(err)
		}
	}
	if h.to, err = h.el.Dial(within(t, patience), g.nodes[0].addrs[0]); err != nil {
		t.Fatal(err)
	}
	return h
}

// strange is an element without a runtime.
func strange(t testing.TB, token string, incarnation uint64) *fabric.Element {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "hostile", Transports: []fabric.Transport{tr}, Auth: auth{token}, Incarnation: fabric.Incarnation(incarnation)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return el
}

func (h *hostile) receive(k travel.Kind, body []byte) {
	h.mu.Lock()
	h.got = append(h.got, received{k, bytes.Clone(body)})
	need := h.need
	h.mu.Unlock()
	if k == kindNeed && need != nil {
		need(travel.ID(body[:32]), int(binary.LittleEndian.Uint16(body[32:])), int(binary.LittleEndian.Uint16(body[34:])))
	}
}

func (h *hostile) send(k travel.Kind, body []byte) {
	h.t.Helper()
	if err := h.to.Post(frame(k), body, nil); err != nil {
		h.t.Logf("sending %v: %v", k, err)
	}
}

func (h *hostile) count(k travel.Kind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.got {
		if r.kind == k {
			n++
		}
	}
	return n
}

// expect waits for a message of a kind that holds a text, and takes it.
func (h *hostile) expect(k travel.Kind, texts ...string) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("waiting for %v with %q", k, texts), func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
	next:
		for i, r := range h.got {
			if r.kind != k {
				continue
			}
			for _, text := range texts {
				if !bytes.Contains(r.body, []byte(text)) {
					continue next
				}
			}
			h.got = append(h.got[:i], h.got[i+1:]...)
			return ""
		}
		var all []string
		for _, r := range h.got {
			all = append(all, fmt.Sprintf("%v %q", r.kind, r.body))
		}
		return "there are " + strings.Join(all, "; ")
	})
}

// cutOff waits until the node has closed the connection.
func (h *hostile) cutOff() {
	h.t.Helper()
	eventually(h.t, "the node keeps the connection", func() string {
		if h.to.Err() == nil {
			return "it is alive"
		}
		return ""
	})
}

func idOf(b []byte) travel.ID {
	if len(b) >= 64 && string(b[:8]) == "WHERRYFN" { // an image says what it is; its signatures do not count
		return travel.ID(b[32:64])
	}
	return sha256.Sum256(b)
}

// injection is an INJECT by hand: docs of the protocol have the layout.
type injection struct {
	seq, transfer, origin uint64
	image, table          travel.ID
	inline                []byte // the image
	payload               []byte
	handle                uint16
}

func (h *hostile) inject(i injection) { h.t.Helper(); h.send(kindInject, i.encode()) }

func (i injection) encode() []byte {
	const flagOrigin, flagExt, left = 1, 4, 12<<11 | 0 // left: about 4 s
	flags := uint16(flagExt)
	if i.origin != 0 {
		flags |= flagOrigin
	}
	b := binary.LittleEndian.AppendUint16(nil, flags<<12|16)
	b = binary.LittleEndian.AppendUint16(b, left)
	b = binary.LittleEndian.AppendUint16(b, i.handle)
	b = append(b, byte(i.transfer), byte(i.transfer>>8), byte(i.transfer>>16))
	b = append(binary.LittleEndian.AppendUint32(b, uint32(i.seq)), byte(i.seq>>32))
	if i.origin != 0 {
		b = binary.LittleEndian.AppendUint64(b, i.origin)
	}
	ids := append([]byte(nil), i.image[:]...)
	if !i.table.IsZero() {
		ids = append(ids, i.table[:]...)
	}
	ext := extension(nil, 1, ids)
	if i.inline != nil {
		ext = extension(ext, 2, i.inline)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(ext)))
	return append(append(b, ext...), i.payload...)
}

func extension(b []byte, kind byte, v []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(append(b, kind), uint16(len(v))), v...)
}

// code is a CODE message.
func code(id travel.ID, size uint32, index uint16, data []byte) []byte {
	b := binary.LittleEndian.AppendUint32(append([]byte(nil), id[:]...), size)
	return append(binary.LittleEndian.AppendUint16(b, index), data...)
}

// serve answers NEED with an object's chunks.
func (h *hostile) serve(object []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.need = func(id travel.ID, first, count int) {
		for i := first; i < first+count && i*travel.ChunkBytes < len(object); i++ {
			chunk := object[i*travel.ChunkBytes : min((i+1)*travel.ChunkBytes, len(object))]
			h.to.Post(frame(kindCode), code(id, uint32(len(object)), uint16(i), chunk), nil)
		}
	}
}

// pause is long enough for a node to act on what it was sent, if it would.
const pause = 50 * time.Millisecond
