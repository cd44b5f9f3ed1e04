package uffd

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const page = 4096

// window is a memfd that this process has mapped and watches. Its pages are touched by system calls only: a goroutine that
// waits for a fault inside one holds up no collector.
type window struct {
	*FD
	file int
	mem  []byte
	base uint64
}

func open4(t *testing.T, pages int) *window {
	t.Helper()
	fd, err := Open(Needed | ProtectMissing)
	if errors.Is(err, ErrUnsupported) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &window{FD: fd}
	t.Cleanup(func() { fd.Close() })
	if w.file, err = unix.MemfdCreate("uffd-test", unix.MFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(w.file) })
	if err := unix.Ftruncate(w.file, int64(pages*page)); err != nil {
		t.Fatal(err)
	}
	if w.mem, err = unix.Mmap(w.file, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(w.mem) })
	w.base = uint64(uintptr(unsafe.Pointer(&w.mem[0])))
	if err := w.Register(w.base, uint64(len(w.mem)), Missing|Minor|Protected); err != nil {
		t.Fatal(err)
	}
	return w
}

// pipe is where system calls take bytes from, and put them.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

// read touches n bytes at off in another thread; the answer is what was read.
func (w *window) read(t *testing.T, off, n int) <-chan []byte {
	out, in := pipe(t)
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, n)
		if _, err := unix.Write(in, w.mem[off:off+n]); err != nil {
			got <- []byte(err.Error())
			return
		}
		unix.Read(out, b)
		got <- b
	}()
	return got
}

// write stores b at off in another thread; the answer is the system call's error.
func (w *window) write(t *testing.T, off int, b []byte) <-chan error {
	out, in := pipe(t)
	done := make(chan error, 1)
	go func() {
		unix.Write(in, b)
		_, err := unix.Read(out, w.mem[off:off+len(b)])
		done <- err
	}()
	return done
}

// event waits for a fault.
func (w *window) event(t *testing.T) Event {
	t.Helper()
	var e [4]Event
	poll := []unix.PollFd{{Fd: int32(w.FD.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 10_000); n != 1 || err != nil {
		t.Fatalf("no fault came: %d, %v", n, err)
	}
	if n, err := w.Read(e[:]); n != 1 || err != nil || !e[0].Fault() {
		t.Fatalf("%d events, %v, %+v", n, err, e[0])
	}
	if n, err := w.Read(e[1:]); n != 0 || err != nil {
		t.Fatalf("a further event: %d, %v", n, err)
	}
	return e[0]
}

func soon[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("the access did not go on")
		panic("unreachable")
	}
}

func want(t *testing.T, what string, n, wantN int, err error, wantErr unix.Errno) {
	t.Helper()
	if n != wantN || !(err == nil && wantErr == 0 || errors.Is(err, wantErr)) {
		t.Errorf("%s: %d bytes, %v; want %d, %v", what, n, err, wantN, wantErr)
	}
}

// protected reports whether the event is a write to a page that is there, and protected against it (UFFD_PAGEFAULT_FLAG_WP).
func protected(e Event) bool { return e.flags&2 != 0 }

// TestMissing: a read of a missing page waits for Copy, and sees what was copied; several pages at once.
func TestMissing(t *testing.T) {
	w := open4(t, 4)
	got := w.read(t, page+7, 5)
	e := w.event(t)
	if e.Addr != w.base+page || e.Write() || e.Minor() || protected(e) || e.Thread() == 0 {
		t.Fatalf("event %+v", e)
	}
	src := bytes.Repeat([]byte("wherry.."), 3*page/8)
	n, err := w.Copy(e.Addr, src, false)
	want(t, "Copy", n, 3*page, err, 0)
	if b := soon(t, got); !bytes.Equal(b, src[7:12]) {
		t.Errorf("read %q", b)
	}
	n, err = w.Zero(w.base, page)
	want(t, "Zero", n, page, err, 0)
	if b := soon(t, w.read(t, page-2, 4)); string(b) != "\x00\x00wh" {
		t.Errorf("read %q", b)
	}
}

// TestPartial: a page in the way ends Copy and Zero there; what comes before it is in place, and its size is told.
func TestPartial(t *testing.T) {
	w := open4(t, 4)
	if _, err := w.Zero(w.base+2*page, page); err != nil {
		t.Fatal(err)
	}
	src := bytes.Repeat([]byte{7}, 4*page)
	n, err := w.Copy(w.base, src, false)
	want(t, "Copy into a page that is there", n, 2*page, err, unix.EEXIST)
	n, err = w.Zero(w.base, page)
	want(t, "Zero of a page that is there", n, 0, err, unix.EEXIST)
	if b := soon(t, w.read(t, 2*page-1, 2)); string(b) != "\x07\x00" {
		t.Errorf("read %q", b)
	}
	free, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(free)
	n, err = w.Copy(Address(free), src[:page], false)
	want(t, "Copy into what nobody watches", n, 0, err, unix.ENOENT)
}

// TestAdvance: whatever pieces the kernel makes of a range, all of it is filled once, and EAGAIN without a count is the caller's.
func TestAdvance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 6).Draw(t, "pieces")
		size := 0
		for _, p := range pieces {
			size += p
		}
		end := rapid.SampledFrom([]unix.Errno{0, unix.EAGAIN, unix.EEXIST, unix.ENOMEM}).Draw(t, "end")
		last, at := len(pieces)-1, 0
		n, err := advance(size, func(from int) (unix.Errno, int64) {
			sum := 0
			for _, p := range pieces[:at] {
				sum += p
			}
			if from != sum {
				t.Fatalf("asked to go on at %d, not at %d", from, sum)
			}
			if at == last && end != 0 {
				return end, -int64(end)
			}
			at++
			if at == len(pieces) {
				return 0, int64(pieces[last])
			}
			return unix.EAGAIN, int64(pieces[at-1])
		})
		if end == 0 && (n != size || err != nil) || end != 0 && (n != size-pieces[last] || !errors.Is(err, end)) {
			t.Fatalf("%v ending with %v: %d of %d, %v", pieces, end, n, size, err)
		}
	})
}

// TestProtect: a page that was copied protected is read freely; a write waits until the protection ends.
func TestProtect(t *testing.T) {
	w := open4(t, 2)
	if n, err := w.Copy(w.base, bytes.Repeat([]byte{1}, page), true); n != page || err != nil {
		t.Fatal(n, err)
	}
	if b := soon(t, w.read(t, 0, 1)); b[0] != 1 {
		t.Errorf("read %v", b)
	}
	done := w.write(t, 3, []byte("x"))
	if e := w.event(t); !protected(e) || !e.Write() || e.Addr != w.base {
		t.Fatalf("event %+v", e)
	}
	select {
	case err := <-done:
		t.Fatalf("a protected page was written: %v", err)
	default:
	}
	if err := w.Protect(w.base, page, false); err != nil {
		t.Fatal(err)
	}
	if err := soon(t, done); err != nil {
		t.Error(err)
	}
	if err := w.Protect(w.base, page, true); err != nil {
		t.Fatal(err)
	}
	done = w.write(t, 4, []byte("y"))
	w.event(t)
	if err := w.Wake(w.base, page); err != nil { // it tries again, and faults again
		t.Fatal(err)
	}
	if e := w.event(t); !protected(e) {
		t.Errorf("event %+v", e)
	}
	w.Protect(w.base, page, false)
	if err := soon(t, done); err != nil {
		t.Error(err)
	}
}

// TestEvict: what eviction does. Protect, read, punch, and the writer that waited finds the page missing; Copy fills it again although
// its place is still marked as protected.
func TestEvict(t *testing.T) {
	w := open4(t, 1)
	if n, err := w.Copy(w.base, bytes.Repeat([]byte{5}, page), false); n != page || err != nil {
		t.Fatal(n, err)
	}
	if err := w.Protect(w.base, page, true); err != nil {
		t.Fatal(err)
	}
	done := w.write(t, 1, []byte("w"))
	w.event(t)
	kept := make([]byte, page)
	if n, err := unix.Pread(w.file, kept, 0); n != page || err != nil || kept[1] != 5 {
		t.Fatal(n, err, kept[1])
	}
	if err := unix.Fallocate(w.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page); err != nil {
		t.Fatal(err)
	}
	n, err := w.Copy(w.base, kept, false)
	want(t, "Copy over the mark", n, page, err, 0)
	if err := soon(t, done); err != nil {
		t.Error(err)
	}
	if b := soon(t, w.read(t, 0, 3)); string(b) != "\x05w\x05" {
		t.Errorf("read %q", b)
	}
}

// TestMinor: a page that is in the file only is put into the page table.
func TestMinor(t *testing.T) {
	w := open4(t, 1)
	if _, err := unix.Pwrite(w.file, []byte("file"), 0); err != nil {
		t.Fatal(err)
	}
	got := w.read(t, 0, 4)
	if e := w.event(t); !e.Minor() {
		t.Fatalf("event %+v", e)
	}
	n, err := w.Continue(w.base, page, true)
	want(t, "Continue", n, page, err, 0)
	if b := soon(t, got); string(b) != "file" {
		t.Errorf("read %q", b)
	}
	done := w.write(t, 0, []byte("F"))
	if e := w.event(t); !protected(e) {
		t.Errorf("event %+v", e)
	}
	w.Protect(w.base, page, false)
	if err := soon(t, done); err != nil {
		t.Error(err)
	}
}

// TestPoison: an access to a poisoned page fails; inside a system call that is EFAULT.
func TestPoison(t *testing.T) {
	w := open4(t, 1)
	done := w.write(t, 0, []byte("x"))
	w.event(t)
	n, err := w.Poison(w.base, page)
	want(t, "Poison", n, page, err, 0)
	if err := soon(t, done); !errors.Is(err, unix.EFAULT) {
		t.Errorf("a write to a poisoned page: %v", err)
	}
}

// TestPoisonOverMark: a page that was protected when it left keeps a mark, which Copy replaces and Poison does not.
func TestPoisonOverMark(t *testing.T) {
	w := open4(t, 1)
	if n, err := w.Copy(w.base, make([]byte, page), true); n != page || err != nil {
		t.Fatal(n, err)
	}
	if err := unix.Fallocate(w.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page); err != nil {
		t.Fatal(err)
	}
	n, err := w.Poison(w.base, page)
	want(t, "Poison over a mark", n, 0, err, unix.EEXIST)
	if err := w.Protect(w.base, page, false); err != nil {
		t.Fatal(err)
	}
	n, err = w.Poison(w.base, page)
	want(t, "Poison", n, page, err, 0)
	if err := soon(t, w.write(t, 0, []byte("x"))); !errors.Is(err, unix.EFAULT) {
		t.Errorf("a write to a poisoned page: %v", err)
	}
}

// TestAdopt: a blocking descriptor, as another process may send it, does not block here.
func TestAdopt(t *testing.T) {
	w := open4(t, 1)
	dup, err := unix.FcntlInt(uintptr(w.FD.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(dup, false); err != nil {
		t.Fatal(err)
	}
	f, err := Adopt(dup)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var e [1]Event
	if n, err := f.Read(e[:]); n != 0 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	if _, err := Adopt(-1); err == nil {
		t.Error("adopted no descriptor")
	}
}

// TestNoAllocation: answering a fault allocates nothing, errors included.
func TestNoAllocation(t *testing.T) {
	w := open4(t, 1)
	src := make([]byte, page)
	var e [8]Event
	if n := testing.AllocsPerRun(50, func() {
		w.Copy(w.base, src, true)
		w.Copy(w.base, src, true) // EEXIST
		w.Protect(w.base, page, false)
		w.Wake(w.base, page)
		w.Read(e[:])
		unix.Fallocate(w.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page)
		w.Zero(w.base, page)
		unix.Fallocate(w.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
