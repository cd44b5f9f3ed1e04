package linear

import (
	"bytes"
	"encoding/binary"
	"os"
	"unsafe"
)

// A page of this process has a word in pagemap, with one of these bits if something was ever stored in it.
const (
	pagemap     = "/proc/self/pagemap"
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageWord    = 8
	mapPages    = 1024 // that are asked for at once
)

// End is the offset behind the last byte of [from, to) that is not zero, from if there is none. It looks only at pages that were touched: reading
// the others would map them, and take longer than a function that touched little of a large memory was charged for. Where the kernel does not
// say which those are, it looks at all. The range must be anonymous memory.
func (m *Memory) End(from, to uint64) uint64 { return m.end(pagemap, from, to) }

func (m *Memory) end(pagemap string, from, to uint64) uint64 {
	if from >= to {
		return from
	}
	kernel := openTouched(pagemap)
	defer kernel.close()
	mem, page, base := m.Bytes(), uint64(os.Getpagesize()), uint64(uintptr(m.base))
	for to > from {
		last := (to - 1) / page
		first := max(from/page, last-min(last, mapPages-1))
		touched := kernel.ask(base/page+first, last-first+1)
		for i := last; i+1 > first; i-- {
			if touched != nil && !touched(i-first) {
				continue
			}
			low, high := max(from, i*page), min(to, (i+1)*page)
			if left := bytes.TrimRight(mem[low:high], "\x00"); len(left) > 0 {
				return low + uint64(len(left))
			}
		}
		to = max(from, first*page)
	}
	return from
}

// touched is what the kernel says about pages.
type touched struct {
	file  *os.File // nil: nothing
	words [mapPages * pageWord]byte
}

// openTouched opens pagemap, if that is to be believed: an emulator of another processor shows its own pages there.
func openTouched(pagemap string) *touched {
	k := &touched{}
	f, err := os.Open(pagemap)
	if err != nil {
		return k
	}
	k.file, k.words[0] = f, 1
	if here := k.ask(uint64(uintptr(unsafe.Pointer(&k.words)))/uint64(os.Getpagesize()), 1); here == nil || !here(0) {
		k.close()
		k.file = nil
	}
	return k
}

// ask tells which of n pages were touched, the first in the address space being first; nil: it cannot be known.
func (k *touched) ask(first, n uint64) func(i uint64) bool {
	if k.file == nil {
		return nil
	}
	if _, err := k.file.ReadAt(k.words[:n*pageWord], int64(first*pageWord)); err != nil {
		return nil
	}
	return func(i uint64) bool {
		return binary.NativeEndian.Uint64(k.words[i*pageWord:])&(pagePresent|pageSwapped) != 0
	}
}

func (k *touched) close() {
	if k.file != nil {
		k.file.Close()
	}
}
