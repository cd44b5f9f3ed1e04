package rpc

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/golden"
)

// bulkGoldens are Bulks of each kind.
func bulkGoldens() map[string]*Bulk {
	part := func(n uint32, size uint64, sealed bool) bulkPart {
		return bulkPart{fabric.Key{Owner: 0x1122334455667788, Slot: n, Generation: 7, Secret: [16]byte{byte(n), 2}, Size: size, Rights: fabric.RightsAll, Sealed: sealed}}
	}
	inline := &Bulk{kind: bulkInline, owner: 0x1122334455667788, rights: fabric.RightsAll, size: 300, parts: []bulkPart{part(1, 100, false), part(2, 200, true)}, count: 2}
	bound := *inline
	bound.addrs = []string{"tcp://192.0.2.1:7000", "shm:///run/a.sock"}
	list := testKey()
	list.Size = 17 * partBytes
	return map[string]*Bulk{
		"bulk_null":   {},
		"bulk_eager":  {kind: bulkEager, owner: 0x1122334455667788, rights: fabric.RightRead, size: 5, data: []byte("bytes")},
		"bulk_inline": inline,
		"bulk_bound":  &bound,
		"bulk_listed": {kind: bulkListed, owner: 0x1122334455667788, rights: fabric.RightRead, size: 1 << 33, count: 17, list: ref{list, 17 * partBytes}},
	}
}

func TestBulkGoldens(t *testing.T) {
	for name, b := range bulkGoldens() {
		wire, err := b.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		golden.CheckHex(t, filepath.Join("testdata", "wire", name+".hex"), wire)
		if len(wire) > MaxBulkBytes {
			t.Errorf("%s has %d bytes, MaxBulkBytes is %d", name, len(wire), MaxBulkBytes)
		}
		back, rest, err := DecodeBulk(append(wire, 1, 2, 3))
		if err != nil || len(rest) != 3 {
			t.Errorf("%s: %d bytes follow, %v", name, len(rest), err)
			continue
		}
		if again, err := back.Append(nil); err != nil || !bytes.Equal(again, wire) {
			t.Errorf("%s became %x, %v", name, again, err)
		}
	}
}

// TestBulkTotal: parts that come to less or more than the Bulk's size make no Bulk.
func TestBulkTotal(t *testing.T) {
	whole := bulkGoldens()["bulk_inline"]
	for _, size := range []uint64{0, 1, 99, 100, 299, 301, 1 << 40} {
		bad := *whole
		bad.size = size
		wire, err := bad.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := DecodeBulk(wire); !errors.Is(err, ErrWire) {
			t.Errorf("a Bulk of %d bytes with parts of 300: %v", size, err)
		}
		var parts []byte
		for _, p := range whole.parts {
			parts = p.append(parts)
		}
		if _, err := bad.readParts(parts); !errors.Is(err, ErrWire) {
			t.Errorf("a list of 300 bytes for %d: %v", size, err)
		}
	}
}

func FuzzDecodeBulk(f *testing.F) {
	for _, b := range bulkGoldens() {
		wire, err := b.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		b, rest, err := DecodeBulk(wire)
		if err != nil {
			if !errors.Is(err, ErrWire) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := b.Append(nil)
		if err != nil || !bytes.Equal(again, wire[:len(wire)-len(rest)]) {
			t.Fatalf("%x became %x, %v", wire, again, err)
		}
		total := uint64(0)
		for _, p := range b.parts {
			total += p.key.Size
		}
		if b.kind == bulkInline && total != b.size {
			t.Fatalf("parts of %d bytes, %d in all", total, b.size)
		}
	})
}

func FuzzBulkParts(f *testing.F) {
	var wire []byte
	for _, p := range bulkGoldens()["bulk_inline"].parts {
		wire = p.append(wire)
	}
	f.Add(wire, uint64(300))
	f.Fuzz(func(t *testing.T, wire []byte, size uint64) {
		b := &Bulk{kind: bulkListed, owner: 1, rights: fabric.RightRead, size: size & (1<<63 - 1)}
		parts, err := b.readParts(wire[:len(wire)/partBytes*partBytes])
		if err != nil {
			return
		}
		var again []byte
		for _, p := range parts {
			again = p.append(again)
		}
		total := uint64(0)
		for _, p := range parts {
			total += p.key.Size
		}
		if total != b.size {
			t.Fatalf("parts of %d bytes, %d in all", total, b.size)
		}
		if !bytes.Equal(again, wire[:len(again)]) || len(again) != len(wire)/partBytes*partBytes {
			t.Fatalf("%x became %x", wire, again)
		}
	})
}

func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flat := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")
		var m Memory
		for rest := flat; len(rest) > 0; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "piece")
			m = append(m, rest[:n])
			rest = rest[n:]
		}
		if m.Size() != uint64(len(flat)) {
			t.Fatalf("%d bytes of %d", m.Size(), len(flat))
		}
		at, n := rapid.IntRange(0, 70).Draw(t, "offset"), rapid.IntRange(0, 70).Draw(t, "size")
		part, err := m.Slice(uint64(at), uint64(n))
		if fits := at+n <= len(flat); fits != (err == nil) {
			t.Fatalf("[%d, +%d) of %d: %v", at, n, len(flat), err)
		}
		if err != nil {
			return
		}
		if got := bytes.Join(part, nil); !bytes.Equal(got, flat[at:at+n]) {
			t.Fatalf("[%d, +%d) is %x", at, n, got)
		}
		other := make([]byte, n)
		split := rapid.IntRange(0, n).Draw(t, "split")
		if copyMemory(Memory{other[:split], nil, other[split:]}, part) != uint64(n) || !bytes.Equal(other, flat[at:at+n]) {
			t.Fatalf("copied %x", other)
		}
	})
}
