package linear

import (
	"bytes"
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGather: what lies on huge pages afterwards is what was there before, in every mapping; nothing is made of pages that nobody has written.
func TestGather(t *testing.T) {
	const size = 2 * HugeBytes
	fd := memfd(t, 2*size)
	want := make([]byte, size)
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(want[i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	if _, err := unix.Pwrite(fd, want, 0); err != nil {
		t.Fatal(err)
	}
	m, err := Map(3*size, []View{{At: size, Bytes: size, FD: fd}, {At: 2 * size, Bytes: size, FD: fd, Offset: size}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	before := huge(t)
	if err := m.Gather(size, 2*size); err != nil {
		t.Logf("this kernel does not gather pages: %v", err)
	} else if after := huge(t); after < before+size {
		t.Errorf("%d bytes on huge pages before, %d after; want %d more", before, after, size)
	}
	if !bytes.Equal(m.Bytes()[size:2*size], want) {
		t.Error("the view holds something else than before")
	}
	got := make([]byte, size)
	if _, err := unix.Pread(fd, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the memfd holds something else than before (%v)", err)
	}
	var st unix.Stat_t
	_ = m.Gather(2*size, 3*size) // an error, or not: as the kernel likes
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks*512 > size {
		t.Errorf("%d bytes of memory, %v; want %d", st.Blocks*512, err, size)
	}
}

// huge is how many bytes of files and memfds this process has mapped by huge pages.
func huge(t *testing.T) (bytes int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:ShmemPmdMapped|FilePmdMapped): +(\d+) kB`).FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		bytes += n << 10
	}
	return bytes
}
