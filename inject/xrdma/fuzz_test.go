package xrdma

import (
	"encoding/binary"
	"errors"
	"testing"
)

// rowsPart is a part of words, with a head that counts records of size bytes.
func rowsPart(size int, v ...uint32) []byte {
	return append(words(uint32(4*len(v)/size), 0), words(v...)...)
}

// FuzzReplies reads the same bytes as every kind of reply. What is taken is taken
// whole and is in proportion to the bytes; what is refused is refused as ErrReply.
func FuzzReplies(f *testing.F) {
	for _, b := range [][]byte{nil, {1}, words(1, 2, 3), rowsPart(8), rowsPart(8, 0, 7, 1, 9), rowsPart(8, 1, 9, 0, 7), rowsPart(16, 5, 2, 3, 0),
		rowsPart(8, 1<<31, 1), rowsPart(8, 5, 0, 1), words(1<<29, 0), make([]byte, 8)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		refused := func(what string, err error, should bool) bool {
			t.Helper()
			if err != nil && !errors.Is(err, ErrReply) || (err != nil) != should {
				t.Fatalf("%s of %d bytes: %v", what, len(b), err)
			}
			return err != nil
		}
		row, err := ChaseResult(b)
		if !refused("ChaseResult", err, len(b) != 8) && row != binary.LittleEndian.Uint64(b) {
			t.Fatal("another row")
		}
		list, err := AppendVertices([]uint32{17}, b)
		if !refused("AppendVertices", err, len(b)%4 != 0) && (len(list) != 1+len(b)/4 || list[0] != 17 || string(words(list[1:]...)) != string(b)) {
			t.Fatalf("%v of %x", list, b)
		}
		rest, n, err := CutTrail(b)
		if !refused("CutTrail", err, len(b) < 4 || len(b)%4 != 0) && string(append(append([]byte{}, rest...), words(n)...)) != string(b) {
			t.Fatalf("%x and %d of %x", rest, n, b)
		}
		fuzzRows(t, b, refused)
	})
}

// fuzzRows reads replies that are rows.
func fuzzRows(t *testing.T, b []byte, refused func(string, error, bool) bool) {
	rows := func(size int) bool {
		return len(b) >= rowsHeadBytes && uint64(len(b)-rowsHeadBytes) == uint64(binary.LittleEndian.Uint32(b))*uint64(size)
	}
	count := (len(b) - rowsHeadBytes) / 8
	top, err := AppendTop(nil, b)
	if !refused("AppendTop", err, !rows(8)) && len(top) != count {
		t.Fatalf("%d rows of %d bytes", len(top), len(b))
	}
	sum, err := InsideResult(b)
	if !refused("InsideResult", err, !rows(8)) && (count == 0) && sum != 0 {
		t.Fatalf("no row adds %d", sum)
	}
	counts := map[uint32]uint64{}
	rounds, err := AddDependents(counts, b)
	if !refused("AddDependents", err, !rows(16)) && (len(counts) > count/2 || count == 0 && rounds != 0) {
		t.Fatalf("%d counts of %d bytes", len(counts), len(b))
	}
	path, err := AppendPath(nil, b)
	if err != nil && !errors.Is(err, ErrReply) || err == nil && !rows(8) {
		t.Fatalf("AppendPath of %d bytes: %v", len(b), err)
	}
	if len(path) > 5*(len(b)+1) {
		t.Fatalf("a path of %d steps out of %d bytes", len(path), len(b))
	}
	for i := rowsHeadBytes; err == nil && i < len(b); i += 8 {
		if step := binary.LittleEndian.Uint32(b[i:]); uint64(step) >= uint64(len(path)) {
			t.Fatalf("step %d is not in the path", step)
		}
	}
}
