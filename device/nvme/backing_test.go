package nvme

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uring"
)

func openTest(t *testing.T) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := OpenFile(path, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.memory = false // also where the test's folder is in memory
	return b
}

// TestFlushFails: the kernel tells of a lost write once. Everybody hears of it who flushes from then on, also who came while that fdatasync went on.
func TestFlushFails(t *testing.T) {
	b := openTest(t)
	began, answer := make(chan struct{}), make(chan error)
	calls := 0
	b.sync = func(int) error {
		if calls++; calls > 1 {
			return nil
		}
		close(began)
		return <-answer
	}
	var group sync.WaitGroup
	flush := func() {
		if err := b.Do(&Request{Op: OpFlush}, true); !errors.Is(err, unix.EIO) {
			t.Errorf("a flush: %v", err)
		}
	}
	group.Go(flush)
	<-began
	group.Go(flush)
	answer <- unix.EIO
	group.Wait()
	flush()
	if err := b.Do(&Request{Op: OpWrite, Size: 512, Pieces: [][]byte{make([]byte, 512)}, Durable: true}, true); !errors.Is(err, unix.EIO) {
		t.Errorf("a write that is to be durable: %v", err)
	}
}

// TestZeroesDurably: Write Zeroes with FUA is durable when it ends.
func TestZeroesDurably(t *testing.T) {
	b := openTest(t)
	synced := 0
	b.sync = func(int) error { synced++; return nil }
	for want, durable := range []bool{false, true} {
		if err := b.Do(&Request{Op: OpWriteZeroes, Size: 4096, Durable: durable}, true); err != nil || synced != want {
			t.Errorf("durable %v: %d fdatasyncs, %v", durable, synced, err)
		}
	}
}

// openMemory is a drive of so many bytes in memory, none of which are there yet, and its descriptor.
func openMemory(t *testing.T, size int64) (b *File, fd int) {
	t.Helper()
	fd, err := unix.MemfdCreate("drive", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil {
		b, err = OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), FileOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		unix.Close(fd)
	})
	if b.place == nil {
		t.Fatal("a file in memory is not mapped")
	}
	return b, fd
}

// TestInPlace: a file in memory is read and written where it is, and what is there is what calls see.
func TestInPlace(t *testing.T) {
	const size = 16 * chunkBytes
	b, fd := openMemory(t, size)
	seed := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, size)
	rounds := 4000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		n := 512 * (1 + seed.Int64N(300))
		r := Request{Op: OpRead, Off: 512 * seed.Int64N((size-n)/512+1), Size: n}
		switch seed.IntN(8) {
		case 0, 1, 2:
			r.Op = OpWrite
		case 3:
			if seed.IntN(4) == 0 {
				r.Op = OpDataset
			}
		}
		p := make([]byte, n)
		cut := 1 + seed.Int64N(n)
		r.Pieces = [][]byte{p[:cut], p[cut:]}
		if r.Op == OpWrite {
			for i := range p {
				p[i] = byte(seed.Uint32())
			}
			copy(want[r.Off:], p)
		} else if r.Op == OpDataset {
			clear(want[r.Off : r.Off+n])
		}
		if err := b.Do(&r, true); err != nil {
			t.Fatal(err)
		}
		if r.Op == OpRead && !bytes.Equal(p, want[r.Off:r.Off+n]) {
			t.Fatalf("%d bytes at %d are others than were written", n, r.Off)
		}
	}
	got := make([]byte, size)
	if _, err := unix.Pread(fd, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file is another: %v", err)
	}
	if err := b.Do(&Request{Op: OpWrite, Size: chunkBytes, Pieces: [][]byte{make([]byte, chunkBytes)}}, true); err != nil { // no hole is left in the first
		t.Fatal(err)
	}
	if r := (Request{Op: OpRead, Size: 512, Pieces: [][]byte{got[:512]}}); !b.place.move(&r) {
		for range lookEvery { // it is looked up now and then
			b.place.move(&r)
		}
		if !b.place.move(&r) {
			t.Error("what is there is read by calls")
		}
	}
}

// TestHolesStay: reading what was never written takes none of the lender's memory.
func TestHolesStay(t *testing.T) {
	const size = 64 << 20
	b, fd := openMemory(t, size)
	p := make([]byte, MaxTransferBytes)
	for off := int64(0); off < size; off += MaxTransferBytes {
		for range lookEvery {
			if err := b.Do(&Request{Op: OpRead, Off: off, Size: MaxTransferBytes, Pieces: [][]byte{p}}, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks*512 > chunkBytes {
		t.Errorf("%d bytes are taken: %v", st.Blocks*512, err)
	}
}

// TestCutOff: whoever cuts a lent file off ends commands behind its new end, and not the node.
func TestCutOff(t *testing.T) {
	b, fd := openMemory(t, 4*chunkBytes)
	p := make([]byte, 4096)
	write := Request{Op: OpWrite, Off: 3 * chunkBytes, Size: chunkBytes, Pieces: [][]byte{make([]byte, chunkBytes)}}
	read := Request{Op: OpRead, Off: 3 * chunkBytes, Size: 4096, Pieces: [][]byte{p}}
	for range lookEvery {
		if err := errors.Join(b.Do(&write, true), b.Do(&read, true)); err != nil {
			t.Fatal(err)
		}
	}
	if !b.place.holds(read.Off, read.Size) {
		t.Fatal("it is not reached where it is, so nothing is tried here")
	}
	if err := unix.Ftruncate(fd, chunkBytes); err != nil {
		t.Fatal(err)
	}
	if err := b.Do(&read, false); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a read behind the end: %v", err)
	}
	read.Off = 0
	if err := b.Do(&read, false); err != nil {
		t.Errorf("a read of what is left: %v", err)
	}
}

// TestStarter: what is read and written by io_uring, past the page cache or not, is what the file has, aligned for that or not.
func TestStarter(t *testing.T) {
	for _, direct := range []bool{false, true} {
		const size = 1 << 20
		path := filepath.Join(t.TempDir(), "disk.img")
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := OpenFile(path, FileOptions{Direct: direct})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		b.memory = false
		s, err := b.Starter(-1)
		if errors.Is(err, uring.ErrNotSupported) { // then goroutines do it all, and the other tests try that
			t.Logf("not tried: %v", err)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		seed := rand.New(rand.NewPCG(3, 4))
		want := make([]byte, size)
		for range 500 {
			n := 512 * (1 + seed.Int64N(64))
			mem := make([]byte, n+8192)
			at := seed.IntN(2) * seed.IntN(4096)
			r := Request{Op: OpRead, Off: 512 * seed.Int64N((size-n)/512+1), Size: n, Pieces: [][]byte{mem[at : at+int(n)]}}
			if seed.IntN(2) == 0 {
				r.Op = OpWrite
				for i := range r.Pieces[0] {
					r.Pieces[0][i] = byte(seed.Uint32())
				}
				copy(want[r.Off:], r.Pieces[0])
			}
			if !s.Start(&r, 7) {
				t.Fatal("it does not start")
			}
			ended := false
			for end := time.Now().Add(time.Minute); !ended && time.Now().Before(end); {
				if _, err := s.Submit(); err != nil {
					t.Fatal(err)
				}
				s.Reap(1, func(token uint64, moved int, err error) {
					if ended = true; token != 7 || int64(moved) != n || err != nil {
						t.Fatalf("%v of %d bytes at %d: %d, %v", r.Op, n, r.Off, moved, err)
					}
				})
			}
			if !ended || !bytes.Equal(r.Pieces[0], want[r.Off:r.Off+n]) {
				t.Fatalf("direct %v: %d bytes at %d (memory at %d) are others than were written, or it has not ended", direct, n, r.Off, at)
			}
		}
		for _, r := range []Request{{Op: OpFlush}, {Op: OpWrite, Size: 512, Durable: true, Pieces: [][]byte{want[:512]}}, {Op: OpRead, Size: 1024, Pieces: [][]byte{want[:512], want[512:1024]}}} {
			if s.Start(&r, 8) {
				t.Errorf("%+v was started", r)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("direct %v: the file is another: %v", direct, err)
		}
	}
}
