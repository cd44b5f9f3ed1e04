package travel

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/internal/golden"
)

func testID(b byte) (id ID) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}

func injectBytes(m injectMsg, e *injectExt, forks []uint64, payload string) []byte {
	var head [injectHeadBytes + 24]byte
	b := append([]byte(nil), head[:m.putHead(&head)]...)
	if m.flags&flagExt != 0 {
		b = e.append(b, forks)
	}
	return append(b, payload...)
}

// goldens are one message of each sort, as it must stay on the wire.
func goldens() map[string][]byte {
	in := injectMsg{hops: 1023, left: encodeTime(Instant(time.Second)), handle: 0x2005, transfer: 0x030201, seq: 0x0504030201}
	fwd := in
	fwd.flags, fwd.origin = flagOrigin, 0x1122334455667788
	branch := in
	branch.flags, branch.branch = flagBranch|flagState, 0x8000000000000001
	full := in
	full.flags, full.origin, full.branch = flagOrigin|flagBranch|flagExt, 0x1122334455667788, 0x8000000000000001
	ext := injectExt{declared: true, what: What{Image: testID(1), Table: testID(64)}, imageBytes: []byte("image"), tableBytes: []byte("table"),
		hasTrace: true, trace: Trace{TraceID: [16]byte{1, 2, 3}, Span: [8]byte{4, 5}, Flags: 1}, parts: 3, lists: 1}
	done := doneMsg{flags: doneFinal | doneResult, seq: 0x0504030201, final: 0x030201}
	failed := doneMsg{flags: doneBranch | doneNumbered | doneError | doneSent | doneForks | doneHolds, seq: 7, branch: 9, transfer: 11,
		code: CodeFunction, status: -5, element: []byte("node1"), function: []byte("chase"), text: []byte("no such row"), parts: 2, lists: 1}
	return map[string][]byte{
		"inject":          injectBytes(in, nil, nil, "payload"),
		"inject_forward":  injectBytes(fwd, nil, nil, "payload"),
		"inject_branch":   injectBytes(branch, nil, nil, ""),
		"inject_full":     injectBytes(full, &ext, []uint64{1, 2}, "payload"),
		"done":            append(done.append(nil, nil), "result"...),
		"done_failed":     failed.append(nil, []uint64{21, 22}),
		"part":            append((&partMsg{transfer: 5, seq: 6, index: 7}).append(nil), "data"...),
		"list":            le.AppendUint64((&partMsg{transfer: 5, seq: 6, branch: 8, index: 1}).append(nil), 99),
		"ack":             appendAck(nil, 0x10203, []span{{0x10205, 3}, {0x10209, 1}}),
		"need":            (&needMsg{id: testID(1), first: 4, count: 4}).append(nil),
		"code":            append((&codeMsg{id: testID(1), size: ChunkBytes + 3, index: 1}).append(nil), "end"...),
		"code_none":       (&codeMsg{id: testID(1)}).append(nil),
		"cancel":          (&cancelMsg{left: 5, seq: 6}).append(nil),
		"seq":             appendU40(nil, 0x0504030201),
		"lost":            (&lostMsg{mayHaveRun: true, numbered: true, transfer: 3, code: CodePeerLost, seq: 6, branch: 8, incarnation: 9, name: []byte("node2"), text: []byte("reset")}).append(nil),
		"refused":         (&refusedMsg{transfer: 3, code: CodeRefused, text: []byte("no origin")}).append(nil),
		"inject_form":     injectBytes(injectMsg{flags: flagExt, seq: 1}, &injectExt{declared: true, what: What{Image: testID(1), Form: 2}}, nil, ""),
		"inject_derived":  injectBytes(injectMsg{flags: flagExt, seq: 1}, &injectExt{declared: true, what: What{Image: testID(1), Form: 2, Constants: "least"}}, []uint64{1}, "payload"),
		"inject_made":     injectBytes(injectMsg{flags: flagExt, seq: 1}, &injectExt{declared: true, what: What{Image: testID(1), Table: testID(2), Maker: 0x0807060504030201}}, nil, "payload"),
		"inject_worker":   injectBytes(injectMsg{flags: flagState | flagExt, seq: 1}, &injectExt{worker: 1, workers: 4}, nil, "payload"),
		"inject_traced":   injectBytes(injectMsg{flags: flagExt, seq: 1}, &injectExt{hasTrace: true}, nil, ""),
		"done_empty":      (&doneMsg{flags: doneFinal, seq: 1, final: 2}).append(nil, nil),
		"room":            (&roomMsg{what: roomInTheWay, seq: 0x0504030201}).append(nil),
		"pace":            (&paceMsg{wait: true, origin: 0x0807060504030201}).append(nil),
		"refused_unknown": (&refusedMsg{transfer: 3, code: CodeNoCode, reason: reasonUnknownHandle}).append(nil),
	}
}

func TestGolden(t *testing.T) {
	for name, b := range goldens() {
		golden.CheckHex(t, filepath.Join("testdata", "wire", name+".hex"), b)
		kind, _, _ := strings.Cut(name, "_")
		if again, err := recode(kind, b); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s decodes and encodes to %x, %v; want %x", name, again, err, b)
		}
	}
	if n := len(goldens()["inject"]) - len("payload"); n != 14 {
		t.Errorf("an injection's head has %d bytes, want 14", n)
	}
	if n := len(goldens()["inject_forward"]) - len("payload"); n != 22 {
		t.Errorf("a forward's head has %d bytes, want 22", n)
	}
}

// recode decodes a message and encodes what it found.
func recode(kind string, b []byte) ([]byte, error) {
	switch kind {
	case "inject":
		var m injectMsg
		var e injectExt
		if err := m.decode(b, &e); err != nil {
			return nil, err
		}
		return injectBytes(m, &e, numbers(e.forks), string(m.payload)), nil
	case "done":
		var m doneMsg
		err := m.decode(b)
		return append(m.append(nil, numbers(m.forks)), m.result...), err
	case "part", "list":
		var m partMsg
		err := m.decode(map[string]Kind{"part": KindPart, "list": KindList}[kind], b)
		return append(m.append(nil), m.data...), err
	case "ack":
		var m ackMsg
		err := m.decode(b)
		if err != nil {
			return nil, err
		}
		return appendAck(nil, m.low, spans(m.accepted)), err
	case "need":
		var m needMsg
		err := m.decode(b)
		return m.append(nil), err
	case "code":
		var m codeMsg
		err := m.decode(b)
		return append(m.append(nil), m.data...), err
	case "cancel":
		var m cancelMsg
		err := m.decode(b)
		return m.append(nil), err
	case "seq":
		seq, err := decodeSeq(KindFree, b)
		return appendU40(nil, seq), err
	case "lost":
		var m lostMsg
		err := m.decode(b)
		return m.append(nil), err
	case "pace":
		var m paceMsg
		err := m.decode(b)
		return m.append(nil), err
	case "refused":
		var m refusedMsg
		err := m.decode(b)
		return m.append(nil), err
	case "room":
		var m roomMsg
		err := m.decode(b)
		return m.append(nil), err
	}
	return nil, fmt.Errorf("no kind %q", kind)
}

func numbers(b []byte) (l []uint64) {
	for ; len(b) > 0; b = b[8:] {
		l = append(l, le.Uint64(b))
	}
	return l
}

func spans(b []byte) (l []span) {
	for ; len(b) > 0; b = b[spanBytes:] {
		l = append(l, span{getU24(b), le.Uint16(b[3:])})
	}
	return l
}

// FuzzDecode: a message that decodes has one encoding, and every other is
// refused as a protocol violation. The first byte picks the kind.
func FuzzDecode(f *testing.F) {
	kinds := []string{"inject", "done", "part", "list", "ack", "need", "code", "cancel", "seq", "lost", "refused", "room", "pace"}
	for name, b := range goldens() {
		kind, _, _ := strings.Cut(name, "_")
		for i, k := range kinds {
			if k == kind {
				f.Add(append([]byte{byte(i)}, b...))
				f.Add(append([]byte{byte(i)}, b[:len(b)-1]...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		kind := kinds[int(b[0])%len(kinds)]
		again, err := recode(kind, b[1:])
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("%s: %v is no protocol violation", kind, err)
			}
			return
		}
		if !bytes.Equal(again, b[1:]) && !hasOptional(kind, b[1:]) {
			t.Fatalf("%s %x encodes to %x", kind, b[1:], again)
		}
	})
}

// hasOptional reports extensions that a decoder skips.
func hasOptional(kind string, b []byte) bool {
	if kind != "inject" {
		return false
	}
	n := injectHeadBytes
	flags := b[1] >> 4
	for _, f := range []byte{flagOrigin, flagBranch} {
		if flags&f != 0 {
			n += 8
		}
	}
	if flags&flagExt == 0 {
		return false
	}
	end := n + 2 + int(le.Uint16(b[n:]))
	for n += 2; n < end; n += 3 + int(le.Uint16(b[n+1:])) {
		if b[n] >= extOptional {
			return true
		}
	}
	return false
}

// withExt is an injection with these bytes as its extensions.
func withExt(ext ...byte) []byte {
	b := injectBytes(injectMsg{seq: 1}, nil, nil, "")
	b[1] |= flagExt << 4
	return append(le.AppendUint16(b, uint16(len(ext))), ext...)
}

func TestDecodeRefuses(t *testing.T) {
	inject := func(change func(b []byte) []byte) []byte {
		return change(append([]byte(nil), goldens()["inject_full"]...))
	}
	for name, c := range map[string]struct {
		kind string
		b    []byte
	}{
		"short inject":            {"inject", make([]byte, 13)},
		"origin 0":                {"inject", inject(func(b []byte) []byte { clear(b[14:22]); return b })},
		"extensions beyond end":   {"inject", inject(func(b []byte) []byte { b[31] = 0xff; return b })},
		"unknown extension":       {"inject", withExt(100, 0, 0)},
		"extension cut short":     {"inject", withExt(extOptional, 9, 0)},
		"extension twice":         {"inject", withExt(extOptional, 0, 0, extOptional, 0, 0)},
		"no extensions":           {"inject", withExt()},
		"object, no declaration":  {"inject", withExt(extImage, 1, 0, 7)},
		"short declaration":       {"inject", withExt(extDeclare, 2, 0, 7, 7)},
		"form 0 spelt out":        {"inject", withExt(append([]byte{extDeclare, 33, 0}, append(bytes.Repeat([]byte{7}, 32), 0)...)...)},
		"no constants":            {"inject", withExt(extDerived, 0, 0)},
		"constants of nothing":    {"inject", withExt(extDerived, 1, 0, 7)},
		"worker of none":          {"inject", withExt(extWorker, 2, 0, 0, 0)},
		"the only worker":         {"inject", withExt(extWorker, 2, 0, 0, 1)},
		"worker 2 of 2":           {"inject", withExt(extWorker, 2, 0, 2, 2)},
		"too many workers":        {"inject", withExt(extWorker, 2, 0, 0, MaxWorkers+1)},
		"short worker":            {"inject", withExt(extWorker, 1, 0, 1)},
		"short trace":             {"inject", withExt(extTrace, 2, 0, 7, 7)},
		"forks of 7 bytes":        {"inject", withExt(extForks, 7, 0, 1, 2, 3, 4, 5, 6, 7)},
		"done with rest":          {"done", append((&doneMsg{flags: doneFinal, seq: 1}).append(nil, nil), 1)},
		"done numbered and final": {"done", (&doneMsg{flags: doneFinal | doneNumbered, seq: 1}).append(nil, nil)},
		"done with code ok":       {"done", (&doneMsg{flags: doneError, seq: 1}).append(nil, nil)},
		"list of 3 bytes":         {"list", append((&partMsg{}).append(nil), 1, 2, 3)},
		"list index":              {"list", le.AppendUint64((&partMsg{index: maxLists}).append(nil), 1)},
		"ack range of 0":          {"ack", appendAck(nil, 1, []span{{1, 0}})},
		"need of 5":               {"need", (&needMsg{id: testID(1), count: needChunks + 1}).append(nil)},
		"code beyond its end":     {"code", append((&codeMsg{id: testID(1), size: 10, index: 1}).append(nil), 1)},
		"code short":              {"code", append((&codeMsg{id: testID(1), size: 10}).append(nil), 1)},
		"cancel of 8":             {"cancel", make([]byte, 8)},
		"seq of 6":                {"seq", make([]byte, 6)},
		"lost with code ok":       {"lost", (&lostMsg{seq: 1}).append(nil)},
		"room word":               {"room", []byte{byte(roomWords), 1, 0, 0, 0, 0}},
		"room short":              {"room", []byte{1, 1, 0, 0, 0}},
		"pace word":               {"pace", []byte{2, 1, 0, 0, 0, 0, 0, 0, 0}},
		"pace of nobody":          {"pace", make([]byte, 9)},
		"refused reason":          {"refused", (&refusedMsg{code: CodeRefused, reason: reasonCount}).append(nil)},
	} {
		if _, err := recode(c.kind, c.b); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, want a protocol violation", name, err)
		}
	}
}

func TestTime(t *testing.T) {
	if encodeTime(-5) != 0 || encodeTime(999) != 0 || encodeTime(1<<62) != 1<<16-1 {
		t.Error("a time out of range does not saturate")
	}
	rapid.Check(t, func(t *rapid.T) {
		d := Instant(rapid.Int64Range(0, int64(maxTime)-1).Draw(t, "d"))
		got := decodeTime(encodeTime(d))
		if got > d || d-got > max(d/2048, Instant(time.Microsecond)) {
			t.Fatalf("%v comes back as %v", time.Duration(d), time.Duration(got))
		}
		if v := encodeTime(d); encodeTime(got) != v || v < 1<<16-1 && decodeTime(v+1) <= got {
			t.Fatalf("%d is not the only encoding of %v, or the order is lost", v, got)
		}
	})
}

func TestExpand24(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Uint64Range(0, 1<<40).Draw(t, "base")
		want := base + uint64(rapid.Int64Range(-1<<23+1, 1<<23-1).Draw(t, "d"))
		got, ok := expand24(want&0xffffff, base)
		if ok != (int64(want) >= 0) || ok && got != want {
			t.Fatalf("%d near %d comes back as %d, %v", want, base, got, ok)
		}
	})
}
