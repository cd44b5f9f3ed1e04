package rpc

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/golden"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

func testKey() fabric.Key {
	return fabric.Key{Owner: 0x1122334455667788, Slot: 2, Generation: 3, Secret: [16]byte{4, 5, 6}, Size: 1 << 20, Rights: fabric.RightRead, Sealed: true}
}

func (r *request) append(b []byte) []byte {
	var head [requestBytes]byte
	r.put(&head)
	return append(append(append(b, head[:]...), r.ext...), r.body...)
}

func (r *response) append(b []byte) []byte {
	var head [responseBytes]byte
	r.put(&head)
	return append(append(b, head[:]...), r.body...)
}

// goldens are one message of each sort, as it must stay on the wire.
func goldens() map[string][]byte {
	id := exchange.NewID(0x0a0b0c, 0x0102)
	plain := request{method: HashName("example.echo"), id: id, low: 0x0a0b0a, left: time.Second, body: []byte("payload")}
	oneWay := plain
	oneWay.id, oneWay.flags, oneWay.left = exchange.NewID(7, exchange.NoSlot), flagOneWay, time.Hour
	oneWay.low = 0
	traced := plain
	traced.ext = appendTrace(nil, &TraceContext{TraceID: [16]byte{1, 2, 3}, SpanID: [8]byte{4, 5}, Flags: 1, State: "vendor=x"})
	small := plain
	small.grant = leastGrant
	lent := plain
	lent.flags, lent.body = flagLent, ref{testKey(), 1 << 19}.append(nil)
	answer := response{id: id, body: []byte("answer")}
	failed := response{id: id, code: CodeFailed, body: []byte("no luck")}
	large := response{id: id, lent: true, body: ref{testKey(), 1 << 19}.append(nil)}
	var n [numberBytes]byte
	var held [heldBytes]byte
	part := ref{testKey(), 1 << 19}.append(appendWritten(nil, id, 1<<18))
	return map[string][]byte{
		"request": plain.append(nil), "request_oneway": oneWay.append(nil), "request_traced": traced.append(nil), "request_lent": lent.append(nil), "request_small": small.append(nil),
		"response": answer.append(nil), "response_failed": failed.append(nil), "response_lent": large.append(nil),
		"cancel": putNumber(&n, id), "held": putHeld(&held, id, 1<<19), "ended": putEnded(new([numberBytes]byte), 48), "written": part,
		"note": append(bytes.Clone(putNumber(&n, id)), "half way"...),
	}
}

func TestGoldens(t *testing.T) {
	for name, b := range goldens() {
		golden.CheckHex(t, filepath.Join("testdata", "wire", name+".hex"), b)
	}
}

func TestLeft(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		-1: 0, 0: 0, 1: time.Microsecond, 1999: time.Microsecond, time.Second: time.Second,
		35 * time.Minute: 35 * time.Minute, 36*time.Minute + 1500*time.Microsecond: 36*time.Minute + time.Millisecond,
		24 * time.Hour: 24 * time.Hour, math.MaxInt64: (leftMillis - 1) * time.Millisecond,
	} {
		if got := decodeLeft(encodeLeft(d)); got != want {
			t.Errorf("%v travels as %v, want %v", d, got, want)
		}
	}
}

func TestLagThatDoesNotFit(t *testing.T) {
	r := request{id: exchange.NewID(1<<40, 1), low: 1, left: time.Second}
	var got request
	if err := decodeRequest(r.append(nil), &got); err != nil || got.low != 0 || got.id != r.id {
		t.Errorf("low is %d, %v", got.low, err)
	}
}

func TestBadMessages(t *testing.T) {
	good := goldens()
	change := func(name string, at int, v byte) []byte {
		b := bytes.Clone(good[name])
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"short":                   good["request"][:requestBytes-1],
		"unknown flag":            change("request", 24, flagNested<<1),
		"too little room":         change("request", 25, leastGrant-1),
		"too much room":           change("request", 25, mostGrant+1),
		"room and no answer":      change("request_oneway", 25, leastGrant),
		"extensions past the end": change("request", 27, 1),
		"one-way with a slot":     change("request", 24, flagOneWay),
		"answer without a slot":   change("request_oneway", 24, 0),
		"ref of another length":   change("request", 24, flagLent),
		"lag above the number":    change("request_oneway", 16, 8),
		"number 0":                append(make([]byte, requestBytes), 'x'),
	} {
		if name == "lag above the number" {
			copy(b[17:20], []byte{0, 0, 0})
		}
		var r request
		if err := decodeRequest(b, &r); err == nil {
			t.Errorf("a request with %s was read: %+v", name, r)
		}
	}
	for name, b := range map[string][]byte{
		"short": good["response"][:responseBytes-1], "unknown flag": change("response", 12, 2), "ref of another length": change("response", 12, 1),
	} {
		var r response
		if err := decodeResponse(b, &r); err == nil {
			t.Errorf("a response with %s was read", name)
		}
	}
	for name, b := range map[string][]byte{
		"short": good["held"][:heldBytes-1], "long": append(bytes.Clone(good["held"]), 0), "no bytes": make([]byte, heldBytes),
		"without a slot": putHeld(new([heldBytes]byte), exchange.NewID(7, exchange.NoSlot), 1),
	} {
		if id, n, err := decodeHeld(b); !errors.Is(err, ErrWire) {
			t.Errorf("an answer that is held (%s) was read: %v, %d, %v", name, id, n, err)
		}
	}
	if n, err := decodeEnded(make([]byte, numberBytes+1)); !errors.Is(err, ErrWire) {
		t.Errorf("bytes after how many have ended were read: %d, %v", n, err)
	}
	if _, err := decodeBare(make([]byte, numberBytes+1)); err == nil {
		t.Error("bytes after a bare id were read")
	}
}

func TestExtensions(t *testing.T) {
	trace := TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1, State: "a=b"}
	known := appendTrace(nil, &trace)
	var got TraceContext
	if err := decodeExt(append(bytes.Clone(known), 200, 2, 0, 'x', 'y'), &got); err != nil || got != trace {
		t.Errorf("%+v, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"twice": append(bytes.Clone(known), known...), "unknown": {2, 0, 0}, "cut head": {1, 0}, "cut": known[:len(known)-1],
		"short trace": {1, 1, 0, 7}, "long state": append([]byte{1, 0xff, 0x03}, make([]byte, 0x3ff)...),
	} {
		if err := decodeExt(b, &got); err == nil {
			t.Errorf("extensions (%s) were read", name)
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	for _, name := range []string{"request", "request_oneway", "request_traced", "request_lent", "request_small"} {
		f.Add(goldens()[name])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request
		if decodeRequest(b, &r) != nil {
			return
		}
		if r.low > r.id.Number() {
			t.Fatalf("low %d above %v", r.low, r.id)
		}
		again := r.append(nil)
		copy(again[16:24], b[16:24]) // a lag that was not told, and times, have more than one form
		if !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		var trace TraceContext
		if decodeExt(r.ext, &trace) == nil && len(trace.State) > MaxTraceStateBytes {
			t.Fatal("a state that is too long")
		}
		if r.lent() {
			if k, err := decodeRef(r.body, 1<<20); err == nil && (k.size > 1<<20 || !bytes.Equal(k.append(nil), r.body)) {
				t.Fatalf("%x became %x", r.body, k.append(nil))
			}
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	for _, name := range []string{"response", "response_failed", "response_lent"} {
		f.Add(goldens()[name])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r response
		if decodeResponse(b, &r) != nil {
			return
		}
		if again := r.append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func TestRefRoundTrip(t *testing.T) {
	k := ref{testKey(), 50}
	got, err := decodeRef(k.append(nil), 1000)
	if diff := cmp.Diff(k, got, cmp.AllowUnexported(ref{})); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, size := range map[string]uint64{"nothing": 0, "more than the key": 1<<20 + 1, "above the limit": 1001} {
		k.size = size
		if _, err := decodeRef(k.append(nil), 1000); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestTraceparent(t *testing.T) {
	trace := TraceContext{TraceID: [16]byte{0x0a, 15: 0x9c}, SpanID: [8]byte{0xb7, 7: 0x31}, Flags: 1}
	if got := trace.String(); got != "00-0a00000000000000000000000000009c-b700000000000031-01" || !trace.Valid() {
		t.Errorf("%s, valid: %v", got, trace.Valid())
	}
	if trace.SpanID = [8]byte{}; trace.Valid() {
		t.Error("a trace without a span is valid")
	}
}

func FuzzDecodeWritten(f *testing.F) {
	good := goldens()["written"]
	f.Add(good)
	f.Add(good[:writtenHead])
	f.Add(good[:writtenHead-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		id, w, err := decodeWritten(b, 1<<19)
		if err != nil {
			return
		}
		if again := w.at.append(appendWritten(nil, id, w.n)); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if w.n == 0 || w.n >= w.at.size || w.at.size > 1<<19 || w.at.size > w.at.key.Size || id.Slot() == exchange.NoSlot {
			t.Fatalf("%d of %d bytes of the answer to %v", w.n, w.at.size, id)
		}
	})
}

// FuzzDecodeReturned: what is read of a request that comes back is what it was sent with.
func FuzzDecodeReturned(f *testing.F) {
	f.Add(goldens()["request"])
	f.Add(make([]byte, requestIDEnd))
	f.Add(make([]byte, requestIDEnd-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request
		whole := decodeRequest(b, &r)
		id, err := decodeReturned(b)
		if err != nil && !errors.Is(err, ErrWire) || err != nil && whole == nil || whole == nil && id != r.id {
			t.Fatalf("%x is request %v (%v), and comes back as %v (%v)", b, r.id, whole, id, err)
		}
	})
}

func FuzzDecodeNumber(f *testing.F) {
	f.Add(goldens()["cancel"])
	f.Add(goldens()["note"])
	f.Add(goldens()["held"])
	f.Add(goldens()["ended"])
	f.Fuzz(func(t *testing.T, b []byte) {
		id, rest, err := decodeNumber(b)
		if err != nil {
			return
		}
		var n [numberBytes]byte
		if again := append(bytes.Clone(putNumber(&n, id)), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if again, size, err := decodeHeld(b); err == nil && (again != id || !bytes.Equal(putHeld(new([heldBytes]byte), id, size), b)) {
			t.Fatalf("%x holds %d bytes of %v", b, size, again)
		}
		if total, err := decodeEnded(b); (err == nil) != (len(rest) == 0) || err == nil && !bytes.Equal(putEnded(new([numberBytes]byte), total), b) {
			t.Fatalf("%x says that %d have ended: %v", b, total, err)
		}
		if _, err := decodeBare(b); (err == nil) != (len(rest) == 0) {
			t.Fatalf("bare with %d bytes more: %v", len(rest), err)
		}
	})
}
