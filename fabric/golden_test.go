package fabric

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/internal/golden"
)

// TestGolden holds every frame against testdata/wire.golden: a change of the
// wire format is a decision, with a new version in HELLO, never an accident.
func TestGolden(t *testing.T) {
	got := goldenHello()
	got = append(got, goldenRequests(t)...)
	golden.Check(t, "testdata/wire.golden", append(got, goldenAnswers(t)...))
}

func goldenLine(b []byte, name string, id FrameID, body []byte) []byte {
	return fmt.Appendf(b, "%-28s %4d  %s\n", name, id, hex.EncodeToString(body))
}

func goldenFrames(b []byte, name string, l *fakeLink) []byte {
	for i, f := range l.take() {
		if i > 0 {
			name = "  then"
		}
		if len(f.body) > 200 {
			f.body = f.body[:200]
		}
		b = goldenLine(b, name, f.id, f.body)
	}
	return b
}

func goldenHello() (b []byte) {
	h := &hello{kind: helloDial, versionMin: helloVersion, versionMax: helloVersion, features: 0, incarnation: 0x1122334455667788,
		window: 1 << 20, ops: 1024, nonce: [nonceBytes]byte{1, 2, 3, 31: 32}, name: "barge", token: "harbour", addrs: []string{"tcp://127.0.0.1:7000", "shm://@b"}}
	dial := h.encode()
	h.kind, h.name = helloAccept, "dock"
	accept := h.encode()
	var msg bytes.Buffer
	writeHello(&msg, dial)
	b = fmt.Appendf(b, "hello dial      %x\n", msg.Bytes())
	msg.Reset()
	writeHello(&msg, append(bytes.Clone(accept), proof([]byte("deep"), "accept", dial, accept)...))
	b = fmt.Appendf(b, "hello accept    %x\n", msg.Bytes())
	msg.Reset()
	writeHello(&msg, append([]byte{byte(helloProof)}, proof([]byte("deep"), "dial", dial, accept)...))
	b = fmt.Appendf(b, "hello proof     %x\n", msg.Bytes())
	msg.Reset()
	writeHello(&msg, []byte{byte(helloWelcome)})
	b = fmt.Appendf(b, "hello welcome   %x\n", msg.Bytes())
	msg.Reset()
	writeRefusal(&msg, errors.New("no room"))
	b = fmt.Appendf(b, "hello refuse    %x\n", msg.Bytes())
	msg.Reset()
	writeRefusal(&msg, fmt.Errorf("%w: it is ann's", ErrTaken))
	b = fmt.Appendf(b, "hello taken     %x\n", msg.Bytes())
	msg.Reset()
	id := connIDOf(dial, accept)
	writeHello(&msg, append([]byte{byte(helloOther)}, id[:]...))
	b = fmt.Appendf(b, "hello other     %x\n", msg.Bytes())
	msg.Reset()
	writeHello(&msg, []byte{byte(helloInsist)})
	return fmt.Appendf(b, "hello insist    %x\n", msg.Bytes())
}

// goldenKey refers to something of the peer's.
func goldenKey() Key {
	return Key{Owner: 2, Slot: 0x0a0b0c0d, Generation: 7, Secret: [16]byte{0xf0, 0xf1, 15: 0xff}, Size: 1 << 20, Rights: RightsAll, Sealed: true}
}

func goldenRequests(t *testing.T) (b []byte) {
	e := loneElement(t, 1, Limits{})
	ep, link := attach(t, e, 2)
	k := goldenKey()
	b = fmt.Appendf(b, "key             %x\n", k.Append(nil))
	r := newRemote(ep, k)
	flying := []Op{}
	record := func(name string, fn func()) {
		fn()
		e.Progress()
		b = goldenFrames(b, name, link)
	}
	start := func(name string, fn func() Op) { record(name, func() { flying = append(flying, fn()) }) }
	record("message", func() { ep.TrySend(100, []byte("head"), []byte("body")) })
	record("message, reserved", func() { ep.Post(3000, nil, []byte("urgent")) })
	start("get", func() Op { return r.StartGet(make([]byte, 10), 0x1000) })
	start("put", func() Op { return r.StartPut([]byte("0123456789"), 0x2000) })
	start("put, large", func() Op { return r.StartPut(bytes.Repeat([]byte{0xda}, fragmentBytes+100), 0x3000) })
	for op := KindFetchAdd; op <= KindFetchXor; op++ {
		start(fmt.Sprintf("atomic %d", op), func() Op { return r.StartAtomic(AtomicOp{op, 0x55, 0x66}, 8, 0x4000) })
	}
	record("ping", func() { ep.say(framePing, nil) })
	record("pause", func() {
		ep.peer.hello.features |= featurePause
		e.Pause(1500 * time.Millisecond)
	})
	record("put abandoned", func() {
		large := r.StartPut(bytes.Repeat([]byte{0xda}, 2*fragmentBytes), 0x5000)
		large.Forget()
	})
	record("put, posted", func() { r.Post([]byte("0123456789"), 0x6000) })
	blocking := func(name string, id FrameID, fn func(rec *opRecord) []byte) {
		rec := ep.ops.start(name, nil)
		record(name, func() { ep.request(soon(t), id, rec, fn(rec)) })
		flying = append(flying, Op{rec: rec})
	}
	blocking("import", frameImport, func(rec *opRecord) []byte { return k.ref().append(u32(rec.id())) })
	blocking("narrow", frameNarrow, func(rec *opRecord) []byte {
		return append(appendAccess(nil, rec.id(), k.ref(), 16, 32), byte(RightRead))
	})
	blocking("flush", frameFlush, func(rec *opRecord) []byte { return u32(rec.id()) })
	record("goodbye", func() { ep.Close() })
	for _, op := range flying {
		op.Wait(soon(t))
	}
	return b
}

func goldenAnswers(t *testing.T) (b []byte) {
	e := loneElement(t, 0x99, Limits{WindowBytes: 2 * MaxFrameBytes})
	seg, err := e.NewSegment(200_000, Writable)
	if err != nil {
		t.Fatal(err)
	}
	for i := range seg.Bytes() {
		seg.Bytes()[i] = byte(i)
	}
	if _, err := seg.Key(RightsAll); err != nil {
		t.Fatal(err)
	}
	e.keys.slots[0].secret = [16]byte{}
	e.Handle(100, func(Message) {})
	ep, link := attach(t, e, 2)
	ask := func(name string, id FrameID, body ...[]byte) {
		if err := ep.receiver().Frame(id, bytes.Join(body, nil)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e.Progress()
		frames := link.take()
		for _, f := range frames {
			if f.id == frameNarrowed { // its secret is random
				clear(f.body[8+16 : 8+32])
			}
		}
		link.frames = frames
		b = goldenFrames(b, "answer to "+name, link)
	}
	ask("ping", framePing)
	ask("get 8", frameGet, fuzzAccess(0x01000002, 16, 8))
	ask("get 10", frameGet, fuzzAccess(3, 16, 10))
	ask("get, large", frameGet, fuzzAccess(4, 0, fragmentBytes+10))
	ask("get, out of range", frameGet, fuzzAccess(5, 0, 1<<40))
	ask("put", framePut, fuzzAccess(6, 0, 3), []byte("abc"))
	ask("put, posted", framePut, fuzzAccess(noOp, 0, 3), []byte("abd"))
	ask("put, announced", framePut, fuzzAccess(7, 0, 3))
	ask("put data", framePutData, bulkHead(nil, 7, bulkLast, 0), []byte("abc"))
	ask("atomic", frameAtomic, fuzzAccess(8, 8, 8), u64(1), u64(0), []byte{byte(KindFetchAdd)})
	ask("atomic, misaligned", frameAtomic, fuzzAccess(9, 9, 8), u64(1), u64(0), []byte{byte(KindFetchAdd)})
	ask("narrow", frameNarrow, fuzzAccess(10, 8, 8), []byte{byte(RightRead)})
	ask("import", frameImport, u32(11), make([]byte, keyRefBytes))
	ask("import, no such key", frameImport, u32(12), u32(9), make([]byte, keyRefBytes-4))
	ask("flush", frameFlush, u32(13))
	ask("messages", 100, make([]byte, MaxMessageBytes))
	ask("message without handler", 101, []byte("the first 32 bytes of this one return"))
	ask("none, reserved", 3000, []byte("nothing of this one does"))
	ep.map_.sent[7] = &Segment{}
	ep.sendUnmap(7)
	return goldenFrames(b, "segment closed", link)
}
