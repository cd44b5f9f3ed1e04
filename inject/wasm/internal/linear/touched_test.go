package linear

import (
	"encoding/binary"
	"os"
	"testing"
)

// present is how many pages of m have something mapped.
func present(t *testing.T, m *Memory) (n int) {
	t.Helper()
	f, err := os.Open(pagemap)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := uint64(os.Getpagesize())
	words := make([]byte, m.size/page*pageWord)
	if _, err := f.ReadAt(words, int64(uint64(uintptr(m.base))/page*pageWord)); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(words); at += pageWord {
		if binary.NativeEndian.Uint64(words[at:])&pagePresent != 0 {
			n++
		}
	}
	return n
}

// TestEnd: the last byte that is not zero is found wherever it lies, and no page is mapped to find it.
func TestEnd(t *testing.T) {
	const size = 400 * PageBytes // several readings
	m, err := Map(size, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	if err := m.Small(0, size); err != nil {
		t.Fatal(err)
	}
	end := func(from, to, want uint64) {
		t.Helper()
		if got := m.End(from, to); got != want {
			t.Errorf("between %d and %d it ends at %d, want %d", from, to, got, want)
		}
	}
	b := m.Bytes()
	end(0, size, 0)
	end(77, 77, 77)
	end(77, 78, 77)
	b[0] = 1
	end(0, size, 1)
	end(1, size, 1)
	b[size-1] = 1
	end(0, size, size)
	end(0, size-1, 1)
	b[size-1] = 0
	end(0, size, 1)
	last := uint64(1)
	for _, at := range []uint64{4095, 4096, 4097, 1024*4096 - 1, 1024 * 4096, 300*PageBytes + 5} {
		b[at] = 9
		end(0, size, at+1)
		end(0, size-3, at+1)
		end(0, at, last)
		last = at + 1
	}
	if n := present(t, m); n != 6 {
		t.Errorf("%d pages are mapped, 6 were touched", n)
	}
	for _, wrong := range []string{"/dev/zero", "/dev/null", "/nowhere"} { // which do not know that its pages were touched
		if got := m.end(wrong, 0, size); got != last {
			t.Errorf("by %s it ends at %d, want %d", wrong, got, last)
		}
	}
}
