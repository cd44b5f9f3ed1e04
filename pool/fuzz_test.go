package pool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// FuzzBackup: whatever a stream says, only bytes of the memory are put, each once and in order, and what was not damaged is all there.
func FuzzBackup(f *testing.F) {
	stream := func(chunks ...[]byte) []byte {
		var b bytes.Buffer
		size := 0
		for _, c := range chunks {
			size += len(c)
		}
		head := make([]byte, backupHead)
		copy(head, backupMagic)
		binary.LittleEndian.PutUint32(head[8:], backupVersion)
		binary.LittleEndian.PutUint64(head[16:], uint64(size))
		binary.LittleEndian.PutUint32(head[12:], castagnoli(head))
		b.Write(head)
		for _, c := range chunks {
			writeChunk(&b, c)
		}
		return b.Bytes()
	}
	good := stream([]byte("some bytes"), make([]byte, 100), []byte("and more"))
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(stream())
	f.Add([]byte(backupMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		const size = 1 << 12
		next := uint64(0)
		err := readBackup(bytes.NewReader(b), size, func(off uint64, b []byte, zeros uint64) error {
			if off != next || (len(b) == 0) == (zeros == 0) || off+uint64(len(b))+zeros > size {
				t.Fatalf("%d bytes and %d zeros at %d, after %d", len(b), zeros, off, next)
			}
			next += uint64(len(b)) + zeros
			return nil
		})
		if err != nil && !errors.Is(err, ErrBackup) && !errors.Is(err, ErrRange) {
			t.Fatal(err)
		}
		if err == nil && next != binary.LittleEndian.Uint64(b[16:]) {
			t.Fatalf("%d bytes of %d", next, binary.LittleEndian.Uint64(b[16:]))
		}
	})
}

// FuzzDecodePick: what a component is asked for is refused or makes sense, and is what a client would write.
func FuzzDecodePick(f *testing.F) {
	for _, p := range []Pick{{Region: 1, Epoch: 2, Size: 8, Count: 3, First: 4, Stride: 5}, {Region: 65535, Size: 1, Count: 2, Index: []uint64{7, 1 << 63}},
		{Size: 1 << 20, Count: 1, Index: []uint64{0}}, {Size: 4, Count: 0, Index: []uint64{}}, {Size: 8, Count: 3, First: 1, Stride: 1 << 63}} {
		f.Add(p.Append(nil))
		f.Add(append(p.Append(nil), "data"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, rest, err := DecodePick(b)
		if err != nil {
			if !errors.Is(err, ErrSpec) && !errors.Is(err, ErrRange) {
				t.Fatalf("an error that a client cannot tell: %v", err)
			}
			return
		}
		if p.Size <= 0 || p.Count < 0 || p.Count > MaxPicked || p.Size*p.Count > MaxPickedBytes || p.Index != nil && len(p.Index) != p.Count || p.wraps() {
			t.Fatalf("%+v", p)
		}
		if again := append(p.Append(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		const size = 1000
		for i := range p.Count {
			if off, ok := p.Off(i, size); ok && (off > size || uint64(p.Size) > size-off) {
				t.Fatalf("element %d of %+v lies at %d", i, p, off)
			}
		}
	})
}
