package guest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/device/nvme/admin"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queues are a server that notes its windows.
type queues struct {
	windows map[uint32]bool
	late    *int // how many times a window is not given back in time; nil: it always is
}

func (q queues) Create(context.Context, admin.Queue) error    { return nil }
func (q queues) Delete(context.Context, uint16) error         { return nil }
func (q queues) Shadow(context.Context, uint64, uint64) error { return nil }
func (q queues) Ring(uint64, uint32) error                    { return nil }
func (q queues) RemoveWindow(_ context.Context, window uint32) error {
	if q.late != nil && *q.late > 0 {
		*q.late--
		return context.DeadlineExceeded
	}
	delete(q.windows, window)
	return nil
}
func (q queues) Close() {}

func (q queues) AddWindow(_ context.Context, window uint32, _ *fabric.Segment, _, _, _ uint64) error {
	q.windows[window] = true
	return nil
}

func open(t *testing.T, q queues, serve func(failed func(error))) *Device {
	t.Helper()
	tr, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "guest", Transports: []fabric.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	if _, err := el.Listen("shm://" + filepath.Join(t.TempDir(), "g.sock")); err != nil {
		t.Fatal(err)
	}
	d, err := Open(Config{Element: el, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Serve: func(failed func(error)) (Server, error) {
		serve(failed)
		return Server{q}, nil
	}}, func(uint16) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// TestLostAtOnce: a guest comes as the lender goes. Its controller has failed from the beginning, and nothing else happens.
func TestLostAtOnce(t *testing.T) {
	d := open(t, queues{windows: map[uint32]bool{}}, func(failed func(error)) { failed(errors.New("the lender is lost")) })
	var p [4]byte
	if d.Read(0x1c, p[:]); p != [4]byte{0xff, 0xff, 0xff, 0xff} {
		t.Errorf("its status is %x", p)
	}
}

// memfd makes a memfd of 4 MiB.
func memfd(t *testing.T, flags, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil && flags != 0 {
		t.Skipf("this kernel makes no memfd of huge pages: %v", err)
	}
	if err == nil {
		err = unix.Ftruncate(fd, 4<<20)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestUnmapPart: memory is taken back as it was given. Part of a window cannot be, and nobody is told that nothing uses it.
func TestUnmapPart(t *testing.T) {
	q := queues{windows: map[uint32]bool{}}
	d := open(t, q, func(func(error)) {})
	ctx := t.Context()
	const base, size = 1 << 20, 2 << 20
	if err := d.Map(ctx, memfd(t, 0, unix.F_SEAL_SHRINK), 0, base, size, true); err != nil {
		t.Fatal(err)
	}
	for _, part := range [][2]uint64{{base, size / 2}, {base + size/2, size / 2}, {base + 4096, 4096}, {0, base + 4096}, {base + 4096, ^uint64(0)}} {
		if err := d.Unmap(ctx, part[0], part[1]); !errors.Is(err, errPlace) || !q.windows[1] {
			t.Errorf("%d bytes at %#x were taken back: %v", part[1], part[0], err)
		}
	}
	if err := d.Unmap(ctx, 0, base); err != nil || !q.windows[1] {
		t.Errorf("memory beside it: %v", err)
	}
	if err := d.Unmap(ctx, 0, base+size); err != nil || q.windows[1] {
		t.Errorf("all of it: %v, %v", err, q.windows)
	}
}

// TestUnmapAgain: memory that was not given back in time is not free when it is asked for again, but when nothing uses it.
func TestUnmapAgain(t *testing.T) {
	late := 2
	q := queues{map[uint32]bool{}, &late}
	d := open(t, q, func(func(error)) {})
	ctx := t.Context()
	const base, size = 1 << 20, 2 << 20
	if err := d.Map(ctx, memfd(t, 0, unix.F_SEAL_SHRINK), 0, base, size, true); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := d.Unmap(ctx, base, size); (err == nil) != !q.windows[1] || (err == nil) != (i == 2) {
			t.Errorf("asked for the %d. time: %v, and its window is there: %v", i+1, err, q.windows[1])
		}
	}
}

// TestBadAreas: areas that the file does not have, that overlap, that are not whole pages or too many are refused, by errors that say so, and leave nothing open.
func TestBadAreas(t *testing.T) {
	q := queues{windows: map[uint32]bool{}}
	d := open(t, q, func(func(error)) {})
	const page, base, size = 4096, 1 << 30, 1 << 20
	if err := d.Map(t.Context(), memfd(t, 0, unix.F_SEAL_SHRINK), 0, base, size, true); err != nil {
		t.Fatal(err)
	}
	for why, bad := range map[string][3]uint64{ // offset, address, size
		"of a file of":         {4 << 20, 2 << 30, page},
		"from 4190208":         {4<<20 - page, 2 << 30, 2 * page},
		"from 184467":          {^uint64(page - 1), 2 << 30, 2 * page},
		"do not overlap":       {0, base + size - page, 2 * page},
		"whole pages":          {0, 2<<30 + 512, page},
		"512 bytes":            {0, 2 << 30, 512},
		"0 bytes":              {0, 2 << 30, 0},
		"below 2^52":           {0, 1<<52 - page, 2 * page},
		"8192 bytes at 0xffff": {0, ^uint64(page - 1), 2 * page},
	} {
		fd := memfd(t, 0, unix.F_SEAL_SHRINK)
		if err := d.Map(t.Context(), fd, bad[0], bad[1], bad[2], true); !errors.Is(err, errPlace) || !strings.Contains(err.Error(), why) {
			t.Errorf("%d bytes at %#x from %d: %v, want %q", bad[2], bad[1], bad[0], err, why)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			t.Errorf("%s: its descriptor is open still", why)
		}
	}
	if len(q.windows) != 2 { // and the bells
		t.Errorf("windows %v", q.windows)
	}
	fd, n := memfd(t, 0, unix.F_SEAL_SHRINK), 1
	defer unix.Close(fd)
	for ; n <= bellWindow; n++ {
		mine, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		if err = d.Map(t.Context(), mine, 0, base+uint64(n)*size, page, true); err != nil {
			if !errors.Is(err, errPlace) || !strings.Contains(err.Error(), "at most") {
				t.Errorf("area %d: %v", n+1, err)
			}
			break
		}
	}
	if n != bellWindow-1 {
		t.Errorf("%d areas, want %d", n, bellWindow-1)
	}
}

// TestBadMemory: memory that may go away under a load is not mapped.
func TestBadMemory(t *testing.T) {
	d := open(t, queues{windows: map[uint32]bool{}}, func(func(error)) {})
	for why, fd := range map[string]int{"not sealed": memfd(t, 0, 0), "no memfd of ordinary pages": memfd(t, unix.MFD_HUGETLB, unix.F_SEAL_SHRINK)} {
		if err := d.Map(t.Context(), fd, 0, 1<<21, 2<<20, true); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			t.Errorf("%s: its descriptor is open still", why)
		}
	}
}
