package linear

import (
	"testing"

	"golang.org/x/sys/unix"
)

func memfd(t *testing.T, bytes int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("view", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, bytes); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestViews(t *testing.T) {
	shared, private := memfd(t, 2*PageBytes), memfd(t, 2*PageBytes)
	const size = 8 * PageBytes
	m, err := Map(size, []View{
		{At: 2 * PageBytes, Bytes: 2 * PageBytes, FD: shared, Shared: true},
		{At: 5 * PageBytes, Bytes: PageBytes, FD: private, Offset: PageBytes},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	b := m.Bytes()
	if len(b) != size || len(m.Reallocate(1)) != size || m.Reallocate(size+1) != nil {
		t.Errorf("the memory has %d bytes", len(b))
	}
	for i := 0; i < size; i += 4096 { // every page is there
		if b[i] != 0 {
			t.Fatalf("byte %d is %d", i, b[i])
		}
		b[i] = 7
	}
	got := make([]byte, 1)
	if _, err := unix.Pread(shared, got, 4096); err != nil || got[0] != 7 {
		t.Errorf("the shared view's memfd holds %d, %v", got[0], err)
	}
	if _, err := unix.Pread(private, got, PageBytes); err != nil || got[0] != 0 {
		t.Errorf("the private view's memfd holds %d, %v", got[0], err)
	}
	if err := m.Discard(PageBytes, 2*PageBytes); err != nil {
		t.Fatal(err)
	}
	if b[PageBytes] != 0 || b[0] != 7 || b[2*PageBytes] != 7 {
		t.Error("Discard dropped the wrong pages")
	}
	m.Free()
	m.Free()
	if m.Bytes() != nil {
		t.Error("a freed memory has bytes")
	}
}

func TestMapRefuses(t *testing.T) {
	fd := memfd(t, PageBytes)
	for _, size := range []uint64{0, 1, PageBytes + 4096, 1 << 32} {
		if _, err := Map(size, nil); err == nil {
			t.Errorf("a memory of %d bytes", size)
		}
	}
	for _, v := range []View{
		{At: 1, Bytes: PageBytes, FD: fd},
		{At: 0, Bytes: 100, FD: fd},
		{At: 0, Bytes: 0, FD: fd},
		{At: PageBytes, Bytes: 4 * PageBytes, FD: fd},
		{At: 1<<64 - PageBytes, Bytes: 2 * PageBytes, FD: fd},
		{At: 0, Bytes: PageBytes, FD: 9999},
		{At: 0, Bytes: PageBytes, FD: fd, Offset: 1},
	} {
		if m, err := Map(2*PageBytes, []View{v}); err == nil {
			m.Free()
			t.Errorf("view %+v is accepted", v)
		}
	}
}
