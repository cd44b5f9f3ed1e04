package memfd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t *testing.T, sealed bool) *File {
	t.Helper()
	f, err := Create("test", 1<<16, sealed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSealedCannotBeWritten: who was handed the descriptor of a sealed segment cannot write it by any way
// that the kernel has; the owner's own mapping can.
func TestSealedCannotBeWritten(t *testing.T) {
	f := create(t, true)
	f.Bytes()[0] = 7
	peer, err := Dup(f.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", peer.Fd()), os.O_RDWR, 0) // the kernel opens it, but
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for name, fd := range map[string]int{"handed": int(peer.Fd()), "opened again": int(again.Fd())} {
		if _, err := Map(fd, 1<<16, true); err == nil {
			t.Errorf("%s: it was mapped for writing", name)
		}
		if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: written: %v", name, err)
		}
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: a hole was made: %v", name, err)
		}
		mem, err := Map(fd, 1<<16, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
			t.Errorf("%s: a mapping became writable", name)
		}
		if mem[0] != 7 {
			t.Errorf("%s: reads %d", name, mem[0])
		}
		Unmap(mem)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: seals may still change: %v", name, err)
		}
	}
}

// TestFill: what is filled before the descriptor is known, and after it, is in the memory, with what was there around it; and the file is sealed
// from the first time that the descriptor is asked for.
func TestFill(t *testing.T) {
	const size, piece = 1 << 20, fillBytes + 5000
	f, err := Create("test", size, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := make([]byte, size)
	fill := func(n, off int) {
		p := bytes.Repeat([]byte{byte(off%251 + 1)}, n)
		f.Fill(p, off)
		copy(want[off:], p)
	}
	f.Bytes()[3], want[3] = 9, 9
	fill(piece, 7)
	fill(piece, 7+piece)
	fill(10, 500_001)
	fd := f.FD()
	if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("written by a descriptor that was given away: %v", err)
	}
	fill(piece, size-piece)
	if !bytes.Equal(f.Bytes(), want) {
		t.Error("the memory is not what was filled")
	}
	peer, err := Map(fd, size, false)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(peer)
	if !bytes.Equal(peer, want) {
		t.Error("a peer sees something else")
	}
}

// TestCannotShrink: nobody, not even who has it mapped for writing, can make a mapping fault.
func TestCannotShrink(t *testing.T) {
	f := create(t, false)
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := unix.Ftruncate(f.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("its size became %d: %v", size, err)
		}
	}
}

// TestMapRefuses: memory of a peer that could shrink, is smaller than promised,
// or is no memfd, is not mapped.
func TestMapRefuses(t *testing.T) {
	open, err := unix.MemfdCreate("open", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	if err := unix.Ftruncate(open, 1<<16); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	good := create(t, false)
	for name, c := range map[string]struct {
		fd   int
		size int64
		ok   bool
	}{
		"good":          {good.FD(), 1 << 16, true},
		"may shrink":    {open, 1 << 16, false},
		"a file":        {int(file.Fd()), 1 << 16, false},
		"too small":     {good.FD(), 1<<16 + 1, false},
		"of no size":    {good.FD(), 0, false},
		"no descriptor": {-1, 1 << 16, false},
	} {
		mem, err := Map(c.fd, c.size, false)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			Unmap(mem)
		}
		if name == "too small" || name == "of no size" {
			continue
		}
		fd, _ := unix.Dup(c.fd)
		f, err := Adopt(fd)
		if (err == nil) != c.ok {
			t.Errorf("%s, adopted: %v", name, err)
		}
		if err == nil {
			f.Close()
		} else {
			unix.Close(fd)
		}
	}
}

// TestZero: what is told becomes zeros, what lies beside it stays, and the kernel has the whole pages back.
func TestZero(t *testing.T) {
	f := create(t, false)
	page := os.Getpagesize()
	for _, tc := range [][2]int{{0, 1 << 16}, {0, page}, {1, page}, {page - 1, page + 2}, {10, 20}, {3*page + 5, 7 * page}, {1<<16 - 1, 1}, {5, 0}} {
		mem := f.Bytes()
		for i := range mem {
			mem[i] = 7
		}
		if err := Zero(mem, tc[0], tc[1]); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(f.FD(), &st); err != nil { // before anybody reads: that makes pages too
			t.Fatal(err)
		}
		back := max((tc[0]+tc[1])/page-(tc[0]+page-1)/page, 0)
		if has := int(st.Blocks) * 512 / page; has != len(mem)/page-back {
			t.Errorf("%d bytes at %d: %d pages are in use of %d, and %d were to go", tc[1], tc[0], has, len(mem)/page, back)
		}
		for i, b := range mem {
			if (b == 0) != (i >= tc[0] && i < tc[0]+tc[1]) {
				t.Fatalf("%d bytes at %d: byte %d is %d", tc[1], tc[0], i, b)
			}
		}
	}
}
