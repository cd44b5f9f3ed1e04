package node

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestResident: a page that is mapped several times counts once, and the kernel is not asked at each scrape.
func TestResident(t *testing.T) {
	const size, times = 32 << 20, 4
	before, ok := proportional()
	if !ok {
		t.Fatal("the kernel does not tell")
	}
	fd, err := unix.MemfdCreate("resident", 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Ftruncate(fd, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range times {
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(m)
	}
	var r resident
	now := time.Now()
	got := int64(r.bytes(now)) - before
	if got < size*3/4 || got > 2*size {
		t.Errorf("%d mappings of %d bytes count as %d", times, size, got)
	}
	r.last = 1
	if b := r.bytes(now.Add(residentEvery / 2)); b != 1 {
		t.Errorf("half of the time later: %v, which is read anew", b)
	}
	if b := r.bytes(now.Add(time.Hour)); b == 1 {
		t.Error("an hour later nothing is read anew")
	}
}
