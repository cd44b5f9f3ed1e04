package uring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ring is a Ring, or the test ends where the machine gives none: then there is nothing here to be right or wrong.
func ring(t *testing.T, entries uint32, bell int) *Ring {
	t.Helper()
	r, err := New(entries, bell)
	if errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestSizes: what is shared with the kernel has its sizes.
func TestSizes(t *testing.T) {
	if a, b, c := unsafe.Sizeof(params{}), unsafe.Sizeof(entry{}), unsafe.Sizeof(end{}); a != 120 || b != entryBytes || c != endBytes {
		t.Errorf("params %d, entry %d, end %d bytes", a, b, c)
	}
}

// TestReadWrite: what is written by many requests at once is there, and is read; as many as there are places, and no more.
func TestReadWrite(t *testing.T) {
	const entries, size, rounds = 8, 4096, 50
	r := ring(t, entries, -1)
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bufs := make([][]byte, entries)
	each := func(op uint8, round int) {
		for i := range bufs {
			if !r.Prepare(op, int(f.Fd()), bufs[i], int64((round*entries+i)*size), uint64(i)) {
				t.Fatalf("round %d: no room for request %d", round, i)
			}
		}
		if r.Prepare(op, int(f.Fd()), bufs[0], 0, 99) {
			t.Fatal("there is room for more than there are places")
		}
		seen := map[uint64]bool{}
		for len(seen) < entries {
			if err := r.Wait(); err != nil {
				t.Fatal(err)
			}
			r.Reap(3, func(token uint64, n int, err error) {
				if seen[token] || n != size || err != nil {
					t.Errorf("request %d: %d bytes, %v; seen before: %v", token, n, err, seen[token])
				}
				seen[token] = true
			})
		}
	}
	for round := range rounds {
		for i := range bufs {
			bufs[i] = bytes.Repeat([]byte{byte(round), byte(i)}, size/2)
		}
		each(OpWrite, round)
	}
	for round := range rounds {
		for i := range bufs {
			bufs[i] = make([]byte, size)
		}
		each(OpRead, round)
		for i := range bufs {
			if !bytes.Equal(bufs[i], bytes.Repeat([]byte{byte(round), byte(i)}, size/2)) {
				t.Fatalf("round %d: request %d read others than were written", round, i)
			}
		}
	}
}

// TestErrors: a request that fails says how, and takes nothing with it.
func TestErrors(t *testing.T) {
	r := ring(t, 2, -1)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for range 5 {
		if !r.Prepare(OpWrite, pipe[0], []byte("x"), 0, 7) { // which is for reading
			t.Fatal("no room")
		}
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := r.Reap(9, func(token uint64, n int, err error) {
			if token != 7 || !errors.Is(err, syscall.EBADF) {
				t.Errorf("%d: %d, %v", token, n, err)
			}
		}); n != 1 {
			t.Fatalf("%d ends", n)
		}
	}
	for _, entries := range []uint32{0, 3, 2 * MaxEntries} {
		if r, err := New(entries, -1); err == nil {
			r.Close()
			t.Errorf("a ring of %d", entries)
		}
	}
}

// TestBell: the bell rings for what ends while the Ring is armed, and only then.
func TestBell(t *testing.T) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bell)
	r := ring(t, 4, bell)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	p := make([]byte, 8)
	rung := func() bool {
		var b [8]byte
		n, _ := unix.Read(bell, b[:])
		return n == 8
	}
	for _, armed := range []bool{true, false, true} {
		if r.Prepare(OpRead, pipe[0], p, -1, 1); r.Submit() != nil {
			t.Fatal("not submitted")
		}
		if armed && r.Arm() {
			t.Fatal("it has ended already")
		}
		if _, err := unix.Write(pipe[1], []byte("go")); err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		if armed {
			fds := []unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, int(time.Minute/time.Millisecond)); n != 1 {
				t.Fatalf("the bell was not rung: %v", err)
			}
		}
		if rung() != armed {
			t.Errorf("armed %v, and the bell says otherwise", armed)
		}
		if n := r.Reap(1, func(_ uint64, n int, err error) {
			if n != 2 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}); n != 1 {
			t.Fatal("no end")
		}
		r.Disarm()
	}
}
